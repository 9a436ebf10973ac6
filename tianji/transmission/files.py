"""What a run leaves in its folder: CSV, JSON and a plot."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from tianji import __version__
from tianji.core import atomic_file
from tianji.core.errors import TianJiError
from tianji.transmission.parts import Measured
from tianji.transmission.plan import Plan
from tianji.transmission.plot import draw
from tianji.transmission.rows import findings, knees


def write(folder: Path, plan: Plan, measured: Measured) -> list[Path]:
    """Writes `transmission.csv`, `.json` and `.svg`; returns where they are.

    Each is whole at all times: a run writes them after every part, and may be stopped meanwhile.
    """
    table = [row.to_json() for row in measured.rows]
    lines = io.StringIO(newline="")
    writer = csv.DictWriter(lines, list(table[0]) if table else ["part"])
    writer.writeheader()
    writer.writerows(table)
    said = json.dumps(_everything(plan, measured, table), indent=1) + "\n"
    texts = {"csv": lines.getvalue(), "json": said, "svg": draw(measured.rows)}
    paths = {folder / f"transmission.{kind}": text for kind, text in texts.items()}
    for path, text in paths.items():
        atomic_file.write(path, text)
    return list(paths)


def make_folder(folder: Path) -> Path:
    """The folder, which is made before anything is measured: later would be a pity."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TianJiError(f"--out {folder}: {error.strerror}: name a folder to write to") from error
    return folder


def _everything(plan: Plan, measured: Measured, table: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "tianji": __version__,
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "foreign_load": measured.foreign_load,
            "python": platform.python_version(),
            "numpy": np.__version__,
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
