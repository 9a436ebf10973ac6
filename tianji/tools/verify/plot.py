"""The plot of a comparison: learning curves as IQM with bands, and how old samples were. SVG."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tianji.core import stats
from tianji.observe import svg
from tianji.observe.watch import WINDOW
from tianji.tools.verify import measures
from tianji.tools.verify.compare import Equivalence, Pair, Samples
from tianji.tools.verify.measures import Floats, Rows, Training
from tianji.tools.verify.settings import Settings

WIDTH, HEIGHT = 460, 320  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 46
POINTS = 60  # of a curve
DRAWS = 200  # for a band: it is looked at, not judged by
BARS = 24
SERIAL, DISTRIBUTED, TARGET = "#7a7a7a", "#0b6e99", "#c8553d"


@dataclass
class Panel:
    """Axes, and what is drawn between them."""

    title: str
    x_label: str
    x_top: float
    y_low: float
    y_top: float
    shapes: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        """Where a value lies, in pixels."""
        return LEFT + (WIDTH - LEFT - RIGHT) * value / (self.x_top or 1.0)

    def y(self, value: float) -> float:
        """The same upwards."""
        share = (value - self.y_low) / ((self.y_top - self.y_low) or 1.0)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def path(self, x: Floats, y: Floats) -> str:
        """The corners of a line."""
        return " ".join(f"{self.x(a):.1f},{self.y(b):.1f}" for a, b in zip(x, y, strict=True))


def draw(settings: Settings, pairs: list[Pair], found: Equivalence) -> str:
    """Three panels beside each other."""
    panels = [_curves(settings, pairs), *(_ages(each) for each in found.samples)]
    lines: list[str] = []
    for i, panel in enumerate(panels):
        lines += [f'<g transform="translate({i * WIDTH} 0)">', *_framed(panel), "</g>"]
    lines += _legend(settings.engine)
    return svg.page(len(panels) * WIDTH, HEIGHT, lines)


def _curves(settings: Settings, pairs: list[Pair]) -> Panel:
    grid = np.linspace(0, settings.steps, POINTS + 1)[1:]
    bands = [_band(list(arm), grid) for arm in zip(*pairs, strict=True)]
    known = [value for band in bands for value in band.ravel() if np.isfinite(value)]
    low, top = min(0.0, *known, 0.0), max([*known, 1.0])
    title = f"return of {WINDOW} episodes: IQM, 95 % band"
    panel = Panel(title, "environment steps", settings.steps, low, 1.05 * top)
    for colour, (middle, lower, upper) in zip((SERIAL, DISTRIBUTED), bands, strict=False):
        there = np.isfinite(middle)
        x = grid[there]
        around = panel.path(np.r_[x, x[::-1]], np.r_[lower[there], upper[there][::-1]])
        panel.shapes += [
            f'<polygon points="{around}" fill="{colour}" fill-opacity="0.2"/>',
            _line(panel.path(x, middle[there]), colour),
        ]
    if settings.target is not None and settings.target <= panel.y_top:
        y = round(panel.y(settings.target), 1)
        dashes = ' stroke-dasharray="4 3"'
        panel.shapes.append(svg.line(LEFT, y, WIDTH - RIGHT, y, TARGET, dashes))
    return panel


def _band(arm: list[Training], grid: Floats) -> Floats:
    """Rows of IQM, low and high at every point; NaN before every run has finished an episode."""
    curves = np.array([measures.curve(run.episodes, grid) for run in arm])
    found = np.full((3, grid.size), np.nan)
    for i in np.flatnonzero(np.isfinite(curves).all(axis=0)):
        found[:, i] = stats.stratified([curves[:, i].tolist()], n=DRAWS)
    return found


def _ages(samples: Samples) -> Panel:
    """Both histograms as lines over bars of one width."""
    both = (samples.serial, samples.distributed)
    top = max((edge for rows in both for edge, _ in rows), default=0) + 1
    width = max(1, -(-top // BARS))
    shares = [_shares(rows, width, -(-top // width)) for rows in both]
    highest = max(float(each.max()) for each in shares) or 1.0
    title = f"{samples.name} of samples: KS {samples.distance.ks:.3f}"
    axis = f"{samples.name} in {samples.unit}"
    panel = Panel(title, axis, width * shares[0].size, 0.0, 1.1 * highest)
    for colour, each in zip((SERIAL, DISTRIBUTED), shares, strict=True):
        edges = np.repeat(np.arange(each.size + 1) * width, 2)[1:-1].astype(np.float64)
        panel.shapes.append(_line(panel.path(edges, np.repeat(each, 2)), colour))
    return panel


def _shares(rows: Rows, width: int, n: int) -> Floats:
    counts = np.zeros(n)
    for edge, count in rows:
        counts[edge // width] += count
    return counts / (counts.sum() or 1.0)


def _line(points: str, colour: str) -> str:
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>'


def _framed(panel: Panel) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = [
        svg.text(LEFT, 20, panel.title, weight="bold"),
        f'<path d="M{LEFT} {TOP} V{bottom} H{right}" fill="none" stroke="{svg.INK}"/>',
        svg.text((LEFT + right) / 2, HEIGHT - 10, panel.x_label, anchor="middle"),
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        value = panel.y_low + share * (panel.y_top - panel.y_low)
        y, across = panel.y(value) + 4, share * panel.x_top
        lines.append(svg.text(LEFT - 6, y, f"{value:.3g}", anchor="end"))
        said = f"{across:,.0f}" if panel.x_top >= 10 else f"{across:g}"
        anchor = "end" if share == 1.0 else "middle"
        lines.append(svg.text(panel.x(across), bottom + 16, said, anchor))
    return [*lines, *panel.shapes]


def _legend(engine: str) -> list[str]:
    lines = []
    for i, (name, colour) in enumerate((("serial", SERIAL), (engine, DISTRIBUTED))):
        x, y = WIDTH - RIGHT - 90, HEIGHT - BOTTOM - 26 + 16 * i
        lines += [
            svg.rect(x, y - 9, 14, 8, colour),
            svg.text(x + 20, y, name),
        ]
    return lines
