"""What a comparison leaves in its folder: `verify.json`, `verify.csv` and `verify.svg`."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
from pathlib import Path
from typing import Any

from tianji import __version__
from tianji.core import atomic_file
from tianji.tools.verify import measures
from tianji.tools.verify.compare import Comparison, Equivalence, Pair, Samples
from tianji.tools.verify.measures import Training
from tianji.tools.verify.plot import draw
from tianji.tools.verify.settings import Settings
from tianji.tools.verify.verdict_text import sentence


def write(folder: Path, settings: Settings, pairs: list[Pair], found: Equivalence) -> list[Path]:
    """Writes the three files; returns where they are."""
    paths = [folder / f"verify.{kind}" for kind in ("json", "csv", "svg")]
    runs = [_row(run, settings) for pair in pairs for run in pair]
    content = {
        "tianji": __version__,
        "settings": settings.to_json(),
        "machine": {"architecture": platform.machine(), "cores": len(os.sched_getaffinity(0))},
        "verdict": found.verdict,
        "sentence": sentence(found, settings),
        "exit_status": found.exit_status,
        "pairs": found.n_pairs,
        "replay_ratio": {
            "target": found.ratio_target,
            "largest_error": _finite(found.ratio_error),
            "held": found.ratio_is_held,
        },
        "comparisons": [_comparison(each) for each in found.comparisons],
        "samples": [_samples(each) for each in found.samples],
        "runs": runs,
    }
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(runs[0]) if runs else ["engine"])
    writer.writeheader()
    writer.writerows(runs)
    texts = json.dumps(content, indent=1) + "\n", table.getvalue(), draw(settings, pairs, found)
    for path, text in zip(paths, texts, strict=True):
        atomic_file.write(path, text)
    return paths


def _row(run: Training, settings: Settings) -> dict[str, Any]:
    target, steps = settings.target, settings.steps
    at = None if target is None else measures.reached(run.episodes, target, steps)
    return {
        "engine": run.engine,
        "seed": run.seed,
        "received": run.received,
        "updates": run.updates,
        "seconds": round(run.seconds, 3),
        "return": measures.return_after(run.episodes, steps),
        "steps_to_target": None if at is None else at.steps,
        "updates_to_target": None if at is None else at.updates,
        "replay_ratio": run.ratio,
        "freshness": run.freshness,
        "new": run.new,
        "staleness_mean": measures.mean(run.staleness),
        "staleness_p50": measures.percentile(run.staleness, 0.5),
        "staleness_p95": measures.percentile(run.staleness, 0.95),
        "age_mean": measures.mean(run.age),
        "age_p50": measures.percentile(run.age, 0.5),
        "age_p95": measures.percentile(run.age, 0.95),
    }


def _comparison(each: Comparison) -> dict[str, Any]:
    difference, low, high = each.interval
    serial, distributed = each.iqms
    return {
        "name": each.name,
        "decides": each.decides,
        "serial_iqm": serial,
        "distributed_iqm": distributed,
        "difference": difference,
        "low": _finite(low),
        "high": _finite(high),
        "margin": each.margin,
        "verdict": each.verdict,
        "note": each.note,
    }


def _samples(each: Samples) -> dict[str, Any]:
    among = each.among_serial
    return {
        "name": each.name,
        "unit": each.unit,
        **each.distance._asdict(),
        "among_serial": None if among is None else among._asdict(),
        "serial": each.serial,
        "distributed": each.distributed,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
