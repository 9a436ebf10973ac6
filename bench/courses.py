"""Experiments that look at returns and rates in the course of time: `figure4.py`, `9` and `11`."""

from __future__ import annotations

import argparse
import csv
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from beside import add_cores_each, conduct_trials
from curves import STEPS, Training, training_of
from experiment import Sheet, Trial, seeds_of
from figures import Course, Panel, Series
from measures import Spread
from options import CONFIGS, OUT, Options, count, positive
from tables import cells, markdown, values, where
from trainings import Row, busy_share

GAMES = ("pong", "breakout", "beamrider", "assault", "boxing")
NAMES = {"beamrider": "BeamRider"}  # where a game is not written like any other name
REFERENCE = {  # random play, a human, and CleanRL's PPO after 10 M steps
    "pong": (-20.7, 14.6, None),
    "breakout": (1.7, 30.5, 430),
    "beamrider": (363.9, 16926.5, 2478),
    "assault": (222.4, 742, 6792),
    "boxing": (0.1, 12.1, 92.7),
}
RETURN, LEARNED = "rollout/ep_rew_mean", "rollout/learned_return"
CONSUMPTION = "balance/consumption"
METRICS = (RETURN, LEARNED, CONSUMPTION)
COLUMNS = {  # with their digits
    "last": 1, "best": 1, "target_seconds": 0, "env_steps": 0, "production": 0, "consumption": 0,
}  # fmt: skip
HEADS = ("last mean of 100", "best", "to the target, s", "steps", "steps/s", "samples/s")
N_POINTS = 100  # of a line


@dataclass(frozen=True)
class Case:
    """A line of the plot: what is trained, and with what."""

    game: str
    system: str
    config: Path
    settings: tuple[str, ...] = ()


def name_of(game: str) -> str:
    """As configs write it."""
    return NAMES.get(game, game.capitalize())


def preset(kind: str, game: str) -> Path:
    """A file of configs/atari/."""
    return CONFIGS / "atari" / f"{kind}_{game}.py"


def options(name: str, description: str | None, seconds: float) -> Options:
    """Those that all have."""
    parser = Options(description)
    parser.add_seeds(default=None)
    parser.add_argument("--repeats", type=count, help="the same as --seeds 1 .. N")
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument(
        "--seconds", type=positive, default=seconds, help=f"that every run trains ({seconds:g})"
    )
    parser.add_argument("--total", type=positive, default=math.inf, help="seconds for all runs")
    parser.add_argument("--set", action="append", default=[], help="key=value, of every run")
    add_cores_each(parser)
    parser.add_out(OUT / name, "folder of table, CSV files and plot")
    return parser


def measure(case: Case, seed: int, o: argparse.Namespace) -> Row:
    """One run, with its curves."""
    foreign = busy_share()
    done = training_of(case.config, [*case.settings, *o.set], o.seconds, seed)
    return row_of(done) | {"foreign_load": foreign}


def row_of(done: Training) -> Row:
    """The columns of a run, and its curves."""
    summary = done.summary
    mean = summary["mean_return_100"]
    return {
        "last": math.nan if mean is None else mean,
        "best": done.best(),
        "target_seconds": done.final_seconds if summary["stop_return"] is not None else math.nan,
        "env_steps": summary["env_steps"],
        "production": summary["production_per_second"],
        "consumption": summary["consumption_per_second"],
        "curves": {name: done.curve(name) for name in METRICS},
        "by_steps": {name: done.curve(name, STEPS) for name in METRICS},
    }


def conduct(
    name: str, cases: Sequence[Case], o: argparse.Namespace, about: str, over: str = "seconds"
) -> int:
    """Runs every case with every seed; writes rows, curves, table and plot."""
    sheet = Sheet(o.out, name, ("game", "system", "seed", *COLUMNS, "foreign_load"), o.total)
    with sheet:
        conduct_trials(sheet, trials(cases, o), o.cores_each)
    write_curves(sheet.rows, o.out / f"{name}.curves.csv")
    return sheet.finish(lambda rows: table(rows, about), lambda rows: panels(rows, over))


def trials(cases: Sequence[Case], o: argparse.Namespace) -> Iterator[Trial]:
    """Every case with every seed."""
    for seed in seeds_of(o):
        for case in cases:
            row = {"game": case.game, "system": case.system, "seed": seed}
            yield row, measure, (case, seed, o)


def write_curves(rows: Iterable[Row], path: Path) -> None:
    """Every point of every curve."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("game", "system", "seed", "metric", "seconds", "env_steps", "value"))
        for row in rows:
            about = row["game"], row["system"], row["seed"]
            for metric, points in row["curves"].items():
                for (seconds, value), (steps, _) in zip(
                    points, row["by_steps"][metric], strict=True
                ):
                    writer.writerow((*about, metric, seconds, steps, value))


def table(rows: list[Row], about: str) -> str:
    """Medians and ranges of every line, beside returns that others report."""
    lines = []
    for game in values(rows, "game"):
        known = ("-" if value is None else f"{value:,g}" for value in REFERENCE[game])
        random, human, cleanrl = known
        for system in values(where(rows, game=game), "system"):
            found = where(rows, game=game, system=system)
            own = [name_of(game), system, str(len(found)), *cells(found, COLUMNS)]
            lines.append([*own, random, human, cleanrl])
    others = ("random", "human", "CleanRL's PPO, 10 M steps")
    return f"{about}\n\n{markdown(('game', 'system', 'runs', *HEADS, *others), lines)}"


def panels(rows: list[Row], over: str = "seconds") -> list[Panel | Course]:
    """Of every game the return over seconds or steps, and what is learned from per second."""
    drawn: list[Panel | Course] = []
    for game in values(rows, "game"):
        mine = where(rows, game=game)
        lines = {
            system: course(where(mine, system=system), over) for system in values(mine, "system")
        }
        random, human, _ = REFERENCE[game]
        levels = [(random, "random"), (human, "human")]
        drawn.append(Course(name_of(game), over, "mean return of 100 games", lines, levels))
    bars = [
        Series(system, [(name_of(game), Spread.of(r["consumption"] for r in found))
                        for game in values(rows, "game")
                        if (found := where(rows, game=game, system=system))])
        for system in values(rows, "system")
    ]  # fmt: skip
    return [*drawn, Panel("Consumption", "", "samples/s", bars, is_bars=True)]


def course(rows: Iterable[Row], over: str = "seconds") -> list[tuple[float, Spread]]:
    """Median and range of the returns of several runs at equal distances in time, or in steps."""
    found_in = "curves" if over == "seconds" else "by_steps"
    return line_of(row[found_in][RETURN] for row in rows)


def line_of(runs: Iterable[Sequence[tuple[float, float]]]) -> list[tuple[float, Spread]]:
    """Median and range of what several runs had at equal distances.

    A run has its last value from its end on, and none before its first.
    """
    curves = [points for points in runs if points]
    if not curves:
        return []
    end = max(points[-1][0] for points in curves)
    found = []
    for i in range(N_POINTS + 1):
        seconds = end * i / N_POINTS
        places = [(bisect_right(points, (seconds, math.inf)), points) for points in curves]
        now = [points[place - 1][1] for place, points in places if place]
        if now:
            found.append((seconds, Spread.of(now)))
    return found
