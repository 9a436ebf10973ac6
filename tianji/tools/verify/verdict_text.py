"""A comparison in tables and in plain words."""

from __future__ import annotations

import math

from tianji.core import stats
from tianji.core.columns import fitted
from tianji.core.wording import count_of
from tianji.tools.verify import measures
from tianji.tools.verify.compare import (
    RATIO_TOLERANCE,
    Comparison,
    Equivalence,
    Pair,
    Samples,
    Verdict,
)
from tianji.tools.verify.settings import Settings


def number(value: float | None) -> str:
    """With what matters of it."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if size >= 10 else f"{value:.3g}"


def signed(value: float) -> str:
    """With its sign, for a difference."""
    return ("+" if value > 0 else "") + number(value)


def outcomes(found: Equivalence, settings: Settings, width: int | None = None) -> str:
    """What training came to: a column for each number, which has one unit, and its verdict."""
    head = ("", "serial", settings.engine, "difference", "95 % interval", "margin", "verdict")
    columns = [head, *(_outcome(each) for each in found.comparisons)]
    least = [each.name for each in found.comparisons if not each.decides]
    return "\n".join(fitted(list(zip(*columns, strict=True)), width, least=least))


def _outcome(each: Comparison) -> tuple[str, ...]:
    difference, low, high = each.interval
    numbers = (
        *map(number, each.iqms),
        signed(difference),
        _between(low, high),
        number(each.margin),
    )
    return (each.name, *numbers, each.verdict)


def _between(low: float, high: float) -> str:
    """An interval; that of a single seed has no ends."""
    return f"{signed(low)} to {signed(high)}" if math.isfinite(high - low) else "none"


def ages(
    found: Equivalence, pairs: list[Pair], settings: Settings, width: int | None = None
) -> str:
    """What training learned from."""
    rows = [("", "serial", settings.engine, "KS", "among serial", "Wasserstein")]
    ratios = [[run.ratio for run in arm] for arm in zip(*pairs, strict=True)]
    fresh = [[run.freshness for run in arm] for arm in zip(*pairs, strict=True)]
    new = [[run.new for run in arm] for arm in zip(*pairs, strict=True)]
    shown = {f"replay ratio, target {found.ratio_target:g}": ratios, "freshness": fresh}
    for name, values in (shown | {"new samples, share": new}).items():
        serial, distributed = (number(_iqm(arm)) for arm in values)
        rows.append((name, serial, distributed, "", "", ""))
    for each in found.samples:
        among = "-" if each.among_serial is None else f"{each.among_serial.ks:.3f}"
        far = f"{number(each.distance.wasserstein)} {each.unit}"
        rows.append(
            (f"{each.name}, median", *_at(each, 0.5), f"{each.distance.ks:.3f}", among, far)
        )
        rows.append((f"{each.name}, 95 %", *_at(each, 0.95), "", "", ""))
    return "\n".join(fitted(rows, width, least=("among serial", "Wasserstein")))


def _at(samples: Samples, share: float) -> tuple[str, str]:
    """Below which this share of the samples lies, serial and distributed."""
    serial, distributed = samples.serial, samples.distributed
    return (
        number(measures.percentile(serial, share)),
        number(measures.percentile(distributed, share)),
    )


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
    open_ = [each for each in deciding if each.verdict is Verdict.CANNOT_TELL]
    if all(each.serial == each.distributed for each in found.comparisons):
        return "Every pair of runs was one and the same, episode for episode."
    if not open_:
        small = found.verdict is Verdict.EQUIVALENT
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
