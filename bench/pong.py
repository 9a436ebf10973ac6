"""Pong to a mean of 18 on two cores: configs/atari/pong_laptop.py beside a plain loop.

With `--systems dqn pqn` also pong_laptop_dqn.py and pong_laptop_pqn.py, of which nothing is asked.
Runs are interleaved, seed by seed. Asked: at most 120 s from process start on a quiet machine, and
at most 0.7 of the plain loop's time.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

from beside import add_cores_each, conduct_trials
from curves import Training, has_atari, training_of
from experiment import Sheet, Trial, seeds_of
from figures import Panel, Series
from measures import Spread, ratio_interval
from options import BENCH, CONFIGS, OUT, Options, count, positive
from tables import cells, markdown, values, where
from trainings import START_SECONDS, Row, busy_share, execute, peer_line

ASKED, ASKED_SECONDS = 0.7, 120
COLUMNS = {  # with their digits
    "seconds": 1, "mean_return": 1, "env_steps": 0, "cpu_seconds": 0, "samples_per_second": 0,
    "steps_per_second": 0,
}  # fmt: skip
HEADS = (
    "from process start, s",
    "mean of 100 games",
    "steps",
    "CPU-seconds",
    "samples/s",
    "steps/s",
)


def spent() -> float:
    """CPU-seconds of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ours(seed: int, o: argparse.Namespace) -> Row:
    """A run of the preset."""
    return preset("pong_laptop.py", seed, o)


def pqn(seed: int, o: argparse.Namespace) -> Row:
    """The same frames, learned from by PQN."""
    return preset("pong_laptop_pqn.py", seed, o)


def dqn(seed: int, o: argparse.Namespace) -> Row:
    """The same frames, learned from by DQN."""
    return preset("pong_laptop_dqn.py", seed, o)


def preset(name: str, seed: int, o: argparse.Namespace) -> Row:
    """A run of one of ours."""
    return row_of(training_of(CONFIGS / "atari" / name, o.set, o.seconds, seed))


def row_of(done: Training) -> Row:
    """What the table needs of a run of ours."""
    mean = done.summary["mean_return_100"]
    return {
        "seconds": done.process_seconds,
        "mean_return": math.nan if mean is None else mean,
        "env_steps": done.summary["env_steps"],
        "samples_per_second": done.summary["consumption_per_second"],
        "steps_per_second": done.summary["production_per_second"],
    }


def plain(seed: int, o: argparse.Namespace) -> Row:
    """A run of the loop."""
    words = [
        sys.executable, str(BENCH / "plain_pong.py"), "--seed", str(seed),
        "--threads", str(o.threads or len(os.sched_getaffinity(0))),
        "--max-seconds", str(o.seconds),
    ]  # fmt: skip
    line = peer_line(execute(words, o.seconds + START_SECONDS)[0])
    return {
        "seconds": line["seconds_from_process_start"],
        "mean_return": line["mean_return"],
        "env_steps": line["env_steps"],
        "samples_per_second": line["steps_per_second"],
        "steps_per_second": line["steps_per_second"],
    }


SYSTEMS = {"ours": ours, "plain": plain, "dqn": dqn, "pqn": pqn}


def measured(system: str, seed: int, o: argparse.Namespace) -> Row:
    """A run, the CPU time that it took, and how quiet it was before."""
    foreign, before = busy_share(), spent()
    row = SYSTEMS[system](seed, o)
    return row | {"cpu_seconds": spent() - before, "foreign_load": foreign}


def table(rows: list[Row]) -> str:
    """Medians and ranges, and the ratio that is asked for."""
    lines = [
        [name, str(len(found)), *cells(found, COLUMNS)]
        for name in values(rows, "system")
        if (found := where(rows, system=name))
    ]
    return f"{markdown(('system', 'runs', *HEADS), lines)}\n\n{verdict(rows)}"


def verdict(rows: list[Row]) -> str:
    """Ours over the plain loop's, with an interval."""
    seconds = {
        name: [row["seconds"] for row in where(rows, system=name)] for name in ("ours", "plain")
    }
    if not all(seconds.values()):
        return "One system alone: no ratio."
    if math.inf in (Spread.of(each).middle for each in seconds.values()):
        return "No ratio: a median run did not reach 18 in its time."
    found = ratio_interval(seconds["ours"], seconds["plain"])
    return (
        f"Ours takes {found.text(2)} of the plain loop's time (asked: {ASKED}), "
        f"{Spread.of(seconds['ours']).text(0)} s (asked: {ASKED_SECONDS})."
    )


def panels(rows: list[Row]) -> list[Panel]:
    """Seconds and CPU-seconds of each system."""
    return [
        Panel(title, "", "seconds", [Series(column, points_of(rows, column))], is_bars=True)
        for title, column in (("Pong to 18", "seconds"), ("CPU time", "cpu_seconds"))
    ]


def points_of(rows: list[Row], column: str) -> list[Any]:
    return [
        (name, Spread.of(row[column] for row in where(rows, system=name)))
        for name in values(rows, "system")
    ]


def trials(o: argparse.Namespace) -> Iterator[Trial]:
    """Every system with every seed."""
    for seed in seeds_of(o):
        for system in o.systems:
            yield {"system": system, "seed": seed}, measured, (system, seed, o)


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=["ours", "plain"])
    parser.add_seeds()
    parser.add_argument("--seconds", type=positive, default=600.0, help="most that one run trains")
    parser.add_argument("--threads", type=count, help="of the plain loop; default: one per core")
    add_cores_each(parser)
    parser.add_argument("--set", action="append", default=[], help="key=value, for ours alone")
    parser.add_out(OUT / "pong")
    o = parser.parse_args()
    if not has_atari():
        return 2
    sheet = Sheet(o.out, "pong", ("system", "seed", *COLUMNS, "foreign_load"))
    with sheet:
        conduct_trials(sheet, trials(o), o.cores_each)
    return sheet.finish(table, panels)


if __name__ == "__main__":
    sys.exit(main())
