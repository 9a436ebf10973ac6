"""The spatiotemporal diagram as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tianji.observe import svg
from tianji.strategy.simulate.schedule import Schedule
from tianji.strategy.simulate.timeline import Block, Doing
from tianji.strategy.simulate.window import Window, busy_shares, drawn_rows, windows

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
SIZE = 11  # of letters
MOST_TICKS = 10
MARK = "<desc>drawn by tianji plan --simulate --figure</desc>"  # a new picture may replace it
HEAD_CHARACTERS = 1_000  # of a file, within which the mark stands


def draw(all_: Sequence[Schedule]) -> str:
    """A panel for each style, all on one scale, and what the colours mean."""
    parts: list[str] = [MARK]
    y = 10
    for schedule, window in zip(all_, windows(all_), strict=True):
        drawn, y = _panel(schedule, window, y)
        parts += drawn
    for i, doing in enumerate(Doing):
        x, top = LEFT + i % 3 * 290, y + i // 3 * 20
        parts.append(svg.rect(x, top, 12, 12, COLOURS[doing]))
        parts.append(svg.text(x + 17, top + 10, doing.value, size=SIZE))
    return svg.page(WIDTH, y + 90, parts)


def is_picture(path: Path) -> bool:
    """Whether a file is what `draw` made, so that a new one may take its place."""
    try:
        with path.open(encoding="utf-8") as file:
            return MARK in file.read(HEAD_CHARACTERS)
    except (OSError, ValueError):
        return False


def _panel(schedule: Schedule, window: Window, y: int) -> tuple[list[str], int]:
    """The rows of one style from y on, and where they end."""
    busy = busy_shares(schedule)
    right = WIDTH - RIGHT + 8
    parts = [svg.text(LEFT, y + 12, schedule.heading, size=SIZE, weight="bold")]
    parts.append(svg.text(right, y + 12, "busy", size=SIZE))
    y += 18
    for row in drawn_rows(schedule):
        parts.append(svg.text(LEFT - 6, y + 11, row, anchor="end", size=SIZE))
        parts += _boxes([b for b in schedule.timeline.blocks if b.row == row], window, y)
        parts.append(svg.text(right, y + 11, f"{100 * busy[row]:.0f} %", size=SIZE))
        y += ROW
    for at, words in window.ticks(MOST_TICKS):
        x = _x(window.start + at, window)
        parts.append(f'<path d="M{x:.2f} {y - 2}v5" stroke="{svg.INK}"/>')
        parts.append(svg.text(x, y + 13, words, anchor="middle", size=SIZE))
    return parts, y + 28


def _boxes(blocks: Sequence[Block], window: Window, y: int) -> list[str]:
    """What of the blocks lies in the window."""
    boxes = []
    for block in blocks:
        left, right = max(block.start, window.start), min(block.end, window.end)
        if right > left:
            x = _x(left, window)
            boxes.append(svg.rect(x, y, _x(right, window) - x, ROW - 3, COLOURS[block.doing]))
    return boxes


def _x(at: float, window: Window) -> float:
    return LEFT + (at - window.start) / window.seconds * (WIDTH - LEFT - RIGHT)
