"""How a courier's thread sleeps between two looks, and what ends its sleep."""

from __future__ import annotations

import os
import select
import time

from tianji.transports.bell import Bell

SHORTEST_SECONDS = 0.0001  # from one look at the wire to the next, while something happens
PART = 8  # of the time in which nothing has happened, that the next look may wait for


class CourierAlarm(Bell):
    """Wakes the courier's thread, which shares the process with whoever rings."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.flag = self._asleep = [0]

    def wake(self) -> None:
        """Ends the courier's sleep."""
        self._asleep[0] = 0
        os.eventfd_write(self._event, 1)

    def arm(self) -> None:
        """Announces a sleep; look once more, then `wait`."""
        self._asleep[0] = 1

    def wait(self, seconds: float) -> None:
        """Sleeps until it rings or the time is over."""
        if select.select([self._event], [], [], seconds)[0]:
            os.eventfd_read(self._event)
        self._asleep[0] = 0

    def close(self) -> None:
        """Nobody sleeps here any more."""
        os.close(self._event)


class Naps:
    """How long to sleep between two looks at the wire: the longer, the longer nothing has happened.

    What comes is late by a part of the time that it was waited for. A look takes some 40 us of a
    core, and processes that share one would keep each other from computing.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._since = time.monotonic()

    def begin_again(self) -> None:
        """Something has happened."""
        self._since = time.monotonic()

    def next(self) -> float:
        """Seconds."""
        waited = time.monotonic() - self._since
        return min(max(waited / PART, SHORTEST_SECONDS), self._longest)
