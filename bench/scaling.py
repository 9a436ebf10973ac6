"""Figure 6a-c: throughput of DQN on CartPole against actors, learner cores and groups.

  a  a fixed learner and more and more actors: sampling, receiving, training; where is the knee?
  b  the learner with more cores, batch and pool as many times larger: how far does the knee move?
  c  1, 2 and 4 copies of the balanced group: how linear is it, and are the samples as fresh?

Each sample is learned from once on average. By default costs are slept (simulated): an actor makes
1,600 steps per second, one learner core takes 6,400 samples per second, and that cores add up is
assumed. `--real` takes CartPole as it is, one environment per actor, a core for each actor and
learner: for 16 cores. In part a `unpaced` lets actors run ahead (buffer_cfg.slack), as the paper's
system does.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from typing import Any

from experiment import (
    PACED,
    REAL,
    SIMULATED,
    UNPACED,
    Trial,
    conduct,
    fits,
    kind_of,
    machine,
    parser,
)
from figures import Panel, Series
from measures import Knee, knee, slope
from options import count, some_of
from splits import ENVS, STEP_SECONDS
from tables import cells, markdown, spread, values, where
from trainings import JOBS, Row, train

from tianji.strategy.probe.larger_batch import RULES
from tianji.tools.verify.run_figures import distance

SAMPLE_SECONDS = 1 / 6_400  # simulated: of one learner core
BATCH = {REAL: 64, SIMULATED: 256}  # with one learner core; few updates need little of a real one
POOL = 65_536  # samples, with one learner core
LR = 5e-4
RATES = ("production", "receiving", "consumption")
COLUMNS = (
    "kind", "part", "way", "groups", "actors", "learner_cores", "batch", "lr", "seed",
    "production", "receiving", "consumption", "offered", "learner_idle", "freshness",
    "staleness_mean", "age_distance", "foreign_load",
)  # fmt: skip


def settings(
    given: argparse.Namespace, actors: int, cores: int = 1, groups: int = 1, way: str = PACED
) -> dict[str, Any]:
    """Keys of one run; `actors` are those of one group.

    The pool grows with the batch, so that samples are as fresh with more learner cores (P = Bs/Ns).
    """
    keys: dict[str, Any] = {
        "global_cfg.group_num": groups,
        "actor_cfg.num": actors,
        "hyp.batch_size": BATCH[kind_of(given.real)] * cores,
        "hyp.buffer_size": POOL * cores,
        "hyp.lr": LR * RULES[given.lr_rule](cores),
    }
    if way == UNPACED:
        keys["buffer_cfg.slack"] = 10**9
    if given.real:
        return keys | {
            "environment.gym_name": "CartPole-v1",
            "environment.kwargs": "dict()",
            "actor_cfg.envs": given.envs,
            "learner_cfg.cores": cores,
        }
    return keys | {
        "environment.kwargs": f"dict(step_seconds={STEP_SECONDS})",
        "actor_cfg.envs": ENVS,
        "hyp.sample_seconds": SAMPLE_SECONDS / cores,
        "model.hidden": [64, 64],
    }


def measure(about: Row, keys: Row, seed: int, seconds: float, single: dict[int, Row]) -> Row:
    """One run, with how far the ages of its samples are from those of one group (part c)."""
    found = train(JOBS / "dqn.py", keys, seed, seconds)
    if about["part"] == "c" and seed in single:
        ages = [run["histograms"]["age_steps"] for run in (single[seed], found)]
        found["age_distance"] = distance(*ages).ks if all(ages) else math.nan
    elif about["part"] == "c" and about["groups"] == 1:
        single[seed] = found
    return found


def plan(given: argparse.Namespace) -> list[Row]:
    """Everything that is run for one seed."""
    quick, real = given.quick, given.real
    a = given.actors or ([1, 4, 8] if quick else [1, 2, 3, 4, 8, 14] if real else [1, 2, 4, 8, 16])
    b = given.actors or ([8, 16] if quick else [2, 4, 8, 12] if real else [4, 8, 16, 24])
    one = {"learner_cores": 1, "groups": 1}
    found: list[Row] = []
    if "a" in given.parts:
        found += [one | {"part": "a", "way": w, "actors": n} for n in a for w in (PACED, UNPACED)]
    if "b" in given.parts:
        more = {"learner_cores": given.learner_cores, "groups": 1, "part": "b", "way": PACED}
        found += [more | {"actors": n} for n in b]
    if "c" in given.parts:
        groups = [1, 2] if quick else [1, 2, 4]
        same = {"part": "c", "way": PACED, "learner_cores": 1, "actors": given.group_actors}
        found += [same | {"groups": g} for g in groups]
    return found


def curve(rows: list[Row], column: str, x: str = "actors") -> tuple[list[float], list[float]]:
    """Medians of a column against x."""
    xs = sorted({row[x] for row in rows})
    return xs, [spread(where(rows, **{x: each}), column).middle for each in xs]


def knee_of(rows: list[Row]) -> Knee | None:
    """Where training throughput stops growing with the actors."""
    return knee(*curve(rows, "consumption"))


def sentence(rows: list[Row]) -> str:
    found = knee_of(rows)
    if found is None:
        return "no knee within these numbers of actors"
    return (
        f"knee at {found.at:.1f} actors: {found.gain:,.0f} per actor and second up to there, "
        f"{found.level:,.0f} beyond"
    )


def section(rows: list[Row], x: str, title: str) -> str:
    """A line for each x and way."""
    header = [x, "way", "sampling/s", "receiving/s", "training/s", "offered/s", "learner idle"]
    digits = dict.fromkeys(RATES, 0) | {"offered": 0, "learner_idle": 2}
    lines = [
        [str(each), way, *cells(runs, digits)]
        for way in values(rows, "way")
        for each in sorted({row[x] for row in rows})
        if (runs := where(rows, **{x: each, "way": way}))
    ]
    return f"{title}\n\n{markdown(header, lines)}"


def table(rows: list[Row]) -> str:
    """The three parts, each with what it shows."""
    found = [f"Figure 6, DQN on CartPole, {machine(rows[0]['kind'])}"]
    if a := where(rows, part="a"):
        found.append(section(a, "actors", f"(a) one learner core, batch {a[0]['batch']}"))
        for way in (PACED, UNPACED):
            if runs := where(a, way=way):
                found.append(f"{way}: {sentence(runs)}")
    if b := where(rows, part="b"):
        cores, batch, lr = b[0]["learner_cores"], b[0]["batch"], b[0]["lr"]
        title = f"(b) {cores} learner cores, batch {batch}, learning rate {lr:g}"
        found += [section(b, "actors", title), sentence(b)]
    if c := where(rows, part="c"):
        title = f"(c) groups of one learner core and {c[0]['actors']} actors"
        found += [section(c, "groups", title), slopes(c)]
    return "\n\n".join(found)


def slopes(rows: list[Row]) -> str:
    """How linear part c is, and how much the samples' ages differ."""
    said = []
    for column in ("receiving", "consumption"):
        xs, ys = curve(rows, column, "groups")
        if len(xs) > 1:
            said.append(f"slope of {column}: {slope(xs, ys):.3f} (1 is linear)")
    for n in sorted({row["groups"] for row in rows} - {1}):
        known = [r for r in where(rows, groups=n) if r["age_distance"] != ""]
        if known:
            far, fresh = spread(known, "age_distance").text(3), spread(known, "freshness").text(4)
            said.append(
                f"{n} groups: ages of samples differ from those of one group by {far} "
                f"(Kolmogorov-Smirnov), freshness {fresh}"
            )
    return "\n".join(f"- {each}" for each in said)


