"""Finished games: added up in an actor, sent to whoever watches the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tianji.core.channel import Outbox
from tianji.core.env import BoolArray, Step, lost_in, points_of
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
        Field("learned", "float64", (EPISODES_PER_MESSAGE,)),
        Field("won", "float64", (EPISODES_PER_MESSAGE,)),
    )
)
"""Finished episodes on their way from an actor to the launcher."""


class Ended(NamedTuple):
    """One finished episode: a whole game, with all its lives."""

    returned: float  # points of the game
    length: int  # steps
    ended_at: float  # by the clock
    steps: int = 0  # that this actor's environments had made by then, of all episodes
    version: int = 0  # updates behind the policy that acted in the last step
    learned: float = math.nan  # mean return of its lives as learned from; nan: older than this
    won: float = math.nan  # 1: won, 0: not; nan: nobody can win


class Episodes:
    """Adds up the returns of E environments; `ended` gathers the finished games.

    What is learned from may end earlier, with a life, and count less, by clipped rewards: the mean
    of its lives stands beside a game's own points. Elsewhere both numbers are the same. An episode
    that a broken game lost is forgotten; only its steps count.
    """

    def __init__(self, n_envs: int, clock: Clock) -> None:
        self.ended: list[Ended] = []
        self._clock = clock
        self._returned = np.zeros(n_envs)
        self._learned = np.zeros(n_envs)  # rewards of the current game, where they may differ
        self._lives = np.zeros(n_envs, np.int64)  # learned episodes that it has ended
        self._steps = np.zeros(n_envs, np.int64)
        self._adding = (self._returned, self._learned, self._lives, self._steps)
        self._after_end = np.zeros(n_envs, np.bool_)  # whose last step ended an episode, or a life
        self._before = 0  # steps of episodes that are over

    def add(self, step: Step, version: int = 0) -> bool:
        """Counts one step of a policy of this `version`; True if an episode to learn from ended."""
        if (lost := lost_in(step, self._after_end)).any():
            self._forget(lost)
        ended = step.terminated | step.truncated
        self._after_end = ended if step.over is None else ended | step.over
        self._returned += points_of(step)
        self._steps += step.valid
        if step.over is None:
            return self._end(ended, version, self._returned, step.won)
        self._learned += step.reward
        self._lives += ended
        self._end(step.over, version, self._learned / np.maximum(1, self._lives), step.won)
        return bool(ended.any())

    def _end(
        self,
        ended: BoolArray,
        version: int,
        learned: npt.NDArray[np.float64],
        won: BoolArray | None,
    ) -> bool:
        """Gathers the games that ended, if any."""
        if not ended.any():
            return False
        now, made = self._clock(), self._before + int(self._steps.sum())
        for e in np.flatnonzero(ended):
            returned, length, life = self._returned[e], self._steps[e], learned[e]
            win = math.nan if won is None else float(won[e])
            self.ended.append(
                Ended(float(returned), int(length), now, made, version, float(life), win)
            )
        self._forget(ended)
        return True

    def _forget(self, which: BoolArray) -> None:
        self._before += int(self._steps[which].sum())
        for array in self._adding:
            array[which] = 0

    def begin_from(self, steps: int) -> None:
        """Goes on after so many steps, in new episodes."""
        self.begin_anew()
        self._before = steps

    def begin_anew(self) -> None:
        """Forgets the episodes in progress, for environments that were reset in the middle."""
        self._forget(np.ones_like(self._after_end))


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
            "learned": self._learned,
            "lives": self._lives,
            "steps": self._steps,
            "after_end": self._after_end,
            "before": self._before,
            "pending": pending,
        }

    def restore(self, state: State) -> None:
        """Goes on adding up where another log stood; older checkpoints said less of it."""
        self._returned[...] = state["returned"]
        self._steps[...] = state["steps"]
        self._learned[...] = state.get("learned", 0.0)
        self._lives[...] = state.get("lives", 0)
        self._after_end[...] = state.get("after_end", True)
        self._before = state.get("before", 0)
        self.ended = [Ended(*episode) for episode in state["pending"]]
