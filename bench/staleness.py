"""Figure 12a: how long PPO learns from samples of which only 1/k is new (New, Lag2, Lag4, Lag8).

A batch is drawn without replacement from a pool of k batches; everything else stays. Real costs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from experiment import REAL, Trial, conduct, machine, parser
from figures import Panel, Series
from options import CONFIGS, count
from tables import cells, markdown, spread, values, where
from trainings import Row, train

COLUMNS = (
    "kind", "setting", "seed", "final_seconds", "env_steps", "updates", "freshness_target",
    "freshness", "staleness_mean", "staleness_p95", "production", "consumption", "foreign_load",
)  # fmt: skip
DIGITS = {"final_seconds": 2, "env_steps": 0, "freshness": 3, "staleness_mean": 2,
          "staleness_p95": 0, "consumption": 0}  # fmt: skip


def name_of(lag: int) -> str:
    """As the paper calls it."""
    return "New" if lag == 1 else f"Lag{lag}"


def table(rows: list[Row]) -> str:
    """A line for each lag, in the order in which they were run."""
    header = ["setting", "final time s", "env steps", "freshness", "staleness mean", "p95",
              "consumed/s"]  # fmt: skip
    names = values(rows, "setting")
    lines = [[name, *cells(where(rows, setting=name), DIGITS)] for name in names]
    title = f"Figure 12a, PPO on CartPole to a mean return of 300, {machine(REAL)}"
    return f"{title}\n\n{markdown(header, lines)}"


def panels(rows: list[Row]) -> list[Panel]:
    """Final time, steps until then, and what was measured of the samples' age."""
    names = values(rows, "setting")

    def series(column: str, name: str) -> Series:
        return Series(name, [(each, spread(where(rows, setting=each), column)) for each in names])

    time = Panel("Figure 12a: final time (real)", "pool", "seconds to 300", is_bars=True)
    time.series = [series("final_seconds", "median, min-max")]
    steps = Panel("Environment steps (real)", "pool", "steps to 300", is_bars=True)
    steps.series = [series("env_steps", "median, min-max")]
    age = Panel("Measured staleness (real)", "pool", "updates", is_bars=True)
    age.series = [series("staleness_mean", "mean"), series("staleness_p95", "95th percentile")]
    return [time, steps, age]


def main() -> int:
    options = parser("staleness", __doc__, seconds=60)
    options.add_argument("--lags", type=count, nargs="+", help="default: 1 2 4 8")
    given = options.parse_args()
    lags = given.lags or ([1, 8] if given.quick else [1, 2, 4, 8])
    config = CONFIGS / "cartpole_ppo.py"

    def trials(seed: int) -> Iterator[Trial]:
        for lag in lags:
            settings = {"hyp.buffer_size": lag, "exp.stop_return": 300}
            settings |= {"exp.save_seconds": None, "exp.train_steps": 10**9}
            row = {"kind": REAL, "setting": name_of(lag), "freshness_target": 1 / lag}
            yield row, train, (config, settings, seed, given.seconds)

    return conduct("staleness", COLUMNS, given, trials, table, panels)


if __name__ == "__main__":
    sys.exit(main())
