"""Writes down what the roles of one process do, into a file that is mapped into memory.

Nothing is ever written by a call to the system, so a row costs a few stores, and what was stored is
in the file even if the process is killed.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

from tianji.observe.trace.format import MAGIC, PREFIX, ROW, Doing, Heading, Wait

CHUNK_SECONDS = 0.1  # of idling are written down at once: a process that hangs can be seen to
NEVER = -1.0
ROW_BYTES = ROW.size
_pack = ROW.pack_into  # looked up once: this is done for every step of every actor


class Recorder:
    """The newest rows of one process."""

    def __init__(self, path: Path, heading: Heading) -> None:
        text, first = heading.to_bytes()
        size = first + heading.capacity * ROW.size
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o644)
        try:
            os.posix_fallocate(descriptor, 0, size)  # or a full disk would end the process later
            self._map = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        self._first = first
        self._place = first  # of the next row
        self._end = size
        self._written = 0
        self._map[PREFIX.size : PREFIX.size + len(text)] = text
        PREFIX.pack_into(self._map, 0, MAGIC, 0, first, len(text))
        self._words = memoryview(self._map)[: PREFIX.size].cast("q")

    def add(
        self,
        role: int,
        kind: int,
        began: float,
        ended: float,
        number: float = 0,
        version: float = 0,
        what: int = 0,
        peer: int = 0,
    ) -> None:
        """Writes one row, over the oldest if there is no room; times are of this machine."""
        place = self._place
        _pack(self._map, place, began, ended, number, version, role, kind, what, peer)
        self._written += 1
        self._words[1] = self._written  # last: now the row exists
        place += ROW_BYTES
        self._place = place if place < self._end else self._first

    def close(self) -> None:
        """Hands everything to the file system, which other machines may look at."""
        self._words.release()
        self._map.flush()
        self._map.close()


class Track:
    """The rows of one role; they never overlap."""

    def __init__(self, recorder: Recorder, role: int) -> None:
        self._recorder = recorder
        self._role = role
        self._idle_since = NEVER
        self._wait = Wait.BALANCE

    def add(
        self,
        kind: Doing,
        began: float,
        number: float = 0,
        version: float = 0,
        what: int = 0,
        peer: int = 0,
    ) -> None:
        """The role did something from `began` to now."""
        if self._idle_since != NEVER:
            self._end_idle(began)
        ended = time.monotonic()
        self._recorder.add(self._role, kind, began, ended, number, version, what, peer)

    def act(self, began: float, decided: float, simulated: float) -> None:
        """The role chose actions until `decided`; since `simulated` its environments stepped."""
        if self._idle_since != NEVER:
            self._end_idle(began)
        ended = time.monotonic()
        self._recorder.add(self._role, Doing.ACT, began, decided, simulated, ended)

    def wait(self, wait: Wait) -> None:
        """The role has nothing to do now, as it may have had nothing to do before."""
        now = time.monotonic()
        if self._idle_since == NEVER:
            self._idle_since, self._wait = now, wait
        elif wait is not self._wait or now - self._idle_since > CHUNK_SECONDS:
            self._end_idle(now)
            self._idle_since, self._wait = now, wait

    def close(self) -> None:
        """Nothing more will come."""
        if self._idle_since != NEVER:
            self._end_idle(time.monotonic())

    def _end_idle(self, now: float) -> None:
        self._recorder.add(self._role, Doing.IDLE, self._idle_since, now, what=self._wait)
        self._idle_since = NEVER
