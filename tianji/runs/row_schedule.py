"""When a row of metrics is written: with progress while a run is young, at last once a second."""

from __future__ import annotations

import math

from tianji.observe.watch import Progress

ROW_SECONDS = 1.0  # from one row to the next, at most
LEAST_SECONDS = 0.01  # from one row to the next, at least: a row takes a fifth of a millisecond
GROWTH = 1 / 64  # that a run has lasted longer by than at the row before


class RowSchedule:
    """A row when a second has gone by, or when a run that has got on has lasted 1/64 longer.

    So a run of any length has a curve, whatever ends it: 60 rows for each time that its training
    time doubles, until a minute has gone by.
    """

    def __init__(self, row_seconds: float = ROW_SECONDS, resumed: bool = False) -> None:
        self._seconds = row_seconds
        self._resumed = resumed
        self._written_at = -math.inf
        self._seen = (0, 0, 0)

    def due(self, progress: Progress, now: float) -> bool:
        """Whether a row should be written now, which is then taken to have been."""
        if not self._has_begun(progress, now):
            return False
        seen = progress.updates, progress.produced, progress.n_episodes
        since, least = now - self._written_at, self._least(progress.elapsed(now))
        if since < (least if seen != self._seen else self._seconds):
            return False
        self._written_at, self._seen = now, seen
        return True

    def _least(self, elapsed: float) -> float:
        return min(self._seconds, max(LEAST_SECONDS, GROWTH * elapsed))

    def _has_begun(self, progress: Progress, now: float) -> bool:
        """Whether there is something to write; a resumed run needs a moment to have rates.

        Before all of its roles were heard it would seem to have done less than before.
        """
        if not math.isfinite(self._seconds):
            return False
        if not self._resumed:
            return progress.updates > 0
        return progress.started_at is not None and now >= progress.started_at + self._seconds
