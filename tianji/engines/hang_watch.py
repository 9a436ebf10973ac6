"""An actor's own look at whether it hangs, for where nobody else can look at its process.

watch.look()      # in the courier's thread, ten times a second
watch.put_off()   # by the loop of the roles, twenty times a second
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable
from typing import NoReturn

from tianji.core.alarm import hangs_after

LOOK_SECONDS = 0.5  # of silence that one look counts at most: the process may have been stopped


class HangWatch:
    """Writes the stacks and ends the process when nothing was heard of its roles for too long.

    That is `seconds`, or three times the longest silence that ever ended; ten times as long before
    the first trajectory, and START_SECONDS more until the roles are there.
    """

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        end: Callable[[], object] | None = None,
    ) -> None:
        self._seconds, self._clock = seconds, clock
        self._end = _end if end is None else end
        self._looked_at = clock()
        self._silence = self._longest = 0.0
        self._heard = self._begun = False

    def put_off(self, begun: bool = True) -> None:
        """The roles had their turns; `begun`: they have sent something, in this life."""
        if self._heard:
            self._longest = max(self._longest, self._silence)
        self._silence, self._heard, self._begun = 0.0, True, begun

    def cancel(self) -> None:
        """What follows may take as long as it likes."""
        self._end = lambda: None

    def look(self) -> None:
        """Counts the silence; ends the process if it is too long."""
        now = self._clock()
        self._silence += min(now - self._looked_at, LOOK_SECONDS)
        self._looked_at = now
        if self._silence > hangs_after(self._seconds, self._longest, self._begun, self._heard):
            self._end()


def _end() -> NoReturn:
    """As one that is killed: no word of what hangs can be trusted any more."""
    faulthandler.dump_traceback()
    os._exit(1)
