"""How a run ended, or stands: one word for each, the same in every file and on every page."""

from __future__ import annotations

import enum


class Status(enum.StrEnum):
    """The `status` of a run."""

    SOLVED = "solved"  # the mean return reached its target
    FINISHED = "finished"  # all steps, episodes or updates were made
    STOPPED = "stopped"  # its time was over
    INTERRUPTED = "interrupted"  # by a signal
    FAILED = "failed"
    RUNNING = "running"
    UNFINISHED = "unfinished"  # it was killed, or is running elsewhere

    @property
    def words(self) -> str:
        """At the beginning of a sentence."""
        return "Stopped at the time limit" if self is Status.STOPPED else self.capitalize()


ENDED = (Status.SOLVED, Status.FINISHED, Status.STOPPED)
"""A run that ended as it was asked to."""
