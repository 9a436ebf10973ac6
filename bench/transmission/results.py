"""What a run prints, and what it leaves in its folder: CSV, JSON and a plot."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import platform
import time
from pathlib import Path

from rich.table import Table

from tianji import __version__
from tianji.core import atomic_file
from transmission.drawing import draw
from transmission.parts import Measured
from transmission.plan import Plan
from transmission.rows import TITLES, Row, findings, knees


def write(folder: Path, plan: Plan, measured: Measured) -> list[Path]:
    """Writes `transmission.csv`, `.json` and `.svg`; returns where they are.

    Each is whole at all times: a run writes them after every part, and may be stopped meanwhile.
    """
    table = [row.to_json() for row in measured.rows]
    lines, picture = io.StringIO(newline=""), io.BytesIO()
    writer = csv.DictWriter(lines, list(table[0]) if table else ["part"])
    writer.writeheader()
    writer.writerows(table)
    draw(measured.rows).savefig(picture, format="svg")
    everything = {
        "tianji": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {
            "architecture": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "foreign_load": measured.foreign_load,
            "python": platform.python_version(),
        },
        "plan": dataclasses.asdict(plan),
        "done": measured.done,
        "rows": table,
        "knees": [
            {"part": part, "carrier": carrier, "asked_sample_seconds": seconds, "actors": actors}
            for (part, carrier, seconds), actors in knees(measured.rows).items()
        ],
        "findings": [dataclasses.asdict(each) for each in findings(measured.rows)],
        "skipped": measured.skipped,
    }
    said = json.dumps(everything, indent=1) + "\n"
    texts = {"csv": lines.getvalue(), "json": said, "svg": picture.getvalue()}
    for kind, content in texts.items():
        atomic_file.write(folder / f"transmission.{kind}", content)
    return [folder / f"transmission.{kind}" for kind in texts]


def tables(part: str, rows: list[Row]) -> list[Table]:
    """Those of one part: by use and size, or by carrier and number of actors."""
    rows = [row for row in rows if row.part == part]
    if part in "ad":
        uses = dict.fromkeys(row.use for row in rows)
        return [_by_size(part, [row for row in rows if row.use == use]) for use in uses]
    carriers = dict.fromkeys(row.carrier for row in rows)
    return [_by_actors(part, [row for row in rows if row.carrier == name]) for name in carriers]


def _by_size(part: str, rows: list[Row]) -> Table:
    """A line for each size: the limit, every carrier, and how near the first of ours comes."""
    names = list(dict.fromkeys(row.carrier for row in rows))
    ours = next((name for name in ("shm", "mpi") if name in names), names[0])
    more = [f"{ours} of it", "beside" if part == "a" else "wire/payload"]
    title = f"({part}) {TITLES[rows[0].use if part == 'a' else part]}: MB/s"
    table = _table(title, ["KB", rows[0].limit, *names, *more])
    for size in sorted({row.message_bytes for row in rows}):
        at = {row.carrier: row for row in rows if row.message_bytes == size}
        first, mine = next(iter(at.values())), at.get(ours)
        rates = [at[name].megabytes_per_second if name in at else None for name in names]
        last = mine and (mine.of_beside if part == "a" else mine.wire_share)
        cells = [first.limit_megabytes_per_second, *rates, mine and mine.of_limit, last]
        table.add_row(f"{size // 1024:,}", *map(_cell, cells))
    return table


def _by_actors(part: str, rows: list[Row]) -> Table:
    """A line for each sample time and number of actors."""
    head = ["ST ms", "actors", f"s/{rows[0].n_messages:,}", "eq. 1", "error %", "MB/s"]
    head += ["Tsp us", "Tsd us", "Trv us", "NA*"]
    table = _table(f"({part}) {TITLES[part]}, {rows[0].carrier}", head)
    for row in sorted(rows, key=lambda row: (row.asked_sample_seconds or 0, row.n_actors)):
        costs = row.costs
        each = [1e6 * c for c in (costs.sample, costs.send, costs.receive)] if costs else [None] * 3
        cells = [row.seconds, row.predicted_seconds, row.error_percent, row.megabytes_per_second]
        cells += [*each, costs and costs.knee]
        asked = 1e3 * (row.asked_sample_seconds or 0)
        table.add_row(f"{asked:g}", str(row.n_actors), *map(_cell, cells))
    return table


def conclusion(measured: Measured) -> Table:
    """The figures that were asked for."""
    table = _table("figures asked for", ["", "asked", "found", ""])
    for each in findings(measured.rows):
        reached = "reached" if each.is_reached else "missed"
        table.add_row(each.what, each.asked, each.found, reached)
    return table


def _table(title: str, head: list[str]) -> Table:
    table = Table(title=title, title_justify="left", box=None)
    for name in head:
        table.add_column(name, justify="right")
    return table


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
