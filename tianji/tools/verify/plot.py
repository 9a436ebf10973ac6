"""The plot of a comparison: learning curves as IQM with bands, and how old samples were. SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from tianji.core import stats
from tianji.observe.watch import WINDOW
from tianji.tools.verify import run_figures as measures
from tianji.tools.verify.compare import Equivalence, Pair, SampleAges
from tianji.tools.verify.run_figures import Floats, Training
from tianji.tools.verify.settings import Settings

WIDTH, HEIGHT = 460, 320  # of one panel
LEFT, RIGHT, TOP, BOTTOM = 62, 446, 34, 274  # edges of what is drawn in it
TICKS = 5  # on each axis
POINTS = 60  # of a curve
DRAWS = 200  # for a band: it is looked at, not judged by
BARS = 24
INK = "#222222"
SERIAL, DISTRIBUTED, TARGET = "#7a7a7a", "#0b6e99", "#c8553d"
BOTH = (SERIAL, DISTRIBUTED)

Shape = tuple[str, Floats, Floats, str]  # colour, x, y, further attributes


def draw(settings: Settings, pairs: list[Pair], found: Equivalence) -> str:
    """Three panels beside each other."""
    panels = [_curves(settings, pairs), *(_ages(each) for each in found.samples)]
    lines: list[str] = []
    for i, panel in enumerate(panels):
        lines += [f'<g transform="translate({i * WIDTH} 0)">', *panel, "</g>"]
    for i, (name, colour) in enumerate(zip(("serial", settings.engine), BOTH, strict=True)):
        y = BOTTOM - 26 + 16 * i
        lines += [rect(RIGHT - 90, y - 9, 14, 8, colour), text(RIGHT - 70, y, name)]
    return page(len(panels) * WIDTH, HEIGHT, lines)


def _panel(title: str, x_label: str, x_top: float, shapes: Sequence[Shape]) -> list[str]:
    """Axes from zero, and shapes between them."""
    heights = np.concatenate([np.zeros(1), *(y for _, _, y, _ in shapes)])
    low, top = float(heights.min()), 1.05 * float(heights.max()) or 1.0

    def across(x: Floats) -> Floats:
        return LEFT + (RIGHT - LEFT) * x / (x_top or 1.0)

    def up(y: Floats) -> Floats:
        return BOTTOM - (BOTTOM - TOP) * (y - low) / (top - low)

    parts = [
        text(LEFT, 20, title, weight="bold"),
        f'<path d="M{LEFT} {TOP} V{BOTTOM} H{RIGHT}" fill="none" stroke="{INK}"/>',
        text((LEFT + RIGHT) / 2, HEIGHT - 10, x_label, anchor="middle"),
    ]
    x_ticks, y_ticks = np.linspace(0, x_top, TICKS), np.linspace(low, top, TICKS)
    for x, at in zip(x_ticks, across(x_ticks), strict=True):
        parts.append(text(round(at), BOTTOM + 16, f"{x:,.5g}", anchor="middle"))
    for y, at in zip(y_ticks, up(y_ticks), strict=True):
        parts.append(text(LEFT - 6, round(at) + 4, f"{y:.3g}", anchor="end"))
    for colour, x, y, more in shapes:
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across(x), up(y), strict=True))
        parts.append(f'<polyline points="{points}" stroke="{colour}" fill="none"{more}/>')
    return parts


def _curves(settings: Settings, pairs: list[Pair]) -> list[str]:
    grid = np.linspace(0, settings.steps, POINTS + 1)[1:]
    shapes: list[Shape] = []
    for colour, arm in zip(BOTH, zip(*pairs, strict=True), strict=False):
        rows = np.vstack([grid, _band(list(arm), grid)])
        x, middle, low, high = rows[:, np.isfinite(rows).all(axis=0)]
        around = np.r_[x, x[::-1]], np.r_[low, high[::-1]]
        shaded = f' stroke-opacity="0" fill-opacity="0.2" style="fill:{colour}"'
        shapes += [(colour, *around, shaded), (colour, x, middle, ' stroke-width="1.8"')]
    highest = max((float(y.max(initial=0.0)) for _, _, y, _ in shapes), default=0.0)
    if settings.target is not None and settings.target <= 1.05 * highest:
        ends, level = np.array([0.0, settings.steps]), np.full(2, settings.target)
        shapes.append((TARGET, ends, level, ' stroke-dasharray="4 3"'))
    title = f"return of {WINDOW} episodes: IQM, 95 % band"
    return _panel(title, "environment steps", settings.steps, shapes)


def _band(arm: list[Training], grid: Floats) -> Floats:
    """Rows of IQM, low and high at every point; NaN before every run has finished an episode."""
    curves = np.array([measures.curve(run.episodes, grid) for run in arm])
    found = np.full((3, grid.size), np.nan)
    for i in np.flatnonzero(np.isfinite(curves).all(axis=0)):
        found[:, i] = stats.stratified([curves[:, i].tolist()], n=DRAWS)
    return found


def _ages(samples: SampleAges) -> list[str]:
    """Both histograms as lines over bars of one width."""
    both = (samples.serial, samples.distributed)
    top = max((edge for rows in both for edge, _ in rows), default=0) + 1
    width = -(-top // BARS)
    edges = np.repeat(np.arange(-(-top // width) + 1) * float(width), 2)[1:-1]
    shapes: list[Shape] = []
    for colour, rows in zip(BOTH, both, strict=True):
        counts = np.zeros(edges.size // 2)
        for edge, count in rows:
            counts[edge // width] += count
        shares = np.repeat(counts / (counts.sum() or 1.0), 2)
        shapes.append((colour, edges, shares, ' stroke-width="1.8"'))
    title = f"{samples.name} of samples: KS {samples.distance.ks:.3f}"
    return _panel(title, f"{samples.name} in {samples.unit}", float(edges[-1]), shapes)


def page(width: int, height: int, parts: Iterable[str]) -> str:
    """A whole file: the parts on white."""
    size = f'width="{width}" height="{height}"'
    style = f'font-family="sans-serif" font-size="12" fill="{INK}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>'
    return "\n".join(
        [head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>", ""]
    )


def text(
    x: float, y: float, words: str, anchor: str = "start", size: int = 12, weight: str = "normal"
) -> str:
    """Words that begin, end or have their middle at a point."""
    how = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x:g}" y="{y:g}" {how}>{escape(words)}</text>'


def rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    """A filled box."""
    return f'<rect x="{x:.2f}" y="{y:g}" width="{width:.2f}" height="{height:g}" fill="{colour}"/>'
