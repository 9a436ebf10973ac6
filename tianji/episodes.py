"""Finished episodes: added up in an actor, sent to whoever watches the run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tianji.channel import Outbox
from tianji.envs.base import Step
from tianji.schema import Field, Schema
from tianji.state import State

Clock = Callable[[], float]

EPISODES_PER_MESSAGE = 64

EPISODE_SCHEMA = Schema(
    (
        Field("n", "int64"),
        Field("returned", "float64", (EPISODES_PER_MESSAGE,)),
        Field("length", "int64", (EPISODES_PER_MESSAGE,)),
        Field("ended_at", "float64", (EPISODES_PER_MESSAGE,)),
    )
)
"""Finished episodes on their way from an actor to the launcher."""


class EpisodeLog:
    """Adds up the returns of E environments and reports each finished episode."""

    def __init__(self, n_envs: int, outbox: Outbox, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self._returned = np.zeros(n_envs)
        self._steps = np.zeros(n_envs, np.int64)
        self._pending: list[tuple[float, int, float]] = []

    def add(self, step: Step) -> bool:
        """Counts one step; True if an episode ended."""
        self._returned += step.reward
        self._steps += step.valid
        ended = step.terminated | step.truncated
        if not ended.any():
            return False
        now = self._clock()
        for e in np.flatnonzero(ended):
            self._pending.append((float(self._returned[e]), int(self._steps[e]), now))
        self._returned[ended] = 0.0
        self._steps[ended] = 0
        return True

    def push(self) -> None:
        """Sends what has gathered; a launcher that does not read leaves it here for later."""
        while self._pending and (slot := self._outbox.slot()) is not None:
            part = self._pending[:EPISODES_PER_MESSAGE]
            del self._pending[: len(part)]
            slot["n"][...] = len(part)
            for i, (returned, length, ended_at) in enumerate(part):
                slot["returned"][i] = returned
                slot["length"][i] = length
                slot["ended_at"][i] = ended_at
            self._outbox.commit(0)

    def begin_anew(self) -> None:
        """Forgets the episodes in progress, for environments that were reset in the middle."""
        self._returned.fill(0.0)
        self._steps.fill(0)

    def state(self) -> State:
        """The episodes in progress, and those that are not sent yet with the clock's values."""
        pending = [list(episode) for episode in self._pending]
        return {"returned": self._returned, "steps": self._steps, "pending": pending}

    def restore(self, state: State) -> None:
        """Goes on adding up where another log stood."""
        self._returned[...] = state["returned"]
        self._steps[...] = state["steps"]
        self._pending = [(returned, n, ended_at) for returned, n, ended_at in state["pending"]]
