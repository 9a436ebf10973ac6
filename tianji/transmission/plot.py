"""The plot of a run: limits and predictions as lines, measurements as points, in one SVG file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from html import escape

from tianji.observe import svg
from tianji.observe.svg import INK
from tianji.transmission.rows import TITLES, Row

WIDTH, HEIGHT = 620, 420  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 70, 168, 44, 52  # around what is drawn in it; the legend is on the right
COLOURS = {
    "local": "#7a7a7a",
    "shm": "#0b6e99",
    "mpi": "#2f9e62",
    "pickled MPI": "#c8553d",
    "queue": "#8a5a9e",
    "ZeroMQ ipc": "#d39b22",
    "ZeroMQ tcp": "#a67c2d",
    "Ray": "#4b4f9e",
}
PALE = "#dddddd"

Points = list[tuple[float, float]]


@dataclass
class Series:
    """One name of the legend: a line, or points."""

    name: str
    colour: str
    points: Points
    is_line: bool = False
    is_hollow: bool = False


@dataclass
class Panel:
    """One of Figure 5's four; sizes, actors and most rates are drawn by their logarithms."""

    title: str
    x_label: str
    y_label: str
    _: KW_ONLY
    is_bytes: bool = False  # what x counts: bytes in powers of two, or actors
    is_from_zero: bool = False  # whether y begins at zero, as a share of a limit should
    series: list[Series] = field(default_factory=list)


def draw(rows: list[Row]) -> str:
    """All parts that were measured, two panels beside each other."""
    panels = [panel for panel in _panels(rows) if panel.series]
    across = min(2, max(1, len(panels)))
    down = max(1, math.ceil(len(panels) / across))
    lines: list[str] = []
    for i, panel in enumerate(panels):
        x, y = i % across * WIDTH, i // across * HEIGHT
        lines += [f'<g transform="translate({x} {y})">', *_drawn(panel), "</g>"]
    return svg.page(across * WIDTH, down * HEIGHT, lines)


def _panels(rows: list[Row]) -> list[Panel]:
    panels = []
    for use in ("views", "store"):
        panels.append(Panel(f"(a) {TITLES[use]}", "message size", "MB/s", is_bytes=True))
        _add_sizes(panels[-1], [row for row in rows if row.part == "a" and row.use == use])
    for part in ("b", "c"):
        panels.append(Panel(f"({part}) {TITLES[part]}", "actors", "seconds per 10,000 samples"))
        _add_actors(panels[-1], [row for row in rows if row.part == part])
    title = f"(d) {TITLES['d']}"
    panels.append(Panel(title, "message size", "MB/s", is_bytes=True, is_from_zero=True))
    _add_sizes(panels[-1], [row for row in rows if row.part == "d"])
    return panels


def _add_sizes(panel: Panel, rows: list[Row]) -> None:
    limits = {
        row.message_bytes: row.limit_megabytes_per_second
        for row in rows
        if row.limit_megabytes_per_second is not None
    }
    if limits:
        points = sorted((float(size), rate) for size, rate in limits.items() if rate is not None)
        panel.series.append(Series(f"limit: {rows[0].limit}", INK, points, is_line=True))
    for name in dict.fromkeys(row.carrier for row in rows):
        points = [
            (float(row.message_bytes), row.megabytes_per_second)
            for row in rows
            if row.carrier == name
        ]
        panel.series.append(Series(name, COLOURS.get(name, INK), points))


def _add_actors(panel: Panel, rows: list[Row]) -> None:
    curves = dict.fromkeys((row.carrier, row.asked_sample_seconds or 0.0) for row in rows)
    shortest = min((seconds for _, seconds in curves), default=0.0)
    for name, seconds in curves:
        curve = [row for row in rows if (row.carrier, row.asked_sample_seconds) == (name, seconds)]
        colour, label = COLOURS.get(name, INK), f"{name}, ST {1e3 * seconds:g} ms"
        predicted = [
            (float(row.n_actors), 1e4 * row.predicted_seconds / row.n_messages)
            for row in curve
            if row.predicted_seconds is not None
        ]
        if predicted:
            line = Series(f"eq. 1, ST {1e3 * seconds:g} ms", colour, predicted, is_line=True)
            panel.series.append(line)
        points = [(float(row.n_actors), 1e4 * row.seconds / row.n_messages) for row in curve]
        panel.series.append(Series(label, colour, points, is_hollow=seconds > shortest))


