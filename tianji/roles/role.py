"""What a role is: a loop that an engine gives turns to."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from tianji.core.counts import Count, Vector
from tianji.core.schema import Arrays
from tianji.core.tracer import NULL, Tracer


class Role(ABC):
    """One loop of Figure 2."""

    def __init__(self, name: str, counts: Vector | None = None) -> None:
        self.name = name
        self.done = False
        self.paused = False  # told to begin nothing new, see `advice.py`
        self.apart = False  # told to take its turns beside the others of its process
        self.counts = np.zeros(len(Count)) if counts is None else counts
        self.tracer: Tracer = NULL

    @abstractmethod
    def step(self) -> bool:
        """Does one bounded piece of work, if there is one; never waits."""

    @property
    def settled(self) -> bool:
        """Whether what it remembers is whole; False in the middle of what takes several steps."""
        return True

    def waits_for(self) -> Count:
        """Why it has nothing to do, right after a step that said so: where that time is counted."""
        return Count.WAITED_ORDER

    def waited(self, seconds: float, what: Count) -> None:
        """Counts time in which it had nothing to do."""
        self.counts[Count.IDLE_SECONDS] += seconds
        self.counts[what] += seconds

    def report(self) -> Arrays:
        """What the role publishes about itself, as `counts.report_schema` lays it out."""
        return {"counts": self.counts}

    def close(self) -> None:  # noqa: B027  # most roles hold nothing
        """Gives back what the role holds outside of memory."""
