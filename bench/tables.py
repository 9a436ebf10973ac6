"""Tables of rows: which rows, what stands in a cell, and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from measures import Spread
from trainings import Row

LOUD = 0.1  # share of the machine that others may use before a run


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown reads it."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"| {' | '.join(header)} |", "|---" * len(header) + "|", *lines])


def spread(rows: Iterable[Row], column: str) -> Spread:
    """Median and range of a column."""
    return Spread.of(row[column] for row in rows)


def cells(rows: Sequence[Row], columns: Mapping[str, int]) -> list[str]:
    """One cell for each column, shown with so many digits."""
    return [spread(rows, column).text(digits) for column, digits in columns.items()]


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def values(rows: Iterable[Row], column: str) -> list[Any]:
    """Those that a column has, in the order in which they came."""
    return list(dict.fromkeys(row[column] for row in rows))


def warning(loads: Iterable[float]) -> str:
    """How many runs began on a machine that was not quiet; empty if all began on a quiet one."""
    found = [load > LOUD for load in loads]
    if not any(found):
        return ""
    share = f"{LOUD:.0%}".replace("%", " %")
    return f"{sum(found)} of {len(found)} runs began while others used over {share} of the machine."
