"""Tables and paragraphs of plain text, in as many columns as there are: no word is ever cut.

A `width` of None is a place without an end, as a file has it: nothing is wrapped or left out there.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Collection, Sequence

GAP = "  "  # between two columns
NARROWEST_CELL = 16  # columns that it is wrapped to at least


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """A line for each row, the head among them: numbers end, and words begin, where the head does.

    The columns in `left`, of which -1 is the last, hold words. A table that is wider than its
    terminal goes on in the next line there; `fitted` has a way out.
    """
    widths = _widths(rows)
    words = {i % len(widths) for i in left}
    return [
        GAP.join(
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def fitted(
    rows: Sequence[Sequence[str]],
    width: int | None,
    left: Collection[int] = (0,),
    least: Sequence[str] = (),
) -> list[str]:
    """The table of `aligned` in `width` columns, and below it a line about what had no room.

    First the columns called `least` are left out, one after the other, and those of them shown
    after all that have room in the end; then words in the last column go on below themselves, if it
    is one of those in `left`.
    """
    words = {i % len(rows[0]) for i in left}
    widths = _widths(rows)
    gone, full = list[str](), _needed(widths)

    def without(names: Collection[str]) -> list[int]:
        return [i for i, name in enumerate(rows[0]) if name not in names]

    def fits(names: Collection[str]) -> bool:
        return width is None or _needed([widths[i] for i in without(names)]) <= width

    for name in least:
        if fits(gone):
            break
        gone.append(name)
    for name in reversed(gone):
        if fits(others := [other for other in gone if other != name]):
            gone = others
    shown = without(gone)
    kept, of_words = _only(rows, shown), [i for i, place in enumerate(shown) if place in words]
    if width is not None and len(shown) - 1 in of_words:
        kept = _folded(kept, width)
    lines = aligned(kept, of_words)
    if gone and width is not None:
        said = f"left out: {', '.join(gone)} (a terminal of {full} columns shows all)"
        lines += wrapped(said, width, indent=2)
    return lines


def wrapped(text: str, width: int | None, indent: int = 0, first: str = "") -> list[str]:
    """Lines of whole words; `first` stands before the first, and the others are `indent`ed."""
    if width is None:
        return [first + text]
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [first.rstrip()]


def labelled(label: str, text: str, width: int | None, size: int) -> str:
    """Words behind their label; all lines of them begin in the same column, after `size`."""
    return "\n".join(wrapped(text, width, size + 2, f"  {label:<{size}}"))


def command(words: Sequence[str], width: int | None, first: str = "") -> list[str]:
    """A command that can be copied into a shell, with its line ends; an option keeps its value."""
    whole = first + shlex.join(words)
    if width is None or len(whole) <= width:
        return [whole]
    lines: list[str] = []
    for part in _parts([shlex.quote(word) for word in words]):
        if lines and len(lines[-1]) + len(f" {part} \\") <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(("    " if lines else "  ") + part)
    broken = [*(f"{line} \\" for line in lines[:-1]), lines[-1]]
    return [first.rstrip(), *broken] if first else broken


def _parts(words: Sequence[str]) -> list[str]:
    """Each option together with what follows it."""
    parts: list[str] = []
    for i, word in enumerate(words):
        if i and words[i - 1].startswith("--") and not word.startswith("--"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _needed(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _only(rows: Sequence[Sequence[str]], shown: Sequence[int]) -> list[list[str]]:
    return [[row[i] for i in shown] for row in rows]


def _folded(rows: list[list[str]], width: int) -> list[list[str]]:
    """The same with the last cells on as many lines as they need."""
    *others, last = _widths(rows)
    room = max(NARROWEST_CELL, width - sum(others) - len(GAP) * len(others))
    if last <= room:
        return rows
    folded = []
    for row in rows:
        head, *rest = wrapped(row[-1], room)
        folded.append([*row[:-1], head])
        folded += [[*[""] * len(others), more] for more in rest]
    return folded
