"""Tables of plain text: columns side by side, and nothing is ever cut to fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """A line for each row, the head among them: numbers end, and words begin, where the head does.

    The columns in `left`, of which -1 is the last, hold words. A table that is wider than its
    terminal goes on in the next line there; whoever minds gives it fewer columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    words = {i % len(widths) for i in left}
    return [
        "  ".join(
            cell.ljust(width) if i in words else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
