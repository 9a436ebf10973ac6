"""The spatiotemporal diagram in a terminal: a letter for each stretch of a core's time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tianji.core.wording import duration
from tianji.strategy.simulate.schedule import Schedule
from tianji.strategy.simulate.timeline import Block, Doing
from tianji.strategy.simulate.window import Window, busy_shares, drawn_rows, windows

SIGNS = {
    Doing.INFER: "i",
    Doing.SIMULATE: "s",
    Doing.UPDATE: "u",
    Doing.SEND: ">",
    Doing.RECEIVE: "r",
    Doing.PRIORITY: "p",
    Doing.WEIGHTS: "1",
    Doing.ACTION: "2",
    Doing.TRAJECTORIES: "3",
    Doing.ROOM: ".",
}
BOTH = "a"  # inference and simulation in turns, where one letter stands for several of each
BEGINS = "U"  # the first letter of an update
MEANINGS = {sign: doing.value for doing, sign in SIGNS.items()} | {
    SIGNS[Doing.UPDATE]: f"update; {BEGINS} where one begins",
    BOTH: "inference and simulation in turns",
}
ACTING = (Doing.INFER, Doing.SIMULATE)
ALONE = 0.9  # of the time of acting: from here on one letter for it, and not `BOTH`
BUSY = " busy"  # the head of the column on the right, as wide as `100 %`
TICK = 10  # letters between two numbers of the scale, at least


def text(all_: Sequence[Schedule], width: int = 100) -> str:
    """One block of rows for each style, all on one scale, and what the letters mean."""
    shown = windows(all_)
    label = max(len(row) for schedule in all_ for row in drawn_rows(schedule))
    n_cells = width - label - len(BUSY) - 2
    each = shown[0].seconds / n_cells
    head = (
        f"Who does what, for {duration(shown[0].seconds)} from where the first actor begins a "
        f"trajectory. A letter is {duration(each)} of a core, and what most of it went into; "
        "busy: of all the time that was simulated."
    )
    lines, used = [*textwrap.wrap(head, width), ""], set[str]()
    for schedule, window in zip(all_, shown, strict=True):
        cells = {
            row: _cells(_blocks(schedule, row), window, n_cells) for row in drawn_rows(schedule)
        }
        lines += [*_rows(schedule, cells, _scale(window, n_cells), label), ""]
        used.update(*cells.values())
    used |= {sign.lower() for sign in used}  # an update that is one letter has no small one
    return "\n".join(lines + [f"{sign} {MEANINGS[sign]}" for sign in MEANINGS if sign in used])


def _blocks(schedule: Schedule, row: str) -> list[Block]:
    return [block for block in schedule.timeline.blocks if block.row == row]


def _rows(schedule: Schedule, cells: dict[str, str], scale: str, label: int) -> list[str]:
    """One style: its name, the scale, and a line for each row that is drawn."""
    busy = busy_shares(schedule)
    lines = [schedule.heading, f"{'':>{label}} {scale} {BUSY}"]
    lines += [f"{row:>{label}} {signs} {100 * busy[row]:>3.0f} %" for row, signs in cells.items()]
    if hidden := len(schedule.timeline.rows()) - len(cells):
        lines.append(f"{'':>{label}} ... and {hidden} more")
    return lines


def _scale(window: Window, n_cells: int) -> str:
    """As in `|0 ms     |20       |40`; each stroke is where its number is."""
    line = ""
    for at, words in window.ticks(n_cells // TICK):
        longer = line.ljust(int(at / window.seconds * n_cells)) + f"|{words}"
        line = longer if len(longer) <= n_cells else line
    return line.ljust(n_cells)


def _cells(blocks: Sequence[Block], window: Window, n_cells: int) -> str:
    """A letter for each stretch: what most of it was spent on."""
    each = window.seconds / n_cells
    inside: list[list[tuple[float, Block]]] = [[] for _ in range(n_cells)]
    for block in blocks:
        first = max(0, int((block.start - window.start) / each))
        for i in range(first, min(n_cells, int((block.end - window.start) / each) + 1)):
            left = window.start + i * each
            seconds = min(block.end, left + each) - max(block.start, left)
            if seconds > 0:
                inside[i].append((seconds, block))
    signs, update = "", None
    for cell in inside:
        sign, longest = _sign(cell)
        if sign == SIGNS[Doing.UPDATE] and longest is not update:
            sign, update = BEGINS, longest
        signs += sign
    return signs


def _sign(cell: Sequence[tuple[float, Block]]) -> tuple[str, Block | None]:
    """The letter of one stretch, and the longest block of what it stands for."""
    if not cell:
        return " ", None
    spent = dict.fromkeys(Doing, 0.0)
    for seconds, block in cell:
        spent[block.doing] += seconds
    infer, simulate = (spent[doing] for doing in ACTING)
    others = {doing: seconds for doing, seconds in spent.items() if doing not in ACTING}
    most = max(others, key=lambda doing: others[doing])
    if infer + simulate >= others[most]:
        main = Doing.INFER if infer > simulate else Doing.SIMULATE
        return (SIGNS[main] if spent[main] >= ALONE * (infer + simulate) else BOTH), None
    of_it = [(seconds, block) for seconds, block in cell if block.doing is most]
    return SIGNS[most], max(of_it, key=lambda pair: pair[0])[1]
