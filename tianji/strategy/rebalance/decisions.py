"""What a group did, and what is to be changed about it: a reading, and what `balancer.py` says."""

from __future__ import annotations

import enum
from dataclasses import dataclass

MOST_IDLE = 0.05  # share of the learner's time; idler than this, it is not what limits


class Change(enum.StrEnum):
    """What is changed."""

    PAUSE = "pause"
    WAKE = "wake"
    THREADS = "threads"
    BUFFER = "buffer"


UNITS = {
    Change.PAUSE: "actors awake",
    Change.WAKE: "actors awake",
    Change.THREADS: "threads of the learner",
    Change.BUFFER: "threads of the buffer's own",
}
"""What the numbers of a decision count."""


@dataclass(frozen=True)
class Reading:
    """What one group did over a second or so."""

    n_awake: int
    n_paused: int
    acting: float  # TR_A: steps per second that the awake actors make while nothing holds them up
    learning: float  # TR_L: steps per second that the learner uses while it has some
    idle: float  # share of the learner's time
    threads: int = 1
    free_cores: float = 0.0  # of those that the learner may run on
    update_seconds: float = 0.0
    batch_seconds: float = 0.0  # that the buffer takes for a batch; 0 where it cannot be moved
    apart: int = 0  # threads of its own that the buffer has


@dataclass(frozen=True)
class Decision:
    """A change of one number, or that a change of it stays, and why."""

    kind: Change
    before: int  # as `UNITS` counts
    after: int
    why: str

    @property
    def unit(self) -> str:
        """What the numbers count."""
        return UNITS[self.kind]
