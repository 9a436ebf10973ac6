"""A role that takes its turns in a thread of its own, beside the others of its process.

The buffer rides with its learner: on few cores that costs least. Where making batches takes long
and a core is free, the two can work at the same time. What the buffer holds is in the memory of
their process already, so nothing is copied, nothing is lost and nobody stops for it. Both threads
run Python in turns; what they share is the time in which numpy and torch compute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread

from tianji.core.counts import Count
from tianji.roles.role import Role

NAP_SECONDS = 0.001  # until the next look of a thread that was not told of anything new
SWITCH_SECONDS = 0.0005  # for which one thread may keep the other from running Python


class Apart:
    """The turns of one role, from when this is made until it is called `back`."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self._door, self._turn = Lock(), Lock()  # a turn goes through the door, then takes place
        self._news = Event()
        self._called_back = False
        self._failure: BaseException | None = None
        self._usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread = Thread(target=self._run, name=role.name, daemon=True)
        self._thread.start()

    def tell(self) -> None:
        """Something has happened that the role may have waited for."""
        self._news.set()

    def check(self) -> None:
        """Raises what a step of the role has raised."""
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def held(self) -> Iterator[None]:
        """The role is between two steps meanwhile."""
        with self._door, self._turn:  # a thread that has a turn cannot take the next one first
            yield

    def back(self) -> None:
        """Ends the thread after the step that it is at."""
        self._called_back = True
        self._news.set()
        self._thread.join()
        sys.setswitchinterval(self._usual)

    def _run(self) -> None:
        try:
            while not (self._called_back or self.role.done):
                self._news.clear()
                if not self._take_turn():
                    self._news.wait(NAP_SECONDS)
        except BaseException as error:  # the top of a thread: the loop of the process raises it
            self._failure = error

    def _take_turn(self) -> bool:
        with self._door:
            self._turn.acquire()
        try:
            began = time.monotonic()
            if not self.role.step():
                return False
            seconds = time.monotonic() - began
            self.role.counts[Count.BUSY_SECONDS] += seconds
            self.role.counts[Count.APART_SECONDS] += seconds
            return True
        finally:
            self._turn.release()
