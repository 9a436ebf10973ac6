"""Table 1 and Figure 12b: final time, production and consumption of PPO against the actors.

Two groups of one learner (L2), 2 to 24 actors in all. By default costs are slept (simulated): a
step of 16 environments takes 10 ms, a learner consumes 5,700 samples per second. Two ways:

  paced    ours: production is held to what is consumed, nothing is lost
  unpaced  as the paper's system: actors go on (buffer_cfg.slack), and what has become too old in
           the meantime is dropped, and counted

`offered` is what the actors would make if they were never paced. `--real` takes CartPole as it is,
one environment per actor, and learners with `--learner-cores` cores: for 16 cores and more.
"""

from __future__ import annotations

import os
import sys

from experiment import (
    JOBS,
    Row,
    Sheet,
    attempt,
    kind_of,
    machine,
    markdown,
    parser,
    seeds_of,
    spread,
    train,
    where,
)
from figures import Panel, Series
from measures import Spread, shown
from splits import Split

ACTORS = (2, 4, 8, 16, 24)
PACED, UNPACED = "paced", "unpaced"
SLACK_ROLLOUTS = 256  # that actors may be ahead, unpaced
COLUMNS = (
    "kind", "way", "setting", "seed", "final_seconds", "production", "consumption", "offered",
    "dropped", "env_steps", "staleness_mean", "staleness_p95", "learner_idle", "foreign_load",
)  # fmt: skip


def real_settings(n_envs: int, steps: int) -> dict[str, object]:
    """CartPole without sleep; a batch stays 2,048 samples."""
    return {
        "environment.gym_name": "CartPole-v1",
        "environment.kwargs": "dict()",
        "actor_cfg.envs": n_envs,
        "hyp.step_len": steps,
        "hyp.batch_size": max(1, 2048 // (n_envs * steps)),
    }


def table(rows: list[Row], way: str) -> str:
    """The paper's format: a line for each run, the setting beside the first of them."""
    header = ["Setting", "Final Time(s)", "Production Throughput(steps/s)",
              "Consumption Throughput(steps/s)", "offered(steps/s)", "dropped",
              "staleness mean"]  # fmt: skip
    lines = []
    for setting in dict.fromkeys(row["setting"] for row in rows):
        for i, row in enumerate(where(rows, setting=setting, way=way)):
            lines.append(
                [
                    setting if i == 0 else "",
                    shown(row["final_seconds"], 2),
                    *(shown(row[c], 2) for c in ("production", "consumption")),
                    *(shown(row[c], 0) for c in ("offered", "dropped")),
                    shown(row["staleness_mean"], 2),
                ]
            )
    return f"Table 1, {way}, {machine(rows[0]['kind'])}\n\n{markdown(header, lines)}"


def tables(rows: list[Row]) -> str:
    """One for each way."""
    return "\n\n".join(table(rows, way) for way in dict.fromkeys(row["way"] for row in rows))


def panels(rows: list[Row]) -> list[Panel]:
    """Final times of both ways, and the rates of each."""
    ways = list(dict.fromkeys(row["way"] for row in rows))
    kind, settings = rows[0]["kind"], list(dict.fromkeys(row["setting"] for row in rows))

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


def main() -> int:
    options = parser("table1", __doc__, seconds=90)
    options.add_argument("--real", action="store_true", help="real costs, as far as cores go")
    options.add_argument("--actors", type=int, nargs="+", help="in all; default: 2 4 8 16 24")
    options.add_argument("--learners", type=int, default=2)
    options.add_argument("--learner-cores", type=int, default=4)
    options.add_argument("--ways", nargs="+", choices=(PACED, UNPACED), default=[PACED, UNPACED])
    options.add_argument("--envs", type=int, default=1, help="per actor, with --real")
    options.add_argument("--steps", type=int, default=256, help="per rollout, with --real")
    given = options.parse_args()
    actors = given.actors or ([2, 8] if given.quick else list(ACTORS))
    splits = [Split(given.learners, n, given.learner_cores) for n in actors]
    if given.real:
        cores = len(os.sched_getaffinity(0))
        for split in [s for s in splits if s.n_cores > cores]:
            print(f"{split} is left out: it wants {split.n_cores} cores, {cores} are there")
        splits = [split for split in splits if split.n_cores <= cores]
    kind, sheet = kind_of(given.real), Sheet(given.out, "table1", COLUMNS, given.total)
    rows_of_rollout = given.envs * given.steps if given.real else 512
    with sheet:
        for seed in seeds_of(given):
            for split in splits:
                for way in given.ways:
                    settings = split.settings(given.real)
                    settings |= real_settings(given.envs, given.steps) if given.real else {}
                    if way == UNPACED:
                        settings["buffer_cfg.slack"] = SLACK_ROLLOUTS * rows_of_rollout
                    row = {"kind": kind, "way": way, "setting": str(split), "seed": seed}
                    attempt(sheet, row, train, JOBS / "ppo.py", settings, seed, given.seconds)
    return sheet.finish(tables, panels)


if __name__ == "__main__":
    sys.exit(main())
