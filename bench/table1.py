"""Table 1 and Figure 12b: final time, production and consumption of PPO against the actors.

Two groups of one learner (L2), 2 to 24 actors in all. By default costs are slept (simulated): an
actor makes 1,455 steps per second and a learner consumes 5,700, so that 8 actors feed two learners.
That is what the solver of `tianji plan` makes of these costs on 16 cores, the planned split. Two
ways:

  unpaced  as the paper's system: actors never stop (buffer_cfg.slack). What they make beyond the
           learners' limit waits, and batches are drawn from all that waits: samples grow old. One
           that has waited for more than `--lag` updates is dropped
  paced    ours: production is held to what is consumed, and nothing is lost. With fewer actors than
           planned there is nothing to hold: slept, those are run once, as unpaced

Updates have ten epochs, as in configs/paper_ppo_cartpole.py (slept; three with --real): with three,
how old a sample is makes hardly a difference on CartPole.

Production is what the actors made, whatever became of it. `offered` is what they would make if they
were never paced. `--real` takes CartPole as it is, one environment per actor, and learners with
`--learner-cores` cores: for 16 cores and more.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from typing import Any

from experiment import PACED, UNPACED, Trial, conduct, fits, kind_of, machine, parser
from figures import Panel, Series
from measures import Spread, shown
from options import count
from splits import LEARNER_SECONDS, Split
from tables import cells, markdown, spread, values, where
from trainings import JOBS, Row, train

from tianji.strategy.plan.profile import ActorCost, LearnerCost, Machine, Profile, Work
from tianji.strategy.plan.solver import PlanRequest, solve

ACTORS = (2, 4, 8, 16, 24)
CORES = 16  # that the planned split is for, as in the paper
LAG = 32  # updates that a sample may wait, unpaced
SLACK_ROLLOUTS = 2_048  # that actors may be ahead, unpaced: more than wait there at any time
BATCH_SAMPLES = 2_048
ENVS, STEPS, STEP_SECONDS = 16, 32, 0.011  # simulated: 1,455 steps per second and actor
COLUMNS = (
    "kind", "way", "setting", "seed", "final_seconds", "production", "consumption", "learned",
    "offered", "dropped", "env_steps", "updates", "staleness_mean", "staleness_p95",
    "learner_idle", "startup_seconds", "foreign_load",
)  # fmt: skip
PAPERS = {"final_seconds": 2, "production": 2, "consumption": 2}  # columns and digits
OURS = {"learned": 2, "staleness_mean": 1, "learner_idle": 2, "offered": 0, "dropped": 0}
HEADER = ["Setting", "Final Time(s)", "Production Throughput(steps/s)",
          "Consumption Throughput(steps/s)"]  # fmt: skip


def real_settings(n_envs: int, steps: int) -> dict[str, Any]:
    """CartPole without sleep; a batch stays 2,048 samples."""
    return {
        "environment.gym_name": "CartPole-v1",
        "environment.kwargs": "dict()",
        "actor_cfg.envs": n_envs,
        "hyp.step_len": steps,
        "hyp.batch_size": max(1, BATCH_SAMPLES // (n_envs * steps)),
    }


def slept_settings() -> dict[str, Any]:
    """Actors a little slower than in other experiments: eight of them are what learners want.

    Ten epochs move a policy far in one update, with a learning rate that they allow.
    """
    return {
        "hyp.update_step": 10,
        "hyp.lr": 0.003,
        "environment.kwargs": f"dict(step_seconds={STEP_SECONDS})",
        "actor_cfg.envs": ENVS,
        "hyp.step_len": STEPS,
    }


def free(split: Split, rollout: int, lag: int) -> dict[str, Any]:
    """Production that is not held; a sample waits for `lag` updates, and is dropped then."""
    in_flight = math.ceil(split.n_actors / split.n_learners / max(1, BATCH_SAMPLES // rollout)) + 1
    return {"buffer_cfg.slack": SLACK_ROLLOUTS * rollout, "hyp.max_lag": max(lag, in_flight)}


def measure(split: Split, way: str, given: argparse.Namespace, seed: int) -> Row:
    """One run."""
    more = real_settings(given.envs, given.steps) if given.real else slept_settings()
    settings = split.settings(given.real) | more
    if way == UNPACED:
        rollout = given.envs * given.steps if given.real else ENVS * STEPS
        settings |= free(split, rollout, given.lag)
    found = train(JOBS / "ppo.py", settings, seed, given.seconds)
    return found | {"learned": found["consumption"] / found["production"]}


def slept_profile(learner_cores: int, n_cores: int) -> Profile:
    """The slept costs as `tianji plan` has measured ones.

    Each actor has poles of its own, and a batch as many samples whatever the number of actors: so
    it is left open here as in training from a pool, which holds a rollout of each.
    """
    updating = BATCH_SAMPLES * LEARNER_SECONDS / learner_cores
    work = Work(
        name="table1", digest="", steps=STEPS, batch=BATCH_SAMPLES, pool=n_cores * ENVS * STEPS,
        warmup=0, ratio=1.0, envs=ENVS, alternates=False, weights_bytes=0,
    )  # fmt: skip
    return Profile(
        Machine("costs that are slept", n_cores),
        work,
        (ActorCost(ENVS, STEP_SECONDS, 0.0, 0.0, 0, 0),),
        (LearnerCost(learner_cores, BATCH_SAMPLES, updating, 0.0, 0),),
    )


def planned(n_learners: int, learner_cores: int, n_cores: int = CORES) -> Split:
    """What the solver of `tianji plan` chooses for slept costs, groups and learners as given."""
    n_cores = max(n_cores, n_learners * (learner_cores + 1))
    wish = PlanRequest(n_cores, groups=n_learners, learner_cores=learner_cores)
    best = solve(slept_profile(learner_cores, n_cores), wish)[0].split
    return Split(n_learners, n_learners * best.actors, learner_cores)


def table(rows: list[Row], way: str) -> str:
    """Medians, and below them a line for each run in the paper's format."""
    here = where(rows, way=way)
    names = values(here, "setting")
    more = ["learned from", "staleness mean", "learner idle", "offered(steps/s)", "dropped"]
    lines = [[n, *cells(where(here, setting=n), PAPERS | OURS)] for n in names]
    best = min(names, key=lambda n: spread(where(here, setting=n), "final_seconds").middle)
    runs = [
        [name if i == 0 else "", *(shown(row[c], digits) for c, digits in PAPERS.items())]
        for name in names
        for i, row in enumerate(where(here, setting=name))
    ]
    parts = [
        f"Table 1, {way}, {machine(here[0]['kind'])}: median (min-max)",
        markdown([*HEADER, *more], lines),
        f"The shortest final time is that of {best}. Production is what the actors made; "
        "*learned from* is the part of it that was consumed.",
        f"Table 1, {way}, {here[0]['kind']}: each run, as in the paper",
        markdown(HEADER, runs),
    ]
    return "\n\n".join(parts)


