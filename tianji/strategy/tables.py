"""Tables of numbers and paragraphs behind labels, as rich lays them out in plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

ENDLESS = 10_000  # columns of a file or a pipe


def table(
    rows: Sequence[Sequence[str]],
    width: int | None,
    words: Collection[str] = (),
    least: Iterable[str] = (),
) -> str:
    """Rows under their head, with the columns of `words` to the left.

    Where the terminal is narrower, the columns called `least` go, the first one first, and a line
    below names them.
    """
    from rich.table import Table

    head, gone = rows[0], list[str]()

    def drawn() -> str:
        shown = [i for i, name in enumerate(head) if name not in gone]
        found = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for i in shown:
            left = head[i] in words
            found.add_column(head[i], justify="left" if left else "right", no_wrap=True)
        for row in rows[1:]:
            found.add_row(*(row[i] for i in shown))
        return plain(found, None)

    text = drawn()
    for name in least:
        if width is None or max(map(len, text.splitlines())) <= width:
            break
        gone.append(name)
        text = drawn()
    more = textwrap.wrap(f"left out: {', '.join(gone)}", width or ENDLESS) if gone else []
    return "\n".join([text, *more])


def labelled(rows: Iterable[tuple[str, str]], width: int | None) -> str:
    """Paragraphs, each behind its label and in a column of its own."""
    from rich.table import Table
    from rich.text import Text

    found = Table.grid(padding=(0, 2, 0, 0))
    found.add_column(no_wrap=True)
    found.add_column()
    for label, words in rows:
        found.add_row(Text(f"  {label}" if label else ""), Text(words))
    return plain(found, width)


def plain(what: RenderableType, width: int | None) -> str:
    """Without colours, and without blanks at the end of a line."""
    from rich.console import Console

    console = Console(width=width or ENDLESS, color_system=None, legacy_windows=False)
    with console.capture() as captured:
        console.print(what, soft_wrap=False, highlight=False, markup=False, emoji=False)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())
