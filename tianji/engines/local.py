"""All roles in one process, taking turns: for the debugger, for tests, and the same every time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tianji.counts import Count
from tianji.roles import Learner, Role
from tianji.roster import roles_of
from tianji.topology import Job, build, channels_of
from tianji.transports.local import LocalTransport
from tianji.watch import Limits, Progress, Watch
from tianji.weights import save_final

ROUNDS_PER_LOOK = 64  # turns of every role from one look at the episodes to the next


class LocalEngine:
    """Gives every role one step after the other.

    Nothing depends on the clock except `max_seconds`, so the same seed gives the same weights.
    """

    name = "local"

    def __init__(self, job: Job, folder: Path | None = None) -> None:
        self._folder = folder
        self.transport = LocalTransport(channels_of(job))
        self.roles: list[Role] = [build(role, job, self.transport) for role in roles_of(job.config)]
        self._reports = [self.transport.outbox(f"report {role.name}") for role in self.roles]
        self._control = self.transport.outbox("control")
        self.watch = Watch(job, self.transport)
        for role in self.roles:
            role.counts[Count.READY_AT] = time.monotonic()

    @property
    def learner(self) -> Learner:
        """The only learner."""
        return next(role for role in self.roles if isinstance(role, Learner))

    def train(self, limits: Limits, tick: Callable[[Progress], None] = lambda _: None) -> str:
        """Runs until the stream ends or a limit is reached; returns the status of the run."""
        status = None
        try:
            while not all(role.done for role in self.roles):
                moved = False
                for _ in range(ROUNDS_PER_LOOK):
                    moved |= self._round()
                progress = self._look()
                tick(progress)
                if status is None and (status := limits.reached(progress)):
                    self._control.close()
                assert moved or status, "no role has anything to do, and none is done"
        finally:
            for role in self.roles:
                role.close()
        self._look()
        self.stop()
        return status or limits.reached(self.watch.progress) or "finished"

    def stop(self) -> None:
        """Keeps what was learned; nothing runs beside this process."""
        if self._folder is not None:
            learner = self.learner
            name = type(learner.algorithm).__name__
            save_final(self._folder, learner.algorithm.weights(), learner.version, name)

    def _round(self) -> bool:
        moved = False
        for role in self.roles:
            if role.done:
                continue
            began = time.perf_counter()
            try:
                did = role.step()
            except Exception as error:
                error.add_note(f"in {role.name}")
                raise
            spent = time.perf_counter() - began
            role.counts[Count.BUSY_SECONDS if did else Count.IDLE_SECONDS] += spent
            moved |= did
        return moved

    def _look(self) -> Progress:
        for role, outbox in zip(self.roles, self._reports, strict=True):
            outbox.push(role.report(), 0)
        return self.watch.poll()
