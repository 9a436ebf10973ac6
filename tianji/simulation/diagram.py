"""The spatiotemporal diagram: in a terminal with a character per stretch of time, or as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tianji.simulation.schedule import Schedule
from tianji.simulation.timeline import Block, Doing

GLYPHS = {
    Doing.INFER: "▒",
    Doing.SIMULATE: "░",
    Doing.UPDATE: "█",
    Doing.SEND: "»",
    Doing.RECEIVE: "▪",
    Doing.PRIORITY: "▓",
    Doing.WEIGHTS: "₁",
    Doing.ACTION: "₂",
    Doing.TRAJECTORIES: "₃",
    Doing.ROOM: "·",
}
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
MOST_ROWS = 6  # of actors or workers in one picture; the others look the same
SHOWN = 3 / 16  # of what was scheduled, from the end
WIDTH, ROW, LEFT = 1_000, 16, 90  # of the picture, in pixels


def text(all_: Sequence[Schedule], width: int = 100) -> str:
    """One block of rows for each style, and what the characters mean."""
    lines: list[str] = []
    for schedule in all_:
        start, end = _shown(schedule)
        lines.append(f"{schedule.style}: {schedule.cores} cores, {_time(end - start)} of a run")
        rows = _rows(schedule)
        label = max(len(row) for row in rows)
        for row in rows:
            blocks = [block for block in schedule.timeline.blocks if block.row == row]
            lines.append(f"{row:>{label}} {_cells(blocks, start, end, width - label - 1)}")
        if hidden := len(schedule.timeline.rows()) - len(rows):
            lines.append(f"{'':>{label}} ... and {hidden} more")
        lines.append("")
    used = {block.doing for schedule in all_ for block in schedule.timeline.blocks}
    lines += [f"{GLYPHS[doing]} {doing.value}" for doing in Doing if doing in used]
    return "\n".join(lines)


def svg(all_: Sequence[Schedule]) -> str:
    """The same as a picture."""
    parts, y = [], 10
    for schedule in all_:
        drawn, y = _panel(schedule, y)
        parts += drawn
    for i, doing in enumerate(Doing):
        x, top = LEFT + i % 3 * 290, y + i // 3 * 20
        parts.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{COLOURS[doing]}"/>')
        parts.append(f'<text x="{x + 17}" y="{top + 10}">{escape(doing.value)}</text>')
    height = y + 90
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
    style = 'font-family="sans-serif" font-size="11" fill="#222222"'
    return "\n".join([f"{head} {style}>", _background(), *parts, "</svg>", ""])


def _background() -> str:
    return '<rect width="100%" height="100%" fill="white"/>'


def _panel(schedule: Schedule, y: int) -> tuple[list[str], int]:
    """The rows of one style from y on, and where they end."""
    start, end = _shown(schedule)
    scale = (WIDTH - LEFT - 10) / (end - start)
    title = f"{schedule.style}: {schedule.cores} cores, {_time(end - start)}"
    parts = [f'<text x="{LEFT}" y="{y + 12}" font-weight="bold">{escape(title)}</text>']
    y += 18
    for row in _rows(schedule):
        parts.append(f'<text x="{LEFT - 6}" y="{y + 11}" text-anchor="end">{escape(row)}</text>')
        for block in schedule.timeline.blocks:
            left, right = max(block.start, start), min(block.end, end)
            if block.row == row and right > left:
                x, width = LEFT + (left - start) * scale, (right - left) * scale
                parts.append(
                    f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 3}" '
                    f'fill="{COLOURS[block.doing]}"/>'
                )
        y += ROW
    return parts, y + 12


def _rows(schedule: Schedule) -> list[str]:
    """The first actors or workers, and all else."""
    rows = schedule.timeline.rows()
    many = [row for row in rows if row[0] in "AW"]
    return many[:MOST_ROWS] + [row for row in rows if row[0] not in "AW"]


def _shown(schedule: Schedule) -> tuple[float, float]:
    return schedule.end * (1 - SHOWN), schedule.end


def _cells(blocks: Sequence[Block], start: float, end: float, width: int) -> str:
    """A character for each stretch: what most of it was spent on."""
    each = (end - start) / width
    spent: list[dict[Doing, float]] = [{} for _ in range(width)]
    for block in blocks:
        first = max(0, int((block.start - start) / each))
        for i in range(first, min(width, int((block.end - start) / each) + 1)):
            left = start + i * each
            seconds = min(block.end, left + each) - max(block.start, left)
            if seconds > 0:
                spent[i][block.doing] = spent[i].get(block.doing, 0.0) + seconds
    return "".join(GLYPHS[max(of, key=lambda d: of[d])] if of else " " for of in spent).rstrip()


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
