"""The tables of a run in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from tianji.transmission.rows import TITLES, Finding, Row, findings, knees

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

NARROW = 100  # columns of a terminal below which tables leave out what the CSV has as well


def of_part(part: str, rows: list[Row], width: int) -> list[RenderableType]:
    """The tables of one part: by use, or by carrier."""
    rows = [row for row in rows if row.part == part]
    if part == "a":
        views, store = ([r for r in rows if r.use == use] for use in ("views", "store"))
        return [
            *_by_size(f"(a) {TITLES['views']}", views, width),
            *_by_size(f"(a) {TITLES['store']}", store, width),
        ]
    if part == "d":
        return _by_size(f"(d) {TITLES['d']}", rows, width)
    tables = []
    for carrier in _names(rows):
        curve = [row for row in rows if row.carrier == carrier]
        tables += _by_actors(f"({part}) {TITLES[part]}, {carrier}", curve, width)
    return tables


def conclusion(rows: list[Row], skipped: dict[str, str]) -> list[RenderableType]:
    """The figures that were asked for, and what was left out."""
    from rich.text import Text

    found = [_headline("figures asked for"), _found(findings(rows))] if rows else []
    return [*found, *(Text(f"{name}: {reason}", "yellow") for name, reason in skipped.items())]


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.carrier for row in rows))


def _headline(words: str) -> RenderableType:
    from rich.text import Text

    return Text(words, "bold")


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _by_size(title: str, rows: list[Row], width: int) -> list[RenderableType]:
    """A line for each size: the limit, every carrier, and how near the first of ours comes."""
    if not rows:
        return []
    names = _names(rows)
    ours = next((name for name in ("shm", "mpi") if name in names), names[0])
    shares = _shares(ours, rows, width)
    table = _table("KB", rows[0].limit, *names, *(header for header, _ in shares))
    for size in sorted({row.message_bytes for row in rows}):
        at = {row.carrier: row for row in rows if row.message_bytes == size}
        line = [f"{size // 1024:,}", _rate(next(iter(at.values())).limit_megabytes_per_second)]
        line += [_rate(at[name].megabytes_per_second) if name in at else "" for name in names]
        line += [cell(at[ours]) if ours in at else "" for _, cell in shares]
        table.add_row(*line)
    return [_headline(f"{title}: MB/s"), table]


def _shares(name: str, rows: list[Row], width: int) -> list[tuple[str, Callable[[Row], str]]]:
    """The columns about one carrier: a header, and the cell that a row has below it."""
    columns = [(f"{name} of it", lambda row: _share(row.of_limit))]
    if any(row.of_beside is not None for row in rows):
        columns.append(("of it, beside", lambda row: _share(row.of_beside)))
    if width >= NARROW:
        columns.append((f"{name} messages/s", lambda row: f"{row.messages_per_second:,.0f}"))
    if any(row.wire_bytes for row in rows):
        columns.append(("wire/payload", _overhead))
    return columns


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _overhead(row: Row) -> str:
    wire, payload = row.wire_bytes, row.wire_payload_bytes
    return f"{wire / payload:.3f}" if wire and payload else ""


def _rate(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.1f}"


def _by_actors(title: str, rows: list[Row], width: int) -> list[RenderableType]:
    """A line for each sample time and number of actors, and the knees below."""
    from rich.text import Text

    predicted = any(row.costs is not None for row in rows)
    head = ["ST ms", "actors", f"s/{rows[0].n_messages:,}"]
    head += ["eq. 1", "error %"] if predicted else []
    head += ["MB/s"] + (["Tsp us", "Tsd us", "Trv us"] if predicted else [])
    head += ["NA*"] if predicted and width >= NARROW else []
    table, last = _table(*head), None
    for row in sorted(rows, key=lambda row: (row.asked_sample_seconds or 0, row.n_actors)):
        if last not in (None, row.asked_sample_seconds):
            table.add_section()
        last = row.asked_sample_seconds
        table.add_row(*_point(row)[: len(head)])
    said = [
        f"knee NA* of {1e3 * seconds:g} ms: {actors:.1f} actors"
        for (_, _, seconds), actors in knees(rows).items()
    ]
    return [_headline(title), table, *([Text("; ".join(said) + "\n")] if said else [])]


def _point(row: Row) -> list[str]:
    cells = [f"{1e3 * (row.asked_sample_seconds or 0):g}", str(row.n_actors), _time(row.seconds)]
    rate = _rate(row.megabytes_per_second)
    if row.costs is None or row.predicted_seconds is None:
        return [*cells, rate]
    each = (row.costs.sample, row.costs.send, row.costs.receive)
    cells += [_time(row.predicted_seconds), f"{row.error_percent:+.1f}", rate]
    return [*cells, *(f"{1e6 * cost:,.0f}" for cost in each), f"{row.costs.knee:.1f}"]


def _time(seconds: float) -> str:
    return f"{seconds:,.1f}" if seconds >= 10 else f"{seconds:.2f}"


def _found(found: list[Finding]) -> RenderableType:
    from rich.text import Text

    table = _table("", "asked", "found", "")
    table.columns[0].justify = "left"
    for each in found:
        word = Text("reached", "green") if each.is_reached else Text("missed", "bold red")
        table.add_row(each.what, each.asked, each.found, word)
    return table
