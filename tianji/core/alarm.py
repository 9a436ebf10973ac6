"""An alarm that writes where this process is, if it is not put off: for code that may hang.

Nothing else has to run for it, so even a library that never lets go of the interpreter is seen.
"""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

STALL_SECONDS = 60.0  # without progress, until it is told
START_SECONDS = 120.0  # the same until a process is ready, which has libraries to load
AT_FIRST = 10.0  # times as long a step may take before the first report, when none is known
FROM_ONE_TO_THE_NEXT = 1.0  # seconds at most: each time it is put off costs a thread


class Alarm:
    """Writes the stacks of all threads on standard error, if it is not put off for `seconds`.

    A process that `ends` then is one that somebody replaces. It is given more time at first: to be
    ready, until it is put off once, and ten times as long for its first steps.
    """

    def __init__(self, seconds: float = STALL_SECONDS, ends: bool = False) -> None:
        self._seconds, self._ends = seconds, ends
        self._more = [START_SECONDS + AT_FIRST * seconds, AT_FIRST * seconds] if ends else []
        self._due = 0.0

    def put_off(self) -> None:
        """What calls this now and then does not hang."""
        seconds, now = self._seconds, time.monotonic()
        if self._more:
            seconds = self._more.pop(0)
        elif now < self._due:
            return
        self._due = now + min(FROM_ONE_TO_THE_NEXT, self._seconds / 4)
        with suppress(AttributeError, OSError, ValueError, RuntimeError):  # no such stream
            faulthandler.dump_traceback_later(seconds, exit=self._ends)

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
