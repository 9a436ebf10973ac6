"""The spatiotemporal diagram as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tianji.simulation.schedule import Schedule
from tianji.simulation.timeline import Block, Doing
from tianji.simulation.window import Window, busy_shares, drawn_rows, windows

COLOURS = {
    Doing.INFER: "#0b6e99",
    Doing.SIMULATE: "#8cc3d9",
    Doing.UPDATE: "#2f9e62",
    Doing.SEND: "#d39b22",
    Doing.RECEIVE: "#8a5a9e",
    Doing.PRIORITY: "#4b4f9e",
    Doing.WEIGHTS: "#f0b8ab",
    Doing.ACTION: "#e5897a",
    Doing.TRAJECTORIES: "#f6d5cd",
    Doing.ROOM: "#eeeeee",
}
WIDTH, ROW, LEFT, RIGHT = 1_000, 16, 60, 60  # of the picture, in pixels
MOST_TICKS = 10


def svg(all_: Sequence[Schedule]) -> str:
    """A panel for each style, all on one scale, and what the colours mean."""
    parts, y = [], 10
    for schedule, window in zip(all_, windows(all_), strict=True):
        drawn, y = _panel(schedule, window, y)
        parts += drawn
    for i, doing in enumerate(Doing):
        x, top = LEFT + i % 3 * 290, y + i // 3 * 20
        parts.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{COLOURS[doing]}"/>')
        parts.append(_words(x + 17, top + 10, doing.value))
    height = y + 90
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
    style = 'font-family="sans-serif" font-size="11" fill="#222222"'
    background = '<rect width="100%" height="100%" fill="white"/>'
    return "\n".join([f"{head} {style}>", background, *parts, "</svg>", ""])


def _panel(schedule: Schedule, window: Window, y: int) -> tuple[list[str], int]:
    """The rows of one style from y on, and where they end."""
    idle, busy = 100 * sum(schedule.idle().values()), busy_shares(schedule)
    title = f"{schedule.style}: {schedule.cores} cores, idle {idle:.1f} % of their time"
    parts = [_words(LEFT, y + 12, title, 'font-weight="bold"'), _words(_right(), y + 12, "busy")]
    y += 18
    for row in drawn_rows(schedule):
        parts.append(_words(LEFT - 6, y + 11, row, 'text-anchor="end"'))
        parts += [_box(b, window, y) for b in schedule.timeline.blocks if b.row == row]
        parts.append(_words(_right(), y + 11, f"{100 * busy[row]:.0f} %"))
        y += ROW
    for at, words in window.ticks(MOST_TICKS):
        x = _x(at + window.start, window)
        parts.append(f'<path d="M{x:.2f} {y - 2}v5" stroke="#222222"/>')
        parts.append(_words(x, y + 13, words, 'text-anchor="middle"'))
    return [part for part in parts if part], y + 28


def _box(block: Block, window: Window, y: int) -> str:
    """What of a block lies in the window; nothing if nothing does."""
    left, right = max(block.start, window.start), min(block.end, window.end)
    if right <= left:
        return ""
    x, width = _x(left, window), _x(right, window) - _x(left, window)
    return (
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 3}" '
        f'fill="{COLOURS[block.doing]}"/>'
    )


def _x(at: float, window: Window) -> float:
    return LEFT + (at - window.start) / window.seconds * (WIDTH - LEFT - RIGHT)


def _right() -> int:
    return WIDTH - RIGHT + 8


def _words(x: float, y: int, words: str, how: str = "") -> str:
    return f'<text x="{x:.2f}" y="{y}" {how}>{escape(words)}</text>'
