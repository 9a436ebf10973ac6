"""Writes down what the roles of one process do, into a file that is mapped into memory.

Nothing is ever written by a call to the system, so a row costs a few stores, and what was stored is
in the file even if the process is killed.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tianji.core.channel import Message
from tianji.core.tracer import Tracer, What
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


class Track(Tracer):
    """The rows of one role; they never overlap."""

    def __init__(
        self,
        recorder: Recorder,
        role: int,
        waits_for: Callable[[], Wait],
        version: Callable[[], int] = lambda: 0,  # of the weights that are updated
    ) -> None:
        self._recorder = recorder
        self._role = role
        self._waits_for = waits_for
        self._version = version
        self._began = 0.0
        self._decided = 0.0
        self._sent: Counter[What] = Counter()
        self._came: Counter[int] = Counter()  # trajectories of each actor
        self._idle_since = NEVER
        self._wait = Wait.BALANCE

    def begin(self) -> None:
        """What is told of next begins now."""
        self._began = time.monotonic()

    def decided(self) -> None:
        """There is an action for every environment; simulation begins."""
        self._decided = time.monotonic()

    def acted(self) -> None:
        """Writes an inference and a simulation, in one row."""
        self._add(Doing.ACT, self._decided, time.monotonic(), ended=self._decided)

    def updated(self) -> None:
        """Writes an update, or a piece of one."""
        self._add(Doing.UPDATE, 0, self._version())

    def sent(self, what: What, version: int) -> None:
        """Writes what was sent, with its number since the beginning of this process."""
        self._add(Doing.SEND, self._sent[what], version, what)
        self._sent[what] += 1

    def received(self, what: What, message: Message, peer: int = 0) -> None:
        """Writes what has come; trajectories are counted as their actor counts them."""
        number = message.sequence
        if what is What.TRAJECTORY and number >= 0:  # below: nobody has sent it
            number = self._came[peer]
            self._came[peer] += 1
        self._add(Doing.RECEIVE, number, message.version, what, peer)

    def skip(self, waiting: Sequence[int]) -> None:
        """So many trajectories of each actor were sent by an earlier process."""
        self._came.update({peer: -n for peer, n in enumerate(waiting)})

    def go_on(self, what: What, n: int) -> None:
        """So many of these were sent by a process that was lost."""
        self._sent[what] = n

    def idle(self) -> None:
        """The role has nothing to do now, as it may have had nothing to do before."""
        now, wait = time.monotonic(), self._waits_for()
        if self._idle_since == NEVER:
            self._idle_since, self._wait = now, wait
        elif wait is not self._wait or now - self._idle_since > CHUNK_SECONDS:
            self._end_idle(now)
            self._idle_since, self._wait = now, wait

    def close(self) -> None:
        """Nothing more will come."""
        if self._idle_since != NEVER:
            self._end_idle(time.monotonic())

    def _add(
        self,
        kind: Doing,
        number: float,
        version: float,
        what: int = 0,
        peer: int = 0,
        ended: float | None = None,
    ) -> None:
        """Writes what the role did from `begin` until now."""
        if self._idle_since != NEVER:
            self._end_idle(self._began)
        ended = time.monotonic() if ended is None else ended
        self._recorder.add(self._role, kind, self._began, ended, number, version, what, peer)

    def _end_idle(self, now: float) -> None:
        self._recorder.add(self._role, Doing.IDLE, self._idle_since, now, what=self._wait)
        self._idle_since = NEVER
