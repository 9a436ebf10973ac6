"""An alarm that writes where this process is, if it is not put off: for code that may hang.

Nothing else has to run for it, so even a library that never lets go of the interpreter is seen.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, Self

STALL_SECONDS = 60.0  # without progress, until it is told
START_SECONDS = 120.0  # the same until a process is ready, which has libraries to load
AT_FIRST = 10.0  # times as long a step may take before the first trajectory, when none is known
SLOWER = 3.0  # and so many times as long as the longest that was ever come out of
FROM_ONE_TO_THE_NEXT = 1.0  # seconds at most: each time it is put off costs a thread


def hangs_after(seconds: float, longest: float, begun: bool, ready: bool) -> float:
    """Seconds of silence after which a process hangs whose steps may take `seconds` each.

    `longest` is the longest silence that ever ended; `begun`: it has done some of what it is there
    for; `ready`: it has loaded its libraries.
    """
    limit = max(seconds, SLOWER * longest) * (1.0 if begun else AT_FIRST)
    return limit if ready else limit + START_SECONDS


class HangAlarm(Protocol):
    """What goes off in a process that hangs."""

    def put_off(self, begun: bool = True) -> None:
        """The process does not hang; `begun`: it has done some of what it is there for."""

    def look(self) -> None:
        """Somebody beside the roles has a moment to see whether it does."""

    def cancel(self) -> None:
        """What follows may take as long as it likes."""


class Alarm:
    """Writes the stacks of all threads on standard error, if it is not put off for `seconds`."""

    def __init__(self, seconds: float = STALL_SECONDS) -> None:
        self._seconds = seconds
        self._due = 0.0

    def put_off(self, begun: bool = True) -> None:
        """What calls this now and then does not hang, whether or not it has `begun` its work."""
        if (now := time.monotonic()) < self._due:
            return
        self._due = now + min(FROM_ONE_TO_THE_NEXT, self._seconds / 4)
        with suppress(AttributeError, OSError, ValueError, RuntimeError):  # no such stream
            faulthandler.dump_traceback_later(self._seconds)

    def armed(self) -> Self:
        """The same, from now on."""
        self.put_off()
        return self

    def look(self) -> None:
        """Nobody need look: it goes off by itself."""

    def cancel(self) -> None:
        """What follows may take as long as it likes."""
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def alarmed(seconds: float = STALL_SECONDS) -> Iterator[None]:
    """Writes where the process is, if what is done within takes longer."""
    alarm = Alarm(seconds)
    alarm.put_off()
    try:
        yield
    finally:
        alarm.cancel()
