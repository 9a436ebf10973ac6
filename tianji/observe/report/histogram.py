"""Histograms of a run with bars of one width, as a page can draw them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tianji.core.counts import Histogram
from tianji.core.json_file import number, section
from tianji.observe.report.metric_rows import plain_list
from tianji.observe.report.run_files import Object

MOST_BARS = 40


def histograms(summary: Object) -> dict[str, Object]:
    """The staleness and the age of samples, each only where it was counted."""
    said = section(summary.get("histograms"))
    found = {
        "staleness": (said.get("staleness_updates"), summary.get("staleness")),
        "age": (said.get("age_steps"), summary.get("age")),
    }
    drawn = {name: rebinned(rows, section(marks)) for name, (rows, marks) in found.items()}
    return {name: bars for name, bars in drawn.items() if bars}


def rebinned(rows: Any, marks: Object) -> Object:
    """Rows of [lower edge, count] as at most `MOST_BARS` bars of one width, in shares.

    The bins below 64 hold one number each; those above are spread evenly over their width. If every
    sample has the same number, that number is all there is to say.
    """
    bins = _bins(rows)
    total = sum(count for _, count in bins)
    if not total:
        return {}
    top = _upper(bins[-1][0])
    if len(bins) == 1 and top == bins[0][0] + 1:
        return {"only": bins[0][0]}
    width = math.ceil(top / MOST_BARS)
    shares = np.zeros(math.ceil(top / width))
    for lower, count in bins:
        upper = _upper(lower)
        first, last = int(lower // width), min(math.ceil(upper / width), shares.size)
        for bar in range(first, last):
            inside = min(upper, (bar + 1) * width) - max(lower, bar * width)
            shares[bar] += count / total * inside / (upper - lower)
    said = {name: number(marks.get(name)) for name in ("p50", "p95")}
    return {"width": width, "shares": plain_list(shares)} | said


def _bins(rows: Any) -> list[tuple[float, float]]:
    found = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, list) and len(row) == 2:
            lower, count = number(row[0]), number(row[1])
            if lower is not None and count is not None and lower >= 0 and count > 0:
                found.append((lower, count))
    return sorted(found)


def _upper(lower: float) -> float:
    """Where the bin ends that begins at `lower`."""
    if lower < Histogram.EXACT:
        return lower + 1
    place = round(math.log2(lower) * Histogram.PER_DOUBLING)
    return max(lower + 1, float(math.ceil(2.0 ** ((place + 1) / Histogram.PER_DOUBLING))))
