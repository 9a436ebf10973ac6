"""When whoever watches a run ends it."""

from __future__ import annotations

import time

from tianji.core.status import Status
from tianji.job.job import Job
from tianji.observe.watch import Progress


class Limits:
    """The conditions on which whoever watches ends a run."""

    def __init__(self, job: Job) -> None:
        self._episodes = job.config.exp.episodes
        self._seconds = job.config.exp.max_seconds
        self._fusions = job.config.max_fusions

    def reached(self, progress: Progress) -> Status | None:
        """The status with which the run should end now, if it should."""
        if progress.solved_at is not None:
            return Status.SOLVED
        if self._episodes is not None and progress.n_episodes >= self._episodes:
            return Status.FINISHED
        if self._fusions is not None and progress.fusions >= self._fusions:
            return Status.FINISHED
        if self._seconds is None or progress.started_at is None:
            return None
        return Status.STOPPED if progress.elapsed(time.monotonic()) >= self._seconds else None
