"""Figure 5: limits and predictions as lines, measurements as points."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from transmission.rows import TITLES, Row

PANELS = [("a", "views"), ("a", "store"), ("b", "store"), ("c", "store"), ("d", "store")]
PER = 10_000  # samples that a collection time is shown for


def draw(rows: list[Row]) -> Figure:
    """A panel for each part that was measured, two beside each other."""
    shown = [
        (part, use, found)
        for part, use in PANELS
        if (found := [row for row in rows if (row.part, row.use) == (part, use)])
    ]
    down = max(1, math.ceil(len(shown) / 2))
    figure = Figure(figsize=(12, 4.5 * down), layout="constrained")
    for i, (part, use, found) in enumerate(shown, 1):
        axes = figure.add_subplot(down, 2, i)
        axes.set_title(f"({part}) {TITLES[use if part == 'a' else part]}")
        (_by_actors if part in "bc" else _by_size)(axes, found)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure


def _by_size(axes: Axes, rows: list[Row]) -> None:
    limits = sorted(
        {(row.message_bytes / 1024, row.limit_megabytes_per_second or math.nan) for row in rows}
    )
    axes.plot(*zip(*limits, strict=True), "k--", label=f"limit: {rows[0].limit}")
    for name in dict.fromkeys(row.carrier for row in rows):
        points = [row for row in rows if row.carrier == name]
        sizes = [row.message_bytes / 1024 for row in points]
        axes.plot(sizes, [row.megabytes_per_second for row in points], "o", label=name)
    axes.set(xlabel="message size, KB", ylabel="MB/s")
    if rows[0].part == "d":
        axes.set_ylim(bottom=0)  # as a share of the limit should
    else:
        axes.set_yscale("log")


def _by_actors(axes: Axes, rows: list[Row]) -> None:
    for name, seconds in dict.fromkeys((row.carrier, row.asked_sample_seconds) for row in rows):
        curve = [row for row in rows if (row.carrier, row.asked_sample_seconds) == (name, seconds)]
        actors = [row.n_actors for row in curve]
        times = [PER * row.seconds / row.n_messages for row in curve]
        label = f"ST {1e3 * (seconds or 0):g} ms"
        (points,) = axes.plot(actors, times, "o", label=f"{name}, {label}")
        if all(row.predicted_seconds is not None for row in curve):
            predicted = [PER * (row.predicted_seconds or 0) / row.n_messages for row in curve]
            axes.plot(actors, predicted, color=points.get_color(), label=f"eq. 1, {label}")
    axes.set(xlabel="actors", ylabel=f"seconds per {PER:,} samples", yscale="log")
