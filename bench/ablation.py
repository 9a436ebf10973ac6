"""Figure 6d: a good and a bad split of the cores, each with new and with old samples, PPO.

The two splits use the same number of cores: L2A8 is the paper's best, with four cores for each of
two learners; L1A14 is its random one, with two cores for the only learner. New: a batch is all that
there is (1:1). Staleness: a batch is drawn from a pool of eight (1:8). By default costs are slept
(simulated), as in table1.py; `--real` takes CartPole as it is, for 16 cores.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from experiment import Trial, conduct, kind_of, machine, parser
from figures import Panel, Series
from options import count
from splits import Split
from table1 import BATCH_SAMPLES, real_settings
from tables import cells, markdown, spread, values, where
from trainings import JOBS, Row, train

SAMPLES = {"New 1:1": 1, "Staleness 1:8": 8}
COLUMNS = (
    "kind", "mapping", "setting", "samples", "seed", "final_seconds", "production", "consumption",
    "freshness", "staleness_mean", "learner_idle", "env_steps", "dropped", "foreign_load",
)  # fmt: skip
DIGITS = {"final_seconds": 1, "consumption": 0, "freshness": 3, "staleness_mean": 2}


def two_way(rows: list[Row], column: str, digits: int) -> str:
    """Mapping down, samples across."""
    header = ["", *SAMPLES]
    lines = []
    for mapping in values(rows, "mapping"):
        found = [where(rows, mapping=mapping, samples=name) for name in SAMPLES]
        setting = where(rows, mapping=mapping)[0]["setting"]
        line = [spread(runs, column).text(digits) if runs else "-" for runs in found]
        lines.append([f"{mapping} ({setting})", *line])
    return markdown(header, lines)


def table(rows: list[Row]) -> str:
    """Two two-way tables, and everything that was measured below."""
    lines = [
        [mapping, name, *cells(runs, DIGITS)]
        for mapping in values(rows, "mapping")
        for name in SAMPLES
        if (runs := where(rows, mapping=mapping, samples=name))
    ]
    header = ["mapping", "samples", "final time s", "consumed/s", "freshness", "staleness mean"]
    parts = [
        f"Figure 6d, PPO on CartPole to 300, {machine(rows[0]['kind'])}",
        "Final time in seconds, median (min-max):",
        two_way(rows, "final_seconds", 1),
        "Training throughput, samples per second:",
        two_way(rows, "consumption", 0),
        markdown(header, lines),
    ]
    return "\n\n".join(parts)


def panels(rows: list[Row]) -> list[Panel]:
    """Bars: mappings side by side, for both kinds of samples."""
    kind, drawn = rows[0]["kind"], []
    for title, column, unit in (
        ("final time", "final_seconds", "seconds to 300"),
        ("training throughput", "consumption", "samples per second"),
    ):
        panel = Panel(f"Figure 6d: {title} ({kind})", "samples", unit, is_bars=True)
        for mapping in values(rows, "mapping"):
            found = [(name, where(rows, mapping=mapping, samples=name)) for name in SAMPLES]
            points = [(name, spread(runs, column)) for name, runs in found if runs]
            panel.series.append(
                Series(f"{mapping} {where(rows, mapping=mapping)[0]['setting']}", points)
            )
        drawn.append(panel)
    return drawn


def main() -> int:
    options = parser("ablation", __doc__, seconds=90)
    options.add_argument("--real", action="store_true", help="real costs: wants 16 cores")
    options.add_argument("--best", type=Split.read, default=Split(2, 8, 4), help="L2A8x4")
    options.add_argument("--bad", type=Split.read, default=Split(1, 14, 2), help="L1A14x2")
    options.add_argument("--envs", type=count, default=1, help="per actor, with --real")
    options.add_argument("--steps", type=count, default=256, help="per rollout, with --real")
    given = options.parse_args()
    rollout = given.envs * given.steps if given.real else 512

    def trials(seed: int) -> Iterator[Trial]:
        for mapping, split in (("best", given.best), ("bad", given.bad)):
            for name, lag in SAMPLES.items():
                settings = split.settings(given.real)
                settings |= real_settings(given.envs, given.steps) if given.real else {}
                if lag > 1:
                    settings["hyp.buffer_size"] = lag * max(1, BATCH_SAMPLES // rollout)
                about = {"kind": kind_of(given.real), "setting": f"{split}-C{split.n_cores}"}
                row = about | {"mapping": mapping, "samples": name}
                yield row, train, (JOBS / "ppo.py", settings, seed, given.seconds)

    return conduct("ablation", COLUMNS, given, trials, table, panels)


if __name__ == "__main__":
    sys.exit(main())
