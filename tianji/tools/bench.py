"""One configuration trained with several seeds: how good, how surely and how fast."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tianji import __version__
from tianji.config import load
from tianji.core import atomic_file, stats
from tianji.core.columns import fitted
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_json
from tianji.job.preflight import try_out
from tianji.runs.run import SUMMARY
from tianji.tools import child_run

FILE = "bench.json"
COLUMNS = {  # of `bench.csv`: the key of a run's summary that each is
    "seed": "seed",
    "status": "status",
    "mean_return": "mean_return_100",
    "win_ratio": "win_ratio_100",  # None where games cannot be won
    "seconds_to_target": "final_time_seconds",
    "env_steps": "env_steps",
    "updates": "updates",
    "steps_per_second": "production_per_second",
    "wall_seconds": "wall_seconds",
}
HEAD = ("seed", "status", "return", "won", "s to target", "steps", "updates", "steps/s", "s in all")
LEAST = ("s in all", "updates", "steps")  # the first to go where room is scarce
Row = dict[str, Any]


def make_folder(folder: Path, config: str, overrides: Sequence[str], engine: str) -> Row:
    """Makes the folder, or takes one of the same settings, whose runs are kept; the settings."""
    content = try_out(load(config, overrides)).config.to_json()
    content["exp"].pop("seed")
    settings = {"config": config, "engine": engine, "content": json.loads(json.dumps(content))}
    if child_run.opened(folder) and read_json(folder / FILE).get("settings") != settings:
        raise TianJiError(
            f"--out {folder}: what is in it was not made by `tianji bench` with this configuration "
            "and engine: name a new folder"
        )
    return settings


def train_all(
    settings: Row,
    overrides: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    done: Callable[[list[Row]], None],
) -> None:
    """Trains with one seed after the other; `done` gets all rows so far after each."""
    rows: list[Row] = []
    done(rows)
    for seed in seeds:
        place = folder / f"seed-{seed}"
        if not child_run.is_done(place):
            own = [*overrides, f"exp.seed={seed}"]
            child_run.train(settings["config"], own, settings["engine"], place, os.environ)
        summary = read_json(place / SUMMARY)
        rows.append({name: summary.get(key) for name, key in COLUMNS.items()})
        done(rows)


def aggregate(rows: Sequence[Row]) -> Row:
    """Over all seeds: IQM of returns and of wins, median time to the target and median speed.

    The 95 % bootstrap interval of the IQM is stretched as few values demand; one seed has none. A
    seed that never reached the target counts as infinitely slow, so a median may be None.
    """
    returns = [row["mean_return"] for row in rows if row["mean_return"] is not None]
    found: Row = {"seeds": len(rows), "iqm": stats.iqm(returns) if returns else None}
    found |= {"low": None, "high": None}
    if len(returns) > 1:
        middle, low, high = stats.stratified([returns])
        wider = stats.few(len(returns))
        found["low"] = middle - wider * (middle - low)
        found["high"] = middle + wider * (high - middle)
    wins = [row["win_ratio"] for row in rows if row["win_ratio"] is not None]
    found["win_ratio"] = stats.iqm(wins) if wins else None
    times = [row["seconds_to_target"] for row in rows]
    found["solved"] = sum(each is not None for each in times)
    median = statistics.median(math.inf if each is None else each for each in times)
    found["seconds_to_target"] = median if math.isfinite(median) else None
    speeds = [row["steps_per_second"] for row in rows if row["steps_per_second"] is not None]
    found["steps_per_second"] = statistics.median(speeds) if speeds else None
    return found


def write(folder: Path, settings: Row, rows: Sequence[Row]) -> list[Path]:
    """Writes `bench.json` and `bench.csv`; returns where they are."""
    total = aggregate(rows) if rows else None
    content = {"tianji": __version__, "settings": settings, "runs": rows, "all": total}
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    texts = {FILE: json.dumps(content, indent=1) + "\n", "bench.csv": table.getvalue()}
    for name, text in texts.items():
        atomic_file.write(folder / name, text)
    return [folder / name for name in texts]


def table(rows: Sequence[Row], width: int | None = None) -> str:
    """A line for each seed, and one for all of them; what was won where games can be won."""
    found = aggregate(rows)
    shown = [
        [str(row["seed"]), str(row["status"]), *_cells(list(row.values())[2:])] for row in rows
    ]
    iqm, won, seconds, speed = _cells(
        found[key] for key in ("iqm", "win_ratio", "seconds_to_target", "steps_per_second")
    )
    solved = f"{found['solved']} of {len(rows)} solved"
    lines = [list(HEAD), *shown, ["all", solved, iqm, won, seconds, "", "", speed, ""]]
    if found["win_ratio"] is None:
        for line in lines:
            del line[HEAD.index("won")]
    return "\n".join(fitted(lines, width, left=(0, 1), least=LEAST))


def sentence(rows: Sequence[Row]) -> str:
    """What the last line of the table is made of."""
    found = aggregate(rows)
    said = f"IQM of the returns {_number(found['iqm'])}"
    if found["low"] is not None:
        said += f", 95 % interval {_number(found['low'])} to {_number(found['high'])}"
    if found["win_ratio"] is not None:
        said += f"; of the shares of games won {_number(found['win_ratio'])}"
    return f"{said}; medians of s to target and steps/s."


def _cells(values: Iterable[float | None]) -> list[str]:
    return [_number(value) for value in values]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    whole = value == round(value) or abs(value) >= 1_000
    return f"{value:,.0f}" if whole else f"{value:,.2f}"
