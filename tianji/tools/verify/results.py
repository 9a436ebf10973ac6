"""What a comparison comes to: tables, plain words, and the files that it leaves in its folder."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tianji import __version__
from tianji.core import atomic_file, stats
from tianji.core.columns import fitted
from tianji.core.wording import count_of, number
from tianji.tools.verify import run_figures as measures
from tianji.tools.verify.compare import (
    RATIO_TOLERANCE,
    Comparison,
    Equivalence,
    MarginVerdict,
    Pair,
    SampleAges,
)
from tianji.tools.verify.plot import draw
from tianji.tools.verify.run_figures import Training
from tianji.tools.verify.settings import Settings


def signed(value: float) -> str:
    """With its sign, for a difference."""
    return ("+" if value > 0 else "") + number(value)


def outcomes(found: Equivalence, settings: Settings, width: int | None = None) -> str:
    """What training came to: a column for each number, which has one unit, and its verdict."""
    head = ("", "serial", settings.engine, "difference", "95 % interval", "margin", "verdict")
    columns: list[tuple[str, ...]] = [head]
    for each in found.comparisons:
        difference, *ends = each.interval
        numbers = (*map(number, each.iqms), signed(difference), _between(*ends))
        columns.append((each.name, *numbers, number(each.margin), each.verdict))
    least = [each.name for each in found.comparisons if not each.decides]
    return "\n".join(fitted(list(zip(*columns, strict=True)), width, least=least))


def _between(low: float, high: float) -> str:
    """An interval; that of a single seed has no ends."""
    return f"{signed(low)} to {signed(high)}" if math.isfinite(high - low) else "none"


def ages(
    found: Equivalence, pairs: list[Pair], settings: Settings, width: int | None = None
) -> str:
    """What training learned from."""
    rows = [("", "serial", settings.engine, "KS", "among serial", "Wasserstein")]
    ratio = f"replay ratio, target {found.ratio_target:g}"
    for name, fact in ((ratio, "ratio"), ("freshness", "freshness"), ("new samples, share", "new")):
        arms = [[getattr(run, fact) for run in arm] for arm in zip(*pairs, strict=True)]
        rows.append((name, number(_iqm(arms[0])), number(_iqm(arms[1])), "", "", ""))
    for each in found.samples:
        among = "-" if each.among_serial is None else f"{each.among_serial.ks:.3f}"
        far = f"{number(each.distance.wasserstein)} {each.unit}"
        distances = {0.5: (f"{each.distance.ks:.3f}", among, far), 0.95: ("", "", "")}
        for share, word in ((0.5, "median"), (0.95, "95 %")):
            both = (measures.percentile(arm, share) for arm in (each.serial, each.distributed))
            serial, distributed = map(number, both)
            rows.append((f"{each.name}, {word}", serial, distributed, *distances[share]))
    return "\n".join(fitted(rows, width, least=("among serial", "Wasserstein")))


def _iqm(values: list[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return stats.iqm(there) if there else None


def sentence(found: Equivalence, settings: Settings) -> str:
    """The verdict with its numbers, and what it cannot say."""
    deciding = [each for each in found.comparisons if each.decides]
    if not deciding:
        return "Cannot tell: no episode has ended in both kinds of training; give more --steps."
    parts = [_part(each, settings) for each in deciding]
    seeds = count_of(found.n_pairs, "seed")
    said = f"{found.verdict.capitalize()}: {'; '.join(parts)} (IQM of {seeds})."
    if not found.ratio_is_held:
        said += (
            f" The replay ratio was off its target of {found.ratio_target:g} by "
            f"{100 * found.ratio_error:.1f} % in one run; {100 * RATIO_TOLERANCE:.0f} % is allowed."
        )
    return f"{said} {_limits(found, deciding)}".rstrip()


def _part(each: Comparison, settings: Settings) -> str:
    serial, distributed = each.iqms
    difference, low, high = each.interval
    what = each.name
    if what == "return":
        what = f"return after {settings.steps:,} steps"
    return (
        f"{what} {number(serial)} serial, {number(distributed)} {settings.engine}, difference "
        f"{signed(difference)}, interval {_between(low, high)}, "
        f"margin {number(each.margin)}: {each.verdict}"
    )


def _limits(found: Equivalence, deciding: list[Comparison]) -> str:
    """What so few seeds leave open."""
    if found.n_pairs == 1:
        return "One seed has no interval: it says nothing about others."
    open_ = [each for each in deciding if each.verdict is MarginVerdict.CANNOT_TELL]
    if all(each.serial == each.distributed for each in found.comparisons):
        return "Every pair of runs was one and the same, episode for episode."
    if not open_:
        small = found.verdict is MarginVerdict.EQUIVALENT
        return "A difference smaller than the margin may still be there." if small else ""
    wanted = [each.seeds_wanted for each in open_]
    if None in wanted:
        return "More seeds would make the interval narrower."
    n = max(each for each in wanted if each is not None)
    if n <= found.n_pairs:
        return "A few seeds more would tell."
    seeds = count_of(found.n_pairs, "seed")
    return f"With {seeds} the interval is wide: it would take about {n:,} to tell."


def notes(found: Equivalence) -> list[str]:
    """What a reader of the tables must know besides."""
    return list(dict.fromkeys(f"{e.name}: {e.note}" for e in found.comparisons if e.note))


def write(folder: Path, settings: Settings, pairs: list[Pair], found: Equivalence) -> list[Path]:
    """Writes the three files; returns where they are."""
    paths = [folder / f"verify.{kind}" for kind in ("json", "csv", "svg")]
    runs = [_row(run, settings) for pair in pairs for run in pair]
    content = {
        "tianji": __version__,
        "settings": asdict(settings),
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
        "samples": [_both(each) for each in found.samples],
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


def _both(each: SampleAges) -> dict[str, Any]:
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