class _Scale:
    """From values to places, by their logarithms."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = math.log(min(values)), math.log(max(values))
        margin = 0.04 * (high - low) or 0.5
        self._low, self._high = low - margin, high + margin
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        share = (math.log(value) - self._low) / (self._high - self._low)
        return round(self._start + share * (self._end - self._start), 1)

    def marks(self) -> list[float]:
        """Powers of ten in sight, with what lies between where there are few."""
        first, last = math.floor(self._low / math.log(10)), math.ceil(self._high / math.log(10))
        steps = (1, 2, 5) if last - first <= 3 else (1,)
        marks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        return [mark for mark in marks if self._low <= math.log(mark) <= self._high]


class _FromZero:
    """From values to places, evenly."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._high = 1.08 * max(values)
        self._start, self._end = start, end

    def __call__(self, value: float) -> float:
        return round(self._start + value / self._high * (self._end - self._start), 1)

    def marks(self) -> list[float]:
        """Five or so round numbers."""
        step = svg.round_step(self._high / 5)
        return [i * step for i in range(math.floor(self._high / step) + 1)]


def _drawn(panel: Panel) -> list[str]:
    points = [point for series in panel.series for point in series.points]
    across = _Scale([x for x, _ in points], LEFT, WIDTH - RIGHT)
    kind = _FromZero if panel.is_from_zero else _Scale
    up = kind([y for _, y in points], HEIGHT - BOTTOM, TOP)
    lines = [svg.text(LEFT, 24, panel.title, size=14, weight="bold")]
    for value in up.marks():
        lines.append(svg.line(LEFT, up(value), WIDTH - RIGHT, up(value), PALE))
        lines.append(svg.text(LEFT - 8, up(value) + 4, f"{value:,g}", anchor="end"))
    for value in _marks([x for x, _ in points], panel.is_bytes):
        lines.append(svg.line(across(value), TOP, across(value), HEIGHT - BOTTOM, PALE))
        label = _bytes(value) if panel.is_bytes else f"{value:g}"
        lines.append(svg.text(across(value), HEIGHT - BOTTOM + 18, label, anchor="middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(svg.text(middle, HEIGHT - 12, panel.x_label, anchor="middle"))
    lines.append(
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(panel.y_label)}</text>'
    )
    for i, series in enumerate(panel.series):
        lines += _shape(series, across, up) + _legend(series, TOP + 10 + 19 * i)
    return lines


def _marks(values: Sequence[float], is_bytes: bool) -> list[float]:
    """Where x is labelled: every number of actors, every second doubling of a size."""
    marks = sorted(set(values))
    return marks[:: max(1, math.ceil(len(marks) / 7))] if is_bytes else marks


def _bytes(value: float) -> str:
    return f"{value / 2**20:g} MB" if value >= 2**20 else f"{value / 2**10:g} KB"


def _shape(series: Series, across: _Scale, up: _Scale | _FromZero) -> list[str]:
    if series.is_line:
        path = " ".join(f"{across(x)},{up(y)}" for x, y in sorted(series.points))
        style = f'fill="none" stroke="{series.colour}" stroke-width="1.5"'
        dashes = ' stroke-dasharray="5 3"' if series.colour == INK else ""
        return [f'<polyline points="{path}" {style}{dashes}/>']
    return [_point(across(x), up(y), series) for x, y in series.points]


def _point(x: float, y: float, series: Series) -> str:
    inside = "white" if series.is_hollow else series.colour
    return (
        f'<circle cx="{x}" cy="{y}" r="3.5" fill="{inside}" stroke="{series.colour}" '
        f'stroke-width="1.5"/>'
    )


def _legend(series: Series, y: float) -> list[str]:
    x = WIDTH - RIGHT + 14
    dashes = ' stroke-dasharray="5 3"' if series.colour == INK else ""
    if series.is_line:
        mark = svg.line(x, y, x + 18, y, series.colour, more=f' stroke-width="1.5"{dashes}')
    else:
        mark = _point(x + 9, y, series)
    return [mark, svg.text(x + 24, y + 4, series.name, size=11)]
