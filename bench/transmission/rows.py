"""What was measured, one row per figure; and the figures that were asked for."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from transmission.equation import Costs, error_percent

LEAST_OF_LIMIT, LEAST_OF_LINK, LEAST_OF_PICKLED, MOST_ERROR = 0.80, 0.95, 5.0, 15.0  # asked
TITLES = {  # of parts b, c and d, and of the two uses in part a
    "views": "one actor, messages used where they lie",
    "store": "one actor, messages copied into a store",
    "b": "512 KB, actors on one host",
    "c": "512 KB, actors on several hosts",
    "d": "one actor across a link of 1 Gbit/s",
}
LARGE, LARGER, LINK_LEAST = 64 << 10, 512 << 10, 16 << 10  # bytes from which it is asked


@dataclass(frozen=True)
class Row:
    """One point: what was sent over what, how long it took, and what would have been possible."""

    part: str  # a: sizes, b: actors, c: actors on several hosts, d: sizes across a link
    carrier: str
    use: str  # what the receiver does with a message: views or store
    message_bytes: int
    n_messages: int
    seconds: float  # for all messages, in the median round
    n_actors: int = 1
    n_hosts: int = 1
    asked_sample_seconds: float | None = None
    limit: str = ""  # what the rate is compared with
    limit_seconds: float | None = None  # that this takes for the same messages
    of_limit: float | None = None  # our rate in parts of it, the median of the rounds
    of_beside: float | None = None  # the same of a memcpy beside a busy process
    costs: Costs | None = None  # that equation 1 is given
    wire_bytes: int | None = None  # counted on the receiver's link, by one of the rounds
    wire_payload_bytes: int | None = None  # of the messages among them, with those that warm up
    n_wrong: int = 0  # messages lost, doubled or out of order

    @property
    def megabytes_per_second(self) -> float:
        """Bytes of messages that the receiver got in a second, without any headers."""
        return self.n_messages * self.message_bytes / self.seconds / 1e6

    @property
    def wire_share(self) -> float | None:
        """Bytes on the link for each byte of messages; None where none was crossed."""
        return self.wire_bytes / self.wire_payload_bytes if self.wire_payload_bytes else None

    @property
    def messages_per_second(self) -> float:
        """Messages of all actors together that the receiver got in a second."""
        return self.n_messages / self.seconds

    @property
    def limit_megabytes_per_second(self) -> float | None:
        """The rate of what it is compared with; None where there is nothing to compare with."""
        if self.limit_seconds is None:
            return None
        return self.n_messages * self.message_bytes / self.limit_seconds / 1e6

    @property
    def predicted_seconds(self) -> float | None:
        """The collection time by equation 1 from the costs; None where they were not measured."""
        if self.costs is None:
            return None
        return self.costs.collection_seconds(self.n_messages, self.n_actors)

    @property
    def error_percent(self) -> float | None:
        """How far the prediction lies from the measurement."""
        predicted = self.predicted_seconds
        return None if predicted is None else error_percent(predicted, self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Every field and every derived figure, as plain data without nesting."""
        said = dataclasses.asdict(self)
        del said["costs"]
        costs = self.costs
        return said | {
            "megabytes_per_second": self.megabytes_per_second,
            "messages_per_second": self.messages_per_second,
            "limit_megabytes_per_second": self.limit_megabytes_per_second,
            "sample_seconds": costs and costs.sample,
            "send_seconds": costs and costs.send,
            "receive_seconds": costs and costs.receive,
            "knee_actors": costs and costs.knee,
            "predicted_seconds": self.predicted_seconds,
            "error_percent": self.error_percent,
        }


@dataclass(frozen=True)
class Finding:
    """A figure that was asked for, and what was found."""

    what: str
    asked: str
    found: str
    is_reached: bool


