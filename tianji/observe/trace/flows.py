"""Arrows of a timeline: from a trajectory to the batch, to the update, to the weights, to actors.

trajectory   an actor sends it -> the buffer stores it -> the first batch that is drawn then
batch        the buffer sends it -> the update that is made of it -> the weights it is sent in
weights      the learner sends them -> an actor loads them, once for each actor
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tianji.core.tracer import What
from tianji.observe.trace.format import Doing
from tianji.observe.trace.trace_reader import Rows, Trace
from tianji.roles.role_specs import Kind, group_of, kind_of, role_name

LEAST_SECONDS = 2e-9  # before the end of a row, so that a point lies within it


@dataclass(frozen=True)
class Point:
    """A moment within a row of a role, that an arrow comes to or goes from."""

    role: str
    at: float


@dataclass(frozen=True)
class Flow:
    """A chain of arrows."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Stop:
    """A row that a flow passes through."""

    role: str
    began: float
    ended: float


def flows_of(trace: Trace) -> Iterator[Flow]:
    """All flows of which two ends at least lie in the window."""
    rows = {role.name: role.rows for role in trace.roles}
    for buffer in [name for name in rows if kind_of(name) is Kind.BUFFER]:
        yield from _trajectories(buffer, rows)
        yield from _batches(buffer, rows)
    for actor in [name for name in rows if kind_of(name) is Kind.ACTOR]:
        yield from _weights(actor, rows)


def rows_of_kind(rows: Rows, kind: Doing, what: What | None = None) -> Rows:
    """The rows of one kind, and of one thing that is sent or received."""
    mask = rows["kind"] == kind
    if what is not None:
        mask = mask & (rows["what"] == what)
    found: Rows = rows[mask]
    return found


def _trajectories(buffer: str, rows: dict[str, Rows]) -> Iterator[Flow]:
    came = rows_of_kind(rows[buffer], Doing.RECEIVE, What.TRAJECTORY)
    drawn = rows_of_kind(rows[buffer], Doing.SEND, What.BATCH)
    group = group_of(buffer)
    sent = {
        name: _by(rows_of_kind(own, Doing.SEND, What.TRAJECTORY), "number")
        for name, own in rows.items()
        if kind_of(name) is Kind.ACTOR and group_of(name) == group
    }
    for row in came:
        actor = role_name(Kind.ACTOR, int(row["peer"]), group)
        start = sent.get(actor, {}).get(int(row["number"]))
        next_batch = int(np.searchsorted(drawn["began"], row["ended"]))
        stops = [] if start is None else [_stop(actor, start)]
        stops.append(_stop(buffer, row))
        if next_batch < drawn.size:
            stops.append(_stop(buffer, drawn[next_batch]))
        yield from _flow("trajectory", stops)


def _batches(buffer: str, rows: dict[str, Rows]) -> Iterator[Flow]:
    group = group_of(buffer)
    first = role_name(Kind.LEARNER, 0, group)
    if first not in rows:
        return
    updates = _by(rows_of_kind(rows[first], Doing.UPDATE), "version")
    published = rows_of_kind(rows[first], Doing.SEND, What.WEIGHTS)
    for version, row in _by(rows_of_kind(rows[buffer], Doing.SEND, What.BATCH), "version").items():
        stops = [_stop(buffer, row)]
        if (update := updates.get(version)) is not None:
            stops.append(_stop(first, update))
            place = int(np.searchsorted(published["version"], version + 1))
            if place < published.size and published[place]["began"] >= update["began"]:
                stops.append(_stop(first, published[place]))
        yield from _flow("batch", stops)


def _weights(actor: str, rows: dict[str, Rows]) -> Iterator[Flow]:
    learner = role_name(Kind.LEARNER, 0, group_of(actor))
    if learner not in rows:
        return
    published = _by(rows_of_kind(rows[learner], Doing.SEND, What.WEIGHTS), "version")
    for row in rows_of_kind(rows[actor], Doing.RECEIVE, What.WEIGHTS):
        if (start := published.get(int(row["version"]))) is not None:
            yield from _flow("weights", [_stop(learner, start), _stop(actor, row)])


def _by(rows: Rows, field: str) -> dict[int, Rows]:
    """Rows by a number of theirs; of several with the same one, the first."""
    return {int(row[field]): row for row in rows[::-1]}


def _stop(role: str, row: Rows) -> Stop:
    return Stop(role, float(row["began"]), float(row["ended"]))


def _flow(name: str, stops: list[Stop]) -> Iterator[Flow]:
    """Points that never go back in time: a receiver may be done before its sender is.

    Where one would all the same, because the clocks of two hosts differ, there is no arrow.
    """
    points: list[Point] = []
    for stop in stops:
        before = points[-1].at if points else stop.began
        middle = (stop.began + stop.ended) / 2 if points else stop.began
        at = min(max(middle, before), max(stop.began, stop.ended - LEAST_SECONDS))
        if at < before:
            return
        points.append(Point(stop.role, at))
    if len(points) > 1:
        yield Flow(name, tuple(points))