def tables(rows: list[Row]) -> str:
    """One for each way."""
    return "\n\n".join(table(rows, way) for way in values(rows, "way"))


def panels(rows: list[Row]) -> list[Panel]:
    """Final times of both ways, and the rates of each."""
    ways, settings, kind = values(rows, "way"), values(rows, "setting"), rows[0]["kind"]

    def points(way: str, column: str) -> list[tuple[float | str, Spread]]:
        found = [(s, where(rows, setting=s, way=way)) for s in settings]
        return [(setting, spread(runs, column)) for setting, runs in found if runs]

    time = Panel(f"Figure 12b: final time ({kind})", "learners and actors", "seconds to 300")
    time.series = [Series(way, points(way, "final_seconds")) for way in ways]
    drawn = [time]
    for way in ways:
        title = f"Table 1: throughput, {way} ({kind})"
        panel = Panel(title, "learners and actors", "steps per second")
        names = ("production", "consumption", "offered")
        panel.series = [Series(n, points(way, n), is_dashed=n == "offered") for n in names]
        drawn.append(panel)
    return drawn


def runs_of(given: argparse.Namespace) -> list[tuple[Split, str]]:
    """Every split in every way, but no way twice that would be the same run."""
    actors = given.actors or ([2, 8] if given.quick else list(ACTORS))
    splits = [Split(given.learners, n, given.learner_cores) for n in actors]
    splits = [split for split in splits if fits(split, split.n_cores, given.real)]
    pairs = [(split, way) for split in splits for way in given.ways]
    if given.real or UNPACED not in given.ways:
        return pairs
    best = planned(given.learners, given.learner_cores)
    print(f"planned: {best}; with fewer actors nothing is held", flush=True)
    return [pair for pair in pairs if pair[1] == UNPACED or pair[0].n_actors >= best.n_actors]


def main() -> int:
    options = parser("table1", __doc__, seconds=60)
    options.add_argument("--real", action="store_true", help="real costs, as far as cores go")
    options.add_argument("--actors", type=count, nargs="+", help="in all; default: 2 4 8 16 24")
    options.add_argument("--learners", type=count, default=2)
    options.add_argument("--learner-cores", type=count, default=4)
    options.add_argument("--ways", nargs="+", choices=(PACED, UNPACED), default=[UNPACED, PACED])
    options.add_argument(
        "--lag", type=count, default=LAG, help=f"updates that a sample may wait, unpaced ({LAG})"
    )
    options.add_argument("--envs", type=count, default=1, help="per actor, with --real")
    options.add_argument("--steps", type=count, default=256, help="per rollout, with --real")
    given = options.parse_args()
    try:
        runs = runs_of(given)
    except ValueError as problem:
        options.error(f"argument --actors: {problem}")

    def trials(seed: int) -> Iterator[Trial]:
        for split, way in runs:
            row = {"kind": kind_of(given.real), "way": way, "setting": str(split)}
            yield row, measure, (split, way, given, seed)

    return conduct("table1", COLUMNS, given, trials, tables, panels)


if __name__ == "__main__":
    sys.exit(main())