def panels(rows: list[Row]) -> list[Panel]:
    """One for each part, two for part a."""
    kind, drawn = rows[0]["kind"], []
    for part, way, x, title in (
        ("a", PACED, "actors", "6a: one learner core, paced"),
        ("a", UNPACED, "actors", "6a: one learner core, unpaced"),
        ("b", PACED, "actors", "6b: more learner cores, larger batch"),
        ("c", PACED, "groups", "6c: groups"),
    ):
        runs = where(rows, part=part, way=way)
        if not runs:
            continue
        panel = Panel(f"Figure {title} ({kind})", x, "per second")
        names = dict(zip(RATES, ("sampling", "receiving", "training"), strict=True))
        if part != "c" and way == PACED:
            names["offered"] = "offered"
        for column, name in names.items():
            xs = sorted({row[x] for row in runs})
            points = [(each, spread(where(runs, **{x: each}), column)) for each in xs]
            panel.series.append(Series(name, points, is_dashed=name in ("receiving", "offered")))
        found = knee_of(runs) if part != "c" else None
        if found is not None:
            panel.marks.append((found.at, f"knee {found.at:.1f}"))
        drawn.append(panel)
    return drawn


def main() -> int:
    options = parser("scaling", __doc__, seconds=10)
    options.add_argument("--real", action="store_true", help="real costs: wants 16 cores")
    options.add_argument("--parts", type=some_of("abc"), default="abc", help="some of abc")
    options.add_argument("--actors", type=count, nargs="+", help="of parts a and b")
    options.add_argument("--learner-cores", type=count, default=4, help="of part b")
    options.add_argument("--group-actors", type=count, help="of part c; default: 4, real: 3")
    options.add_argument("--envs", type=count, default=1, help="per actor, with --real")
    options.add_argument(
        "--lr-rule", choices=RULES, default="none", help="of part b: how lr grows with the batch"
    )
    given = options.parse_args()
    given.group_actors = given.group_actors or (3 if given.real else 4)
    single: dict[int, Row] = {}  # seed -> the run of part c with one group

    def trials(seed: int) -> Iterator[Trial]:
        for about in plan(given):
            n, cores, groups = about["actors"], about["learner_cores"], about["groups"]
            if fits(f"{groups} x ({cores} + {n})", groups * (cores + n), given.real):
                keys = settings(given, n, cores, groups, about["way"])
                row = {"kind": kind_of(given.real), **about, "age_distance": ""}
                row |= {"batch": keys["hyp.batch_size"], "lr": keys["hyp.lr"]}
                yield row, measure, (about, keys, seed, given.seconds, single)

    return conduct("scaling", COLUMNS, given, trials, table, panels)


if __name__ == "__main__":
    sys.exit(main())
