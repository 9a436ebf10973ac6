"""Whether the evaluator of the process engine hangs: nobody waits for it, so nobody would notice.

It is found by its counters, which lie in shared memory and stand still only within a step.
It has the lowest priority: time that it spent waiting for a core is no time of a step.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

from tianji.core.alarm import hangs_after
from tianji.core.counts import Count
from tianji.engines.live_counts import live_counts
from tianji.engines.supervise import DUMP_SECONDS, LOOK_SECONDS, hung
from tianji.engines.worker_processes import Crew
from tianji.roles.role_specs import RoleSpec
from tianji.transports.shm import ShmTransport


class EvaluatorWatch:
    """Asks an evaluator that hangs for its stack, and gives it up."""

    def __init__(
        self, evaluator: RoleSpec, crew: Crew, transport: ShmTransport, step_seconds: float
    ) -> None:
        self._home, self._crew, self._step_seconds = evaluator.home, crew, step_seconds
        self._counts = live_counts(transport, evaluator.name)
        self._before = self._counts.copy()
        self._silence = 0.0  # seconds since the counters changed
        self._longest = 0.0  # that ended by itself
        self._looked_at = time.monotonic()
        self._queued = 0.0  # seconds that it has waited for a core, by the last look
        self._asked_at: float | None = None  # for its stack, by its silence

    def look(self) -> None:
        """Called as often as one likes; what comes of it is told as of any other that is lost."""
        now, process = time.monotonic(), self._crew.beside.get(self._home)
        passed, self._looked_at = min(now - self._looked_at, LOOK_SECONDS), now
        if process is None or process.poll() is not None:
            return
        queued_before, self._queued = self._queued, _queued(process.pid)
        if (self._counts != self._before).any():
            if self._before[Count.READY_AT]:
                self._longest = max(self._longest, self._silence)
            self._before, self._silence, self._asked_at = self._counts.copy(), 0.0, None
            return
        # Linux tells of a wait when it is over: all of it at once.
        self._silence = max(0.0, self._silence + passed - (self._queued - queued_before))
        if self._asked_at is None:
            if self._silence > (limit := self._limit()):
                self._asked_at = limit
                process.send_signal(signal.SIGUSR2)  # for its stack
        elif self._silence > self._asked_at + DUMP_SECONDS:
            is_ready = bool(self._counts[Count.READY_AT])
            self._crew.give_up(self._home, hung(is_ready, self._asked_at))

    def _limit(self) -> float:
        """Seconds in one step after which it hangs; the first one makes games begin."""
        begun, ready = self._counts[Count.BUSY_SECONDS] > 0, self._counts[Count.READY_AT] > 0
        return hangs_after(self._step_seconds, self._longest, bool(begun), bool(ready))


def _queued(pid: int) -> float:
    """Seconds in which a process was ready to run and had no core; 0 where nobody counts them."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
