"""A trace as a timeline that ui.perfetto.dev and chrome://tracing draw: Trace Event Format, JSON.

Every process is a process of the timeline and every role a thread of it. What a role did is a
complete event ("X"), times are microseconds since the window began, and each flow is a chain of
"s", "t" ... "f" with one id, each within the slice that it belongs to ("bp": "e").
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tianji.core import atomic_file
from tianji.core.json_file import opened
from tianji.core.tracer import What
from tianji.observe.trace.flows import flows_of
from tianji.observe.trace.format import Doing, Wait
from tianji.observe.trace.trace_reader import Rows, Trace

Event = dict[str, Any]
DIGITS = 3  # of a microsecond
OPENING = '{"displayTimeUnit":"ms",'
HEAD_BYTES = 65_536  # of a file: what stands before its events is shorter
GZIP = b"\x1f\x8b"  # what compressed files begin with


def save(trace: Trace, path: Path) -> int:
    """Writes the timeline, compressed if the name ends in .gz; returns how many events it has."""
    with atomic_file.explained("name another file with --out"), atomic_file.writing(path) as whole:
        if path.suffix == ".gz":
            with gzip.open(whole, "wt", encoding="utf-8") as file:
                return _write(trace, file)
        with io.TextIOWrapper(whole, encoding="utf-8") as file:
            return _write(trace, file)


def is_timeline(path: Path) -> bool:
    """Whether a file begins as those of `save` do, compressed or not."""
    try:
        with opened(path) as file:
            compressed = file.peek(len(GZIP)).startswith(GZIP)
            head = (gzip.GzipFile(fileobj=file) if compressed else file).read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return False
    return head.startswith(OPENING.encode()) and b'"traceEvents":[' in head


def _write(trace: Trace, file: IO[str]) -> int:
    n_events = 0
    about = {"run": str(trace.run), "engine": trace.engine, "recorded_at": trace.recorded_at}
    file.write(f'{OPENING}"otherData":{json.dumps(about)},"traceEvents":[')
    for event in events_of(trace):
        file.write(",\n" if n_events else "\n")
        file.write(json.dumps(event, separators=(",", ":")))
        n_events += 1
    file.write("\n]}\n")
    return n_events


def events_of(trace: Trace) -> Iterator[Event]:
    """Names first, then all events in the order of time; a slice before the arrows in it."""
    places = _places(trace)
    yield from _names(trace, places)
    timed = [
        event for role in trace.roles for event in _slices(role.rows, trace, places[role.name])
    ]
    timed += _arrows(trace, places)
    timed.sort(key=lambda event: (event["ts"], event["ph"] != "X"))
    yield from timed


def _places(trace: Trace) -> dict[str, Event]:
    """The process and the thread of every role, numbered: pids of two hosts may be equal."""
    homes = {home: i + 1 for i, home in enumerate(trace.homes)}
    return {
        role.name: {"pid": homes[role.home], "tid": i + 1} for i, role in enumerate(trace.roles)
    }


def _names(trace: Trace, places: dict[str, Event]) -> Iterator[Event]:
    order = {home: i for i, home in enumerate(trace.homes)}
    for home, heading in trace.homes.items():
        place = {"ph": "M", "pid": order[home] + 1, "tid": 0}
        label = f"{home} (pid {heading.pid} on {heading.host})"
        yield {**place, "name": "process_name", "args": {"name": label}}
        yield {**place, "name": "process_sort_index", "args": {"sort_index": order[home]}}
    for role, place in places.items():
        yield {"ph": "M", **place, "name": "thread_name", "args": {"name": role}}
        yield {
            "ph": "M",
            **place,
            "name": "thread_sort_index",
            "args": {"sort_index": place["tid"]},
        }


def _slices(rows: Rows, trace: Trace, place: Event) -> Iterator[Event]:
    for began, ended, number, version, _, kind, what, peer in rows.tolist():
        ts, end = micro(began - trace.began), micro(ended - trace.began)
        about = {"ts": ts, "dur": round(end - ts, DIGITS), **place}
        yield {"ph": "X", **_named(Doing(kind), what, int(number), int(version), peer), **about}


def _named(kind: Doing, what: int, number: int, version: int, peer: int) -> Event:
    """What a slice is called, and what stands beside it when one clicks on it."""
    if kind is Doing.IDLE:
        return {"name": Wait(what).words, "cat": "idle"}
    if kind is Doing.UPDATE:
        return {"name": "update", "cat": "update", "args": {"version": version}}
    if kind not in (Doing.SEND, Doing.RECEIVE):
        return {"name": kind.word, "cat": kind.word}
    thing, args = What(what), {"version": version}
    if thing is What.TRAJECTORY:
        args |= {"number": number} | ({"actor": peer} if kind is Doing.RECEIVE else {})
    return {"name": f"{kind.word} {thing.word}", "cat": kind.word, "args": args}


def _arrows(trace: Trace, places: dict[str, Event]) -> Iterator[Event]:
    for number, flow in enumerate(flows_of(trace), 1):
        last = len(flow.points) - 1
        for i, point in enumerate(flow.points):
            phase = "s" if i == 0 else "f" if i == last else "t"
            ts = micro(point.at - trace.began)
            about = {"ph": phase, "name": flow.name, "cat": "flow", "id": number, "ts": ts}
            yield {**about, "bp": "e", **places[point.role]}


def micro(seconds: float) -> float:
    """Microseconds, to the nanosecond."""
    return round(seconds * 1e6, DIGITS)