def findings(rows: list[Row]) -> list[Finding]:
    """Every figure that these rows can say something about."""
    named = [
        _least("shm, views, of warm memcpy (>= 64 KB)", _ratios(rows, "views"), LEAST_OF_LIMIT),
        _least("  of memcpy beside a busy process", _beside(rows), LEAST_OF_LIMIT),
        _least("shm, store, of the copy alone (>= 64 KB)", _ratios(rows, "store"), LEAST_OF_LIMIT),
        *(
            _least(
                f"shm, {use}, times pickled MPI (>= 512 KB)",
                _of_pickled(rows, use),
                LEAST_OF_PICKLED,
            )
            for use in ("views", "store")
        ),
        _error("equation 1, one host, error", [row for row in rows if row.part == "b"]),
        _error("equation 1, several hosts, error", [row for row in rows if row.part == "c"]),
        _least("mpi across the link, of raw TCP (>= 16 KB)", _of_link(rows), LEAST_OF_LINK),
        _whole(rows),
    ]
    return [finding for finding in named if finding is not None]


def knees(rows: list[Row]) -> dict[tuple[str, str, float], float]:
    """The knee of each curve, where more actors cease to help, by part, carrier and sample time.

    The receiver's cost depends a little on the number of actors, so the knee is that of the first
    row with as many actors as its own knee; of the last row where the curve has not come so far.
    """
    found: dict[tuple[str, str, float], float] = {}
    is_past: set[tuple[str, str, float]] = set()
    for row in sorted(rows, key=lambda row: row.n_actors):
        if row.costs is None or row.asked_sample_seconds is None:
            continue
        curve = (row.part, row.carrier, row.asked_sample_seconds)
        if curve not in is_past:
            found[curve] = row.costs.knee
        if row.n_actors >= row.costs.knee:
            is_past.add(curve)
    return found


def _ratios(rows: list[Row], use: str) -> list[float]:
    large = _of("a", "shm", rows, LARGE)
    return [row.of_limit for row in large if row.use == use and row.of_limit is not None]


def _beside(rows: list[Row]) -> list[float]:
    return [row.of_beside for row in _of("a", "shm", rows, LARGE) if row.of_beside is not None]


def _of_link(rows: list[Row]) -> list[float]:
    return [row.of_limit for row in _of("d", "mpi", rows, LINK_LEAST) if row.of_limit is not None]


def _of_pickled(rows: list[Row], use: str) -> list[float]:
    ours = {row.message_bytes: row for row in _of("a", "shm", rows, LARGER) if row.use == use}
    return [
        ours[row.message_bytes].megabytes_per_second / row.megabytes_per_second
        for row in _of("a", "pickled-mpi", rows, LARGER)
        if row.use == use and row.message_bytes in ours
    ]


def _of(part: str, carrier: str, rows: list[Row], least_bytes: int) -> list[Row]:
    return [
        row
        for row in rows
        if row.part == part and row.carrier == carrier and row.message_bytes >= least_bytes
    ]


def _least(what: str, ratios: list[float], asked: float) -> Finding | None:
    if not ratios:
        return None
    found = f"{min(ratios):.2f} - {max(ratios):.2f}"
    return Finding(what, f">= {asked:g}", found, min(ratios) >= asked)


def _error(what: str, rows: list[Row]) -> Finding | None:
    ours = [row for row in rows if row.carrier in ("shm", "mpi")]
    errors = [row.error_percent for row in ours if row.error_percent is not None]
    if not errors:
        return None
    worst = max(abs(error) for error in errors)
    found = f"{min(errors):+.1f} % - {max(errors):+.1f} %"
    return Finding(what, f"<= {MOST_ERROR:g} %", found, worst <= MOST_ERROR)


def _whole(rows: list[Row]) -> Finding | None:
    if not rows:
        return None
    n, wrong = sum(row.n_messages for row in rows), sum(row.n_wrong for row in rows)
    return Finding("messages lost, doubled or out of order", "0", f"{wrong} of {n:,}", not wrong)
