"""Tables and paragraphs of plain text, in as many columns as there are: no word is ever cut.

A `width` of None is a place without an end, as a file has it: nothing is wrapped or left out there.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Collection, Sequence
from io import StringIO

GAP = 2  # blanks between two columns
ENDLESS = 10_000  # columns of a place without an end, more than any table has
NARROWEST_CELL = 16  # columns that it is wrapped to at least


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """A line for each row, the head among them: numbers end, and words begin, where the head does.

    The columns in `left`, of which -1 is the last, hold words. A table that is wider than its
    terminal goes on in the next line there; `fitted` has a way out.
    """
    return fitted(rows, None, left)


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
    sizes = [(column[0], max(map(len, column))) for column in zip(*rows, strict=True)]
    full, gone = _needed(sizes), list[str]()

    def fits(names: Collection[str]) -> bool:
        return width is None or _needed([s for s in sizes if s[0] not in names]) <= width

    for name in least:
        if fits(gone):
            break
        gone.append(name)
    for name in reversed(gone):
        if fits(others := [other for other in gone if other != name]):
            gone = others
    shown = [i for i, name in enumerate(rows[0]) if name not in gone]
    lines = _drawn([[row[i] for i in shown] for row in rows], [i in words for i in shown], width)
    if gone and width is not None:
        said = f"left out: {', '.join(gone)} (a terminal of {full} columns shows all)"
        lines += wrapped(said, width, indent=2)
    return lines


def _drawn(rows: list[list[str]], is_words: list[bool], width: int | None) -> list[str]:
    from rich.console import Console  # late: it takes a while to load
    from rich.table import Table
    from rich.text import Text

    *others, last = (max(map(len, column)) for column in zip(*rows, strict=True))
    room = None
    if width is not None and is_words[-1]:
        room = min(last, max(NARROWEST_CELL, width - sum(others) - GAP * len(others)))
    table = Table.grid(padding=(0, GAP, 0, 0))
    for i, left in enumerate(is_words):
        ends = i == len(is_words) - 1
        table.add_column(
            justify="left" if left else "right",
            no_wrap=room is None or not ends,
            width=room if ends else None,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    page = StringIO()
    Console(file=page, width=ENDLESS, color_system=None, legacy_windows=False).print(table)
    return [line.rstrip() for line in page.getvalue().splitlines()]


def _needed(sizes: Sequence[tuple[str, int]]) -> int:
    return sum(size for _, size in sizes) + GAP * (len(sizes) - 1)


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
