"""Finished episodes: added up in an actor, sent to whoever watches the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tianji.core.channel import Outbox
from tianji.core.env import Step, points_of
from tianji.core.schema import Field, Schema
from tianji.core.state import State

Clock = Callable[[], float]

EPISODES_PER_MESSAGE = 64

EPISODE_SCHEMA = Schema(
    (
        Field("n", "int64"),
        Field("returned", "float64", (EPISODES_PER_MESSAGE,)),
        Field("length", "int64", (EPISODES_PER_MESSAGE,)),
        Field("ended_at", "float64", (EPISODES_PER_MESSAGE,)),
        Field("steps", "int64", (EPISODES_PER_MESSAGE,)),
        Field("version", "int64", (EPISODES_PER_MESSAGE,)),
    )
)
"""Finished episodes on their way from an actor to the launcher."""


class Ended(NamedTuple):
    """One finished episode."""

    returned: float
    length: int  # steps
    ended_at: float  # by the clock
    steps: int = 0  # that this actor's environments had made by then, of all episodes
    version: int = 0  # updates behind the policy that acted in the last step


class Episodes:
    """Adds up the returns of E environments; `ended` gathers the finished episodes."""

    def __init__(self, n_envs: int, clock: Clock) -> None:
        self.ended: list[Ended] = []
        self._clock = clock
        self._returned = np.zeros(n_envs)
        self._steps = np.zeros(n_envs, np.int64)
        self._before = 0  # steps of episodes that are over

    def add(self, step: Step, version: int = 0) -> bool:
        """Counts one step of a policy of this `version`; True if an episode ended."""
        self._returned += points_of(step)
        self._steps += step.valid
        ended = step.terminated | step.truncated
        if not ended.any():
            return False
        now, made = self._clock(), self._before + int(self._steps.sum())
        for e in np.flatnonzero(ended):
            length = int(self._steps[e])
            self.ended.append(Ended(float(self._returned[e]), length, now, made, version))
        self._before += int(self._steps[ended].sum())
        self._returned[ended] = 0.0
        self._steps[ended] = 0
        return True

    def begin_anew(self) -> None:
        """Forgets the episodes in progress, for environments that were reset in the middle."""
        self._before += int(self._steps.sum())
        self._returned.fill(0.0)
        self._steps.fill(0)


class EpisodeLog(Episodes):
    """Reports each finished episode of an actor."""

    def __init__(self, n_envs: int, outbox: Outbox, clock: Clock) -> None:
        super().__init__(n_envs, clock)
        self._outbox = outbox

    def push(self) -> None:
        """Sends what has gathered; a launcher that does not read leaves it here for later."""
        while self.ended and (slot := self._outbox.slot()) is not None:
            part = self.ended[:EPISODES_PER_MESSAGE]
            del self.ended[: len(part)]
            slot["n"][...] = len(part)
            for i, episode in enumerate(part):
                for name, value in zip(Ended._fields, episode, strict=True):
                    slot[name][i] = value
            self._outbox.commit(0)

    def state(self) -> State:
        """The episodes in progress, and those that are not sent yet with the clock's values."""
        pending = [list(episode) for episode in self.ended]
        return {
            "returned": self._returned,
            "steps": self._steps,
            "before": self._before,
            "pending": pending,
        }

    def restore(self, state: State) -> None:
        """Goes on adding up where another log stood; older checkpoints said less of it."""
        self._returned[...] = state["returned"]
        self._steps[...] = state["steps"]
        self._before = state.get("before", 0)
        self.ended = [Ended(*episode) for episode in state["pending"]]
