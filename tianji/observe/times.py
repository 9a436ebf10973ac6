"""The times of a run, which may have been interrupted and resumed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from tianji.core.counts import Count
from tianji.observe.watch import Progress


@dataclass(frozen=True)
class Times:
    """When a run began, and what it took before it was resumed."""

    began_here: float  # of this process, on the clock of `time.monotonic`
    earlier: dict[str, Any] = field(default_factory=dict)  # `state` of the process before
    planning_here: float = 0.0  # seconds of this process that went into making a plan

    @property
    def resumes(self) -> int:
        """How often the run was resumed."""
        return int(self.earlier.get("resumes", -1)) + 1

    def wall(self, now: float) -> float:
        """Seconds since the command was given, those of earlier processes included."""
        return now - self.began_here + float(self.earlier.get("wall_seconds", 0.0))

    def planning(self) -> float:
        """Seconds in which this job was measured to plan it; no other time but `wall` has them."""
        return round(self.planning_here + float(self.earlier.get("planning_seconds", 0.0)), 3)

    def startup(self, progress: Progress) -> float | None:
        """Seconds from the command to the moment all roles were ready, the first time."""
        return self._first("startup_seconds", progress.started_at)

    def starting(self, progress: Progress) -> float:
        """Seconds from each command to the moment all roles were ready, all of them together."""
        before = self.earlier.get("starting_seconds", self.earlier.get("startup_seconds"))
        ready, began = progress.started_at, self.began_here + self.planning_here
        here = 0.0 if ready is None else ready - began
        return round(float(before or 0.0) + here, 3)

    def first_consumed(self, progress: Progress) -> float | None:
        """Seconds from the command to the first update, the first time."""
        clocks = [float(counts[Count.FIRST_CONSUMED_AT]) for counts in progress.counts.values()]
        return self._first("first_consumed_seconds", min(filter(None, clocks), default=None))

    def state(self, progress: Progress) -> dict[str, Any]:
        """What the run must know of this process when it goes on in another."""
        return {
            "resumes": self.resumes,
            "wall_seconds": self.wall(time.monotonic()),
            "planning_seconds": self.planning(),
            "startup_seconds": self.startup(progress),
            "starting_seconds": self.starting(progress),
            "first_consumed_seconds": self.first_consumed(progress),
        }

    def _first(self, name: str, at: float | None) -> float | None:
        earlier: float | None = self.earlier.get(name)
        if earlier is not None:
            return earlier
        return None if at is None else round(self.wall(at) - self.planning(), 3)
