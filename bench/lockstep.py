"""QMIX in processes that never wait, beside our serial loop and one in lockstep: both rates.

The same task, network and replay ratio, one after the other, seed by seed. Lockstep is one process
per environment, as EPyMARL's parallel runner has it (`lockstep_loop.py`). Asked: at least 5 times
the steps/s of lockstep.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from curves import training_of
from experiment import REAL, Trial, conduct, machine, parser
from figures import Panel, Series
from measures import ratio_interval
from options import BENCH, CONFIGS, count
from tables import cells, markdown, spread, values, where
from trainings import START_SECONDS, Row, busy_share, execute

ASKED = 5.0
TASKS = {"smax": ("fast_qmix_smax_3m.py", "jaxmarl"), "lbf": ("fast_qmix_lbf.py", "lbforaging")}
SERIALLY = ("global_cfg.use_comm_parallel=False", "buffer_cfg.slack=0")
SYSTEMS = ("processes", "serial", "lockstep")
DIGITS = {"steps_per_second": 0, "samples_per_second": 0}
COLUMNS = ("kind", "task", "system", "seed", *DIGITS, "foreign_load")


def ours(config: Path, settings: tuple[str, ...], seed: int, o: argparse.Namespace) -> Row:
    """A run of TianJi, from when all roles are ready; it evaluates nothing."""
    foreign = busy_share()
    said = [*settings, "exp.eval_step=None", "exp.stop_return=1e9", *o.set]
    done = training_of(config, [*said, "exp.train_steps=1_000_000_000"], o.seconds, seed).summary
    return {
        "steps_per_second": done["production_per_second"],
        "samples_per_second": done["consumption_per_second"],
        "foreign_load": foreign,
    }


def lockstep(config: Path, seed: int, o: argparse.Namespace) -> Row:
    """A run of the loop, from its first update on."""
    foreign = busy_share()
    words = [sys.executable, str(BENCH / "lockstep_loop.py"), str(config), "--seed", str(seed)]
    words += ["--envs", str(o.envs), "--seconds", str(o.seconds)]
    words += [word for setting in o.set for word in ("--set", setting)]
    limit = o.seconds + 5 * START_SECONDS  # every environment has to start, and to warm up
    line = json.loads(execute(words, limit, OMP_NUM_THREADS="1")[0].strip().splitlines()[-1])
    return line | {"foreign_load": foreign}


def table(rows: list[Row]) -> str:
    """Medians and ranges, and how many times as much the processes make."""
    lines = [
        [task, system, str(len(found)), *cells(found, DIGITS)]
        for task in values(rows, "task")
        for system in SYSTEMS
        if (found := where(rows, task=task, system=system))
    ]
    text = markdown(("task", "system", "runs", "environment steps/s", "samples/s"), lines)
    said = [line for task in values(rows, "task") for line in ratios(where(rows, task=task), task)]
    return "\n\n".join([f"QMIX, {machine(REAL)}", text, *said])


def ratios(rows: list[Row], task: str) -> Iterator[str]:
    """Of the processes over each of the others."""
    for other in SYSTEMS[1:]:
        for column in DIGITS:
            mine, theirs = (
                [row[column] for row in where(rows, system=name)] for name in (SYSTEMS[0], other)
            )
            if mine and theirs:
                asked = f" (asked: {ASKED:g})" if other == "lockstep" else ""
                found = ratio_interval(mine, theirs).text(1)
                yield f"{task}, {column.replace('_', ' ')}: {found} times those of {other}{asked}."


def panels(rows: list[Row]) -> list[Panel]:
    """Both rates of every system."""
    drawn = []
    for column in DIGITS:
        series = [
            Series(system, [(task, spread(found, column)) for task in values(rows, "task")
                            if (found := where(rows, task=task, system=system))])
            for system in values(rows, "system")
        ]  # fmt: skip
        label = column.replace("_", " ")
        drawn.append(Panel(f"QMIX: {label} (real)", "task", label, series, is_bars=True))
    return drawn


def main() -> int:
    options = parser("lockstep", __doc__, seconds=30)
    options.add_argument("--tasks", nargs="+", choices=TASKS, default=["smax"])
    options.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options.add_argument("--envs", type=count, default=8, help="processes in lockstep (8)")
    options.add_argument("--set", action="append", default=[], help="key=value, of every run")
    o = options.parse_args()
    missing = [TASKS[task][1] for task in o.tasks if find_spec(TASKS[task][1]) is None]
    if missing:
        print(f"{missing[0]} is not installed: pip install 'tianji[smax,lbf]'", file=sys.stderr)
        return 2

    def trials(seed: int) -> Iterator[Trial]:
        for task in o.tasks:
            config = CONFIGS / "marl" / TASKS[task][0]
            for system in o.systems:
                row: Row = {"kind": REAL, "task": task, "system": system}
                if system == "lockstep":
                    yield row, lockstep, (config, seed, o)
                else:
                    yield row, ours, (config, SERIALLY if system == "serial" else (), seed, o)

    return conduct("lockstep", COLUMNS, o, trials, table, panels)


if __name__ == "__main__":
    sys.exit(main())
