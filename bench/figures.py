"""Plots of experiments as one SVG file: medians as points or bars, ranges as thin lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from html import escape

from measures import Spread

from tianji.observe import svg
from tianji.observe.svg import INK

WIDTH, HEIGHT = 560, 360  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 74, 24, 74, 52  # around what is drawn in it
COLOURS = ("#0b6e99", "#c8553d", "#2f9e62", "#8a5a9e", "#d39b22", "#4b4f9e", "#7a7a7a")
PALE = "#dddddd"
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


def draw(panels: Sequence[Panel]) -> str:
    """All panels that have points, two beside each other."""
    shown = [panel for panel in panels if any(series.points for series in panel.series)]
    across = min(2, max(1, len(shown)))
    down = max(1, math.ceil(len(shown) / across))
    lines: list[str] = []
    for i, panel in enumerate(shown):
        x, y = i % across * WIDTH, i // across * HEIGHT
        lines += [f'<g transform="translate({x} {y})">', *_Drawing(panel).lines(), "</g>"]
    return svg.page(across * WIDTH, down * HEIGHT, lines)


class _Drawing:
    """One panel with its scales."""

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        every = [x for series in panel.series for x, _ in series.points]
        numbers = all(not isinstance(x, str) for x in every)
        self._xs = sorted(set(every)) if numbers else list(dict.fromkeys(every))  # type: ignore
        tops = [s.high for series in panel.series for _, s in series.points]
        tops += [s.middle for series in panel.series for _, s in series.points]
        self._top = 1.08 * max((y for y in tops if math.isfinite(y)), default=1.0) or 1.0
        self._step = (WIDTH - LEFT - RIGHT) / len(self._xs)

    def lines(self) -> list[str]:
        panel = self._panel
        size = 14 if len(panel.title) < 50 else 12
        found = [svg.text(LEFT, 22, panel.title, size=size, weight="bold"), *self._axes()]
        for i, series in enumerate(panel.series):
            colour = COLOURS[i % len(COLOURS)]
            found += self._bars(i, series, colour) if panel.is_bars else self._line(series, colour)
        for x, word in panel.marks:
            place = self._between(x)
            found.append(
                svg.line(place, TOP, place, HEIGHT - BOTTOM, INK, ' stroke-dasharray="2 3"')
            )
            found.append(svg.text(place + 4, TOP + 12, word, size=11))
        return found + self._legend()

    def _axes(self) -> list[str]:
        found = []
        for value in _round_numbers(self._top):
            found.append(svg.line(LEFT, self._up(value), WIDTH - RIGHT, self._up(value), PALE))
            found.append(svg.text(LEFT - 8, self._up(value) + 4, f"{value:,g}", anchor="end"))
        for i, x in enumerate(self._xs):
            label = x if isinstance(x, str) else f"{x:g}"
            found.append(svg.text(self._place(i), HEIGHT - BOTTOM + 18, label, anchor="middle"))
        middle = (LEFT + WIDTH - RIGHT) / 2
        found.append(svg.text(middle, HEIGHT - 12, self._panel.x_label, anchor="middle"))
        turned = f"translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"
        label = escape(self._panel.y_label)
        found.append(f'<text transform="{turned}" text-anchor="middle" fill="{INK}">{label}</text>')
        return found

    def _line(self, series: Series, colour: str) -> list[str]:
        places = [(self._place(self._xs.index(x)), y) for x, y in series.points]
        ends = [(x, y) for x, y in places if math.isfinite(y.middle)]
        path = " ".join(f"{x:.1f},{self._up(y.middle)}" for x, y in ends)
        dashes = ' stroke-dasharray="6 4"' if series.is_dashed else ""
        found = [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashes}/>'
        ]
        for x, y in places:
            found += self._range(x, y, colour)
            if math.isfinite(y.middle):
                found.append(
                    f'<circle cx="{x:.1f}" cy="{self._up(y.middle)}" r="3.5" fill="{colour}"/>'
                )
        return found

    def _bars(self, i: int, series: Series, colour: str) -> list[str]:
        width = 0.8 * self._step / len(self._panel.series)
        found = []
        for x, y in series.points:
            left = self._place(self._xs.index(x)) - 0.4 * self._step + i * width
            if math.isfinite(y.middle):
                top, size = self._up(y.middle), f'width="{0.9 * width:.1f}"'
                height = round(HEIGHT - BOTTOM - top, 1)
                box = f'x="{left:.1f}" y="{top}" {size} height="{height}"'
                found.append(f'<rect {box} fill="{colour}" fill-opacity="0.75"/>')
            found += self._range(left + 0.45 * width, y, INK)
        return found

    def _range(self, x: float, y: Spread, colour: str) -> list[str]:
        if not math.isfinite(y.middle):
            never = svg.text(x, TOP + 12, "never", anchor="middle", size=11)
            return [f'<g fill="{colour}">{never}</g>']
        high = min(y.high, self._top)
        if y.low == high:
            return []
        return [svg.line(round(x, 1), self._up(y.low), round(x, 1), self._up(high), colour)]

    def _legend(self) -> list[str]:
        found, x, y = [], LEFT, 42
        for i, series in enumerate(self._panel.series):
            wide = 34 + 6.4 * len(series.name)
            if x + wide > WIDTH - RIGHT and x > LEFT:
                x, y = LEFT, y + 17
            colour = COLOURS[i % len(COLOURS)]
            dashes = ' stroke-dasharray="6 4"' if series.is_dashed else ""
            found.append(svg.line(x, y, x + 18, y, colour, f' stroke-width="3"{dashes}'))
            found.append(svg.text(x + 24, y + 4, series.name, size=11))
            x += wide
        return found

    def _place(self, i: int) -> float:
        return LEFT + (i + 0.5) * self._step

    def _between(self, x: float) -> float:
        """The place of any number, by its logarithm between those that have one."""
        xs = [float(each) for each in self._xs]
        for i, (low, high) in enumerate(itertools.pairwise(xs)):
            if low <= x <= high:
                share = (math.log(x) - math.log(low)) / (math.log(high) - math.log(low))
                return round(self._place(i) + share * self._step, 1)
        return self._place(0 if x < xs[0] else len(xs) - 1)

    def _up(self, value: float) -> float:
        return round(HEIGHT - BOTTOM - value / self._top * (HEIGHT - BOTTOM - TOP), 1)


def _round_numbers(top: float) -> list[float]:
    """Five or so, from zero."""
    step = svg.round_step(top / 5)
    return [i * step for i in range(math.floor(top / step) + 1)]
