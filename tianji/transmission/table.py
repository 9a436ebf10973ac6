"""The tables of a run in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tianji.core.columns import aligned
from tianji.transmission.rows import TITLES, Finding, Row, findings, knees

NARROW = 100  # columns of a terminal below which tables leave out what the CSV has as well


def of_part(part: str, rows: list[Row], width: int) -> list[str]:
    """The lines of one part's tables: by use, or by carrier."""
    rows = [row for row in rows if row.part == part]
    if part == "a":
        views, store = ([r for r in rows if r.use == use] for use in ("views", "store"))
        return [
            *_by_size(f"(a) {TITLES['views']}", views, width),
            *_by_size(f"(a) {TITLES['store']}", store, width),
        ]
    if part == "d":
        return _by_size(f"(d) {TITLES['d']}", rows, width)
    lines = []
    for carrier in _names(rows):
        curve = [row for row in rows if row.carrier == carrier]
        lines += _by_actors(f"({part}) {TITLES[part]}, {carrier}", curve, width)
    return lines


def conclusion(rows: list[Row], skipped: dict[str, str]) -> list[str]:
    """The figures that were asked for, and what was left out."""
    found = ["figures asked for", *_found(findings(rows)), ""] if rows else []
    return [*found, *(f"{name}: {reason}" for name, reason in skipped.items())]


def _names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.carrier for row in rows))


def _by_size(title: str, rows: list[Row], width: int) -> list[str]:
    """A line for each size: the limit, every carrier, and how near the first of ours comes."""
    if not rows:
        return []
    names = _names(rows)
    ours = next((name for name in ("shm", "mpi") if name in names), names[0])
    shares = _shares(ours, rows, width)
    table = [["KB", rows[0].limit, *names, *(header for header, _ in shares)]]
    for size in sorted({row.message_bytes for row in rows}):
        at = {row.carrier: row for row in rows if row.message_bytes == size}
        line = [f"{size // 1024:,}", _rate(next(iter(at.values())).limit_megabytes_per_second)]
        line += [_rate(at[name].megabytes_per_second) if name in at else "" for name in names]
        line += [cell(at[ours]) if ours in at else "" for _, cell in shares]
        table.append(line)
    return [f"{title}: MB/s", *aligned(table, left=()), ""]


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


def _by_actors(title: str, rows: list[Row], width: int) -> list[str]:
    """A line for each sample time and number of actors, and the knees below."""
    predicted = any(row.costs is not None for row in rows)
    head = ["ST ms", "actors", f"s/{rows[0].n_messages:,}"]
    head += ["eq. 1", "error %"] if predicted else []
    head += ["MB/s"] + (["Tsp us", "Tsd us", "Trv us"] if predicted else [])
    head += ["NA*"] if predicted and width >= NARROW else []
    table, last = [head], None
    for row in sorted(rows, key=lambda row: (row.asked_sample_seconds or 0, row.n_actors)):
        if last not in (None, row.asked_sample_seconds):
            table.append([""] * len(head))
        last = row.asked_sample_seconds
        table.append(_point(row)[: len(head)])
    said = [
        f"knee NA* of {1e3 * seconds:g} ms: {actors:.1f} actors"
        for (_, _, seconds), actors in knees(rows).items()
    ]
    return [title, *aligned(table, left=()), *(["; ".join(said)] if said else []), ""]


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


def _found(found: list[Finding]) -> list[str]:
    rows = [
        (each.what, each.asked, each.found, "reached" if each.is_reached else "missed")
        for each in found
    ]
    return aligned([("", "asked", "found", ""), *rows], left=(0, -1))
