"""Our rate control beside a blocking samples-per-insert limiter, at the same ratio and costs.

Actors and a learner are threads that sleep for as long as their work would take (simulated). Their
lengths are random, and the same for both. What differs is what stands between them:

  ours      the roles' own Buffer with its Balance, over the rings and bells of shared memory: the
            buffer takes no more than the ratio allows, and a full ring has no slot for an actor;
            with no slack (the default) and with a trajectory of each actor (the default of a buffer
            with cores of its own)
  limiter   insert waits and sample waits, as with Reverb's SampleToInsertRatio (bench/limiter.py),
            with three error buffers: the least that works, one batch, and 0.1 * ratio * min_size,
            which is Acme's rule

Shown are the learner's idle share, throughput, and the standard deviation of the ratio over short
windows, in percent of the ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from experiment import SIMULATED, Trial, conduct, machine, parser
from figures import Panel, Series
from measures import Event, window_ratios
from options import count
from rivals import Costs, Log, run_limiter, run_ours
from tables import cells, markdown, spread, values, where
from trainings import Row, busy_share

WINDOWS = (0.1, 0.25, 1.0)  # seconds
SETTLING_SECONDS = 1.0  # left out of what is measured
COLUMNS = (
    "kind", "scenario", "way", "seed", "learner_idle", "actor_idle", "consumption", "receiving",
    "ratio", *(f"deviation_{width:g}s" for width in WINDOWS), "updates", "foreign_load",
)  # fmt: skip

JUDGED = {
    "idle": "learner_idle",
    "deviation over 0.1 s": "deviation_0.1s",
    "over 0.25 s": "deviation_0.25s",
}

Way = Callable[[int, float], Log]  # from a seed and seconds

SCENARIOS = {
    "balanced": Costs(),
    "slow actors": Costs(trajectory_seconds=0.0625),
    "slow learner": Costs(update_seconds=0.00625),
}


def evaluate(log: Log, costs: Costs) -> Row:
    """Idle shares, rates and the ratio's deviation, without the beginning."""
    start, end = log.learned[0][0] + SETTLING_SECONDS, log.learned[-1][0]
    span = end - start

    def total(events: list[Event]) -> float:
        return sum(n for moment, n in events if start <= moment < end)

    came, went = total(log.came), total(log.went)
    row: Row = {
        "learner_idle": max(0.0, 1 - total(log.learned) / span),
        "actor_idle": max(0.0, 1 - total(log.acted) / span / costs.n_actors),
        "consumption": went / span,
        "receiving": came / span,
        "ratio": went / came,
        "updates": len(log.learned),
    }
    for width in WINDOWS:
        ratios = window_ratios(log.came, log.went, width, start, end)
        deviation = statistics.pstdev(ratios) if ratios else float("nan")
        row[f"deviation_{width:g}s"] = 100 * deviation / costs.ratio
    return row


def ways(costs: Costs) -> dict[str, Way]:
    """Ours with both slacks, and the limiter with its error buffers."""
    ours = {"no slack": 0, "a trajectory each": costs.n_actors * costs.steps}
    theirs = {
        "least": max(1.0, costs.ratio),
        "one batch": float(costs.batch),
        "Acme's": 0.1 * costs.ratio * costs.min_size,
    }
    found: dict[str, Way] = {
        f"ours, {name}": partial(run_ours, costs, n) for name, n in ours.items()
    }
    limiters = {f"limiter, {name}": partial(run_limiter, costs, n) for name, n in theirs.items()}
    return found | limiters


def measure(costs: Costs, way: Way, seed: int, seconds: float) -> Row:
    """One run of one way."""
    foreign = busy_share()
    return evaluate(way(seed, seconds), costs) | {"foreign_load": foreign}


def table(rows: list[Row]) -> str:
    """A section for each scenario, and whether ours is lower."""
    digits = {"learner_idle": 3, "actor_idle": 3, "consumption": 0, "ratio": 3}
    digits |= {f"deviation_{width:g}s": 1 for width in WINDOWS}
    header = ["way", "learner idle", "actors idle", "consumed/s", "ratio",
              *(f"deviation {width:g} s %" for width in WINDOWS)]  # fmt: skip
    found = [f"Rate control, ratio 4, {machine(SIMULATED)}"]
    for scenario in values(rows, "scenario"):
        here = where(rows, scenario=scenario)
        names = values(here, "way")
        lines = [[name, *cells(where(here, way=name), digits)] for name in names]
        found += [f"**{scenario}**", markdown(header, lines), verdict(here)]
    return "\n\n".join(found)


def verdict(rows: list[Row]) -> str:
    """What is lower with each of ours than with each limiter."""
    names = values(rows, "way")
    lines = []
    for ours in (name for name in names if name.startswith("ours")):
        said = []
        for theirs in (name for name in names if name.startswith("limiter")):
            lower = [
                word
                for word, column in JUDGED.items()
                if _middle(rows, ours, column) < _middle(rows, theirs, column)
            ]
            said.append(f"{theirs.removeprefix('limiter, ')}: {', '.join(lower) or 'nothing'}")
        lines.append(f"- lower with {ours} than with the limiter, {'; '.join(said)}")
    return "\n".join(lines)


def _middle(rows: list[Row], way: str, column: str) -> float:
    return spread(where(rows, way=way), column).middle


def panels(rows: list[Row]) -> list[Panel]:
    """Idle share and deviation, bars for each scenario."""
    drawn = []
    for title, column, unit in (
        ("learner idle", "learner_idle", "share of time"),
        ("deviation of the ratio over 0.25 s", "deviation_0.25s", "% of the ratio"),
    ):
        panel = Panel(f"Rate control: {title} ({SIMULATED})", "", unit, is_bars=True)
        scenarios = values(rows, "scenario")
        for way in values(rows, "way"):
            runs = [(s, where(rows, scenario=s, way=way)) for s in scenarios]
            panel.series.append(Series(way, [(s, spread(r, column)) for s, r in runs if r]))
        drawn.append(panel)
    return drawn


def main() -> int:
    options = parser("ratelimit", __doc__, seconds=10)
    options.add_argument("--scenarios", nargs="+", choices=SCENARIOS, help="default: all")
    options.add_argument("--n-actors", type=count, default=8)
    given = options.parse_args()
    if given.quick:
        given.seconds = min(given.seconds, 4.0)
    names = given.scenarios or (["balanced"] if given.quick else list(SCENARIOS))

    def trials(seed: int) -> Iterator[Trial]:
        for scenario in names:
            costs = scaled(SCENARIOS[scenario], given)
            for name, way in ways(costs).items():
                row = {"kind": SIMULATED, "scenario": scenario, "way": name}
                yield row, measure, (costs, way, seed, given.seconds)

    return conduct("ratelimit", COLUMNS, given, trials, table, panels)


def scaled(costs: Costs, given: argparse.Namespace) -> Costs:
    """Another number of actors that produce as much together."""
    times = given.n_actors / costs.n_actors
    return replace(
        costs, n_actors=given.n_actors, trajectory_seconds=costs.trajectory_seconds * times
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
