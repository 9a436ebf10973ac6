"""The spatiotemporal diagram: a row for each core, a colour for each thing that it does."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from systems.schedule import Schedule
from systems.timeline import Doing

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
SHOWN = 1.5  # rollouts with their updates
MOST_ROWS = 6  # of actors or workers in one picture; the others look the same


def draw(all_: Sequence[Schedule]) -> Figure:
    """A panel for each style, all on one scale, and what the colours mean."""
    longest = SHOWN * max(schedule.cycle_seconds for schedule in all_)
    seconds = min(longest, *((schedule.end - schedule.start) / 2 for schedule in all_))
    heights = [len(drawn_rows(schedule)) + 2 for schedule in all_]
    figure = Figure(figsize=(11, 0.2 * sum(heights) + 1), layout="constrained")
    panels = figure.subplots(len(all_), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, schedule in zip(panels, all_, strict=True):
        _panel(axes, schedule, begin(schedule, seconds), seconds)
    panels[-1].set(xlim=(0, 1e3 * seconds), xlabel="ms")
    meanings = [Patch(color=COLOURS[doing], label=doing.value) for doing in Doing]
    figure.legend(handles=meanings, loc="outside lower center", ncols=4, fontsize="small")
    return figure


def _panel(axes: Axes, schedule: Schedule, start: float, seconds: float) -> None:
    """The rows of one style, with the share of all time that each is busy."""
    rows, busy = drawn_rows(schedule), schedule.busy()
    for i, row in enumerate(rows):
        for doing, colour in COLOURS.items():
            blocks = [
                (1e3 * (block.start - start), 1e3 * (block.end - block.start))
                for block in schedule.timeline.blocks
                if (block.row, block.doing) == (row, doing)
                and block.end > start
                and block.start < start + seconds
            ]
            axes.broken_barh(blocks, (i - 0.4, 0.8), color=colour)
    axes.set_title(schedule.heading, fontsize="small", loc="left")
    labels = [f"{row}  {100 * busy[row]:.0f} %" for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize="x-small")
    axes.set_ylim(len(rows) - 0.5, -0.5)


def begin(schedule: Schedule, seconds: float) -> float:
    """The last beginning of a trajectory of the first actor that leaves room for so long."""
    latest = schedule.end - seconds
    begun = schedule.timeline.begun.get(schedule.timeline.rows()[0], [])
    return max((at for at in begun if at <= latest), default=latest)


def drawn_rows(schedule: Schedule) -> list[str]:
    """The first actors or workers, and all else."""
    rows = schedule.timeline.rows()
    many = [row for row in rows if row[0] in "AW"]
    return many[:MOST_ROWS] + [row for row in rows if row[0] not in "AW"]
