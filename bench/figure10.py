"""Figure 10: greedy win rates over time of QMIX, VDN and MAPPO on SMAX maps, and QMIX serially.

SMAX is JaxMARL's game in the manner of StarCraft II, which cannot be had everywhere: its win rates
are not SMAC's. "QMIX serial" is the same task with the same seeds in one process, step by step.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from beside import add_cores_each, conduct_trials
from courses import line_of
from curves import STEPS, Training, training_of
from experiment import Sheet, Trial, parser, seeds_of
from figures import Course
from measures import ratio_interval
from options import CONFIGS, count
from tables import cells, markdown, values, where
from trainings import Row, busy_share

MAPS = ("3m", "2s3z", "8m")
QMIX, MAPPO = CONFIGS / "marl" / "fast_qmix_smax_3m.py", CONFIGS / "marl" / "mappo_smax_3m.py"
SERIALLY = ("global_cfg.use_comm_parallel=False", "buffer_cfg.slack=0")
WON, OVER_TIME, OVER_STEPS = "eval/win_ratio", "won over seconds", "won over steps"
LEVELS = (0.7, 0.9)  # shares of games won
COLUMNS = {  # with their digits
    "best": 2, "last": 2, "seconds_70": 0, "seconds_90": 0, "steps_70": 0, "steps_90": 0,
    "env_steps": 0, "production": 0, "consumption": 0,
}  # fmt: skip
HEADS = (
    "most won", "won last", "s to .7", "s to .9", "steps to .7", "steps to .9", "steps",
    "steps/s", "samples/s",
)  # fmt: skip


@dataclass(frozen=True)
class System:
    """What is trained, and with what."""

    config: Path
    settings: tuple[str, ...] = ()


SYSTEMS = {
    "QMIX": System(QMIX),
    "VDN": System(QMIX, ("agent.type=VDN",)),
    "MAPPO": System(MAPPO),
    "QMIX serial": System(QMIX, SERIALLY),
}


def measure(system: System, map_name: str, seed: int, o: argparse.Namespace) -> Row:
    """One run; nothing ends it before its time."""
    foreign = busy_share()
    settings = [
        *system.settings, f"environment.map_name={map_name}", "exp.stop_win_ratio=None",
        "exp.train_steps=1_000_000_000", f"exp.eval_step={o.every}", *o.set,
    ]  # fmt: skip
    return row_of(training_of(system.config, settings, o.seconds, seed)) | {"foreign_load": foreign}


def row_of(done: Training) -> Row:
    """The columns of a run, and how often its greedy policy won in the course of it."""
    over_time, over_steps = done.curve(WON), done.curve(WON, STEPS)
    row: Row = {
        "best": max((won for _, won in over_time), default=math.nan),
        "last": over_time[-1][1] if over_time else math.nan,
        "env_steps": done.summary["env_steps"],
        "production": done.summary["production_per_second"],
        "consumption": done.summary["consumption_per_second"],
        "curves": {OVER_TIME: over_time, OVER_STEPS: over_steps},
    }
    for level in LEVELS:
        for name, points in (("seconds", over_time), ("steps", over_steps)):
            first = next((x for x, won in points if won >= level), math.inf)
            row[f"{name}_{100 * level:.0f}"] = first
    return row


def table(rows: list[Row], seconds: float) -> str:
    """Medians and ranges of every system on every map, and distributed over serial QMIX."""
    lines = [
        [f"{map_name} (SMAX)", system, str(len(found)), *cells(found, COLUMNS)]
        for map_name in MAPS
        for system in values(rows, "system")
        if (found := where(rows, map=map_name, system=system))
    ]
    cores = len(os.sched_getaffinity(0))
    title = f"Figure 10 on SMAX, which is not SMAC: {seconds:g} s a run, {cores} cores, real costs."
    said = [verdict(where(rows, map=map_name), map_name) for map_name in MAPS]
    text = f"{title}\n\n{markdown(('map', 'system', 'runs', *HEADS), lines)}"
    return "\n\n".join([text, *filter(None, said)])


def verdict(rows: list[Row], map_name: str) -> str:
    """How much of the serial loop's time the distributed one took to the same win rate."""
    for level in reversed(LEVELS):
        column = f"seconds_{100 * level:.0f}"
        ours, serial = (
            [row[column] for row in where(rows, system=name)] for name in ("QMIX", "QMIX serial")
        )
        if ours and serial and math.inf not in (*ours, *serial):
            found = ratio_interval(ours, serial).text(2)
            return f"{map_name}: QMIX distributed took {found} of the serial time to {level:g}."
    return ""


def panels(rows: list[Row]) -> list[Course]:
    """The share of games won over seconds and over environment steps, of every map."""
    drawn = []
    for map_name in values(rows, "map"):
        mine = where(rows, map=map_name)
        for label, metric in (("seconds", OVER_TIME), ("environment steps", OVER_STEPS)):
            lines = {
                name: line_of(row["curves"][metric] for row in where(mine, system=name))
                for name in values(mine, "system")
            }
            drawn.append(Course(f"{map_name} (SMAX)", label, "greedy games won", lines))
    return drawn


def trials(o: argparse.Namespace) -> Iterator[Trial]:
    """Every system on every map, seed by seed."""
    for seed in seeds_of(o):
        for map_name in o.maps:
            for name in o.systems:
                row = {"map": map_name, "system": name, "seed": seed}
                yield row, measure, (SYSTEMS[name], map_name, seed, o)


def write_curves(rows: list[Row], path: Path) -> None:
    """Every evaluation of every run."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("map", "system", "seed", "seconds", "env_steps", "won"))
        for row in rows:
            both = zip(row["curves"][OVER_TIME], row["curves"][OVER_STEPS], strict=True)
            about = row["map"], row["system"], row["seed"]
            writer.writerows((*about, seconds, steps, won) for (seconds, won), (steps, _) in both)


def main() -> int:
    options = parser("figure10", __doc__, seconds=180)
    options.add_argument("--maps", nargs="+", choices=MAPS, default=["3m"])
    options.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    options.add_argument("--every", type=count, default=100_000, help="steps between evaluations")
    options.add_argument("--set", action="append", default=[], help="key=value, of every run")
    add_cores_each(options)
    o = options.parse_args()
    if find_spec("jaxmarl") is None:  # 600 MB: an extra that not everybody has
        print("JaxMARL is not installed: pip install 'tianji[smax]'", file=sys.stderr)
        return 2
    sheet = Sheet(o.out, "figure10", ("map", "system", "seed", *COLUMNS, "foreign_load"), o.total)
    with sheet:
        conduct_trials(sheet, trials(o), o.cores_each)
    write_curves(sheet.rows, o.out / "figure10.curves.csv")
    return sheet.finish(lambda rows: table(rows, o.seconds), panels)


if __name__ == "__main__":
    sys.exit(main())
