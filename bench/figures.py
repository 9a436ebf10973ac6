"""Plots of experiments as one SVG file: medians as points or bars, ranges as thin lines."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from measures import Spread

X = float | str


@dataclass
class Series:
    """One name of the legend."""

    name: str
    points: list[tuple[X, Spread]]
    is_dashed: bool = False


@dataclass
class Panel:
    """One drawing; y begins at zero, and x has a place for every value that occurs."""

    title: str
    x_label: str
    y_label: str
    series: list[Series] = field(default_factory=list)
    _: KW_ONLY
    is_bars: bool = False  # groups of bars instead of lines
    marks: list[tuple[float, str]] = field(default_factory=list)  # vertical lines, with a word


@dataclass
class Course:
    """Lines over numbers, each with the range around it: what happened in the course of time."""

    title: str
    x_label: str
    y_label: str
    lines: dict[str, list[tuple[float, Spread]]] = field(default_factory=dict)
    levels: list[tuple[float, str]] = field(default_factory=list)  # horizontal, with a word


def draw(panels: Sequence[Panel | Course]) -> str:
    """All panels that have points, two beside each other."""
    shown = [panel for panel in panels if _has_points(panel)]
    across = min(2, max(1, len(shown)))
    down = max(1, math.ceil(len(shown) / across))
    figure = Figure(figsize=(6 * across, 4 * down), layout="constrained")
    for i, panel in enumerate(shown, 1):
        axes = figure.add_subplot(down, across, i)
        if isinstance(panel, Course):
            _course(axes, panel)
        else:
            _draw(axes, panel)
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # words stay words
        figure.savefig(text, format="svg")
    return text.getvalue()


def _has_points(panel: Panel | Course) -> bool:
    if isinstance(panel, Course):
        return any(panel.lines.values())
    return any(series.points for series in panel.series)


def _course(axes: Axes, panel: Course) -> None:
    """Medians as lines in shaded ranges."""
    for name, points in panel.lines.items():
        xs = [x for x, _ in points]
        (line,) = axes.plot(xs, [s.middle for _, s in points], label=name)
        low, high = ([getattr(s, end) for _, s in points] for end in ("low", "high"))
        axes.fill_between(xs, low, high, alpha=0.2, color=line.get_color())
    bottom, top = axes.get_ylim()
    room = (top - bottom) / 2
    for y, word in panel.levels:
        if not bottom - room <= y <= top + room:
            continue  # it would press the lines flat; the table has it
        axes.axhline(y, color="black", linestyle=":", linewidth=1)
        across = axes.get_yaxis_transform()
        axes.annotate(word, (0.01, y), (0, 2), across, textcoords="offset points", fontsize="small")
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _draw(axes: Axes, panel: Panel) -> None:
    every = [x for series in panel.series for x, _ in series.points]
    is_words = any(isinstance(x, str) for x in every)
    xs = list(dict.fromkeys(every)) if is_words else sorted(set(every))  # type: ignore[type-var]
    width = 0.8 / len(panel.series)
    for i, series in enumerate(panel.series):
        shift = (i + 0.5) * width - 0.4 if panel.is_bars else 0.0
        places = [xs.index(x) + shift for x, _ in series.points]
        _series(axes, series, places, width if panel.is_bars else None)
    for x, word in panel.marks:
        place = float(np.interp(math.log(x), np.log(xs), range(len(xs))))
        axes.axvline(place, color="black", linestyle=":")
        above = axes.get_xaxis_transform()
        axes.annotate(word, (place, 0.97), (4, 0), above, textcoords="offset points", va="top")
    axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_xticks(range(len(xs)), [x if isinstance(x, str) else f"{x:g}" for x in xs])
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small")


def _series(axes: Axes, series: Series, places: list[float], bar: float | None) -> None:
    """Medians with their ranges; `never` where the median run did not arrive."""
    spreads = [spread for _, spread in series.points]
    middles = [s.middle if math.isfinite(s.middle) else math.nan for s in spreads]
    top = max((y for s in spreads for y in (s.middle, s.high) if math.isfinite(y)), default=1.0)
    if bar is None:
        style = "--" if series.is_dashed else "-"
        (line,) = axes.plot(places, middles, f"o{style}", label=series.name)
        colour = line.get_color()
    else:
        axes.bar(places, middles, 0.9 * bar, label=series.name)
        colour = "black"
    for place, spread in zip(places, spreads, strict=True):
        if not math.isfinite(spread.middle):
            axes.text(place, 0.9, "never", transform=axes.get_xaxis_transform(), ha="center")
        else:  # up to the highest number where the slowest run did not arrive
            axes.vlines(place, spread.low, min(spread.high, top), color=colour)
