"""What experiments make of their numbers: medians and ranges, knees, slopes, intervals, windows."""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

N_DRAWS = 4_000  # of a bootstrap


@dataclass(frozen=True)
class Spread:
    """The median of repeated runs, and their range; a run that never arrived is infinitely long."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Of at least one value."""
        found = list(values)
        return cls(statistics.median(found), min(found), max(found))

    def text(self, digits: int = 1) -> str:
        """As in `19.4 (19.0-20.1)`."""
        if self.low == self.high or math.isnan(self.middle):
            return shown(self.middle, digits)
        return (
            f"{shown(self.middle, digits)} ({shown(self.low, digits)}-{shown(self.high, digits)})"
        )


def shown(value: float | None, digits: int = 1) -> str:
    """A cell of a table."""
    if value is None or math.isnan(value):
        return "-"
    return "never" if value == math.inf else f"{value:,.{digits}f}"


@dataclass(frozen=True)
class Knee:
    """Where growth in proportion ends: y = gain * x up to `at`, and `level` beyond."""

    at: float
    gain: float
    level: float


def knee(xs: Sequence[float], ys: Sequence[float]) -> Knee | None:
    """The line through zero with a plateau that fits best; None if no plateau was seen.

    Every way to cut the points in two is tried: a line through the first part and the mean of the
    second. Errors count in proportion to the values, and a plateau has to fit clearly better than
    the line alone does (half of its squared error), so that noise is no knee.
    """
    points = sorted(zip(xs, ys, strict=True))
    error_of_line, _, _ = _fit(points, len(points))
    fits = [_fit(points, n) for n in range(1, len(points))]
    found = [(error, gain, level) for error, gain, level in fits if gain > 0 and level > 0]
    if not found:
        return None
    error, gain, level = min(found)
    at = level / gain
    if error > 0.5 * error_of_line or error_of_line < 1e-4 * len(points) or at > points[-1][0]:
        return None
    return Knee(at, gain, level)


def _fit(points: Sequence[tuple[float, float]], n: int) -> tuple[float, float, float]:
    """(error, gain, level) with the first `n` points on the line and a plateau of the others."""
    first, rest = points[:n], points[n:]
    gain = statistics.fmean(y / x for x, y in first)
    level = statistics.fmean(y for _, y in rest) if rest else math.inf
    wanted = [min(gain * x, level) for x, _ in points]
    error = sum((y / w - 1) ** 2 for (_, y), w in zip(points, wanted, strict=True) if w > 0)
    return error, gain, level


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """How linear growth is: 1 if twice as many give twice as much, 0 if they give no more.

    The least-squares line through all points, in units of what the first one gives per x.
    """
    unit = ys[0] / xs[0]
    return statistics.linear_regression(xs, ys).slope / unit


def ratio_interval(
    theirs: Sequence[float], ours: Sequence[float], seed: int = 0, share: float = 0.95
) -> Spread:
    """How many times as long theirs took: the ratio of medians, with a bootstrap interval.

    With three runs of each the interval is hardly more than the range; it says so by being wide.
    """
    draw = random.Random(seed)

    def drawn(values: Sequence[float]) -> float:
        return statistics.median(draw.choices(values, k=len(values)))

    pairs = [(drawn(theirs), drawn(ours)) for _ in range(N_DRAWS)]
    ratios = sorted(t / o for t, o in pairs if o != math.inf)
    middle = statistics.median(theirs) / statistics.median(ours)
    if not ratios or math.isnan(middle):
        return Spread(math.nan, math.nan, math.nan)
    cut = int(len(ratios) * (1 - share) / 2)
    return Spread(middle, ratios[cut], ratios[-1 - cut])


Event = tuple[float, float]
"""A moment in seconds, and a number of samples."""


def window_ratios(
    came: Sequence[Event], went: Sequence[Event], width: float, start: float, end: float
) -> list[float]:
    """Samples consumed per sample received in each whole window of `width` seconds.

    A window in which nothing came has no ratio and is left out: make windows wide enough that there
    is none.
    """
    edges = [start + i * width for i in range(int((end - start) / width) + 1)]
    received, consumed = _counts(came, edges), _counts(went, edges)
    return [c / r for r, c in zip(received, consumed, strict=True) if r > 0]


def _counts(events: Sequence[Event], edges: Sequence[float]) -> list[float]:
    found = [0.0] * (len(edges) - 1)
    for moment, n in events:
        place = bisect_right(edges, moment) - 1
        if 0 <= place < len(found):
            found[place] += n
    return found
