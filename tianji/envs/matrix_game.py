"""The two-step game of the QMIX paper: what linear mixing cannot learn, in two steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.env import Rendering, Step
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays, Field
from tianji.core.state import State
from tianji.envs.agents import Choices, Wanted, agents_spec

PAYOFFS = np.array([[[7, 7], [7, 7]], [[0, 1], [1, 8]]], np.float32)
"""[game, first agent's action, second agent's action]: one is safe, the other can give 8."""


def make_matrix_game(wanted: Wanted) -> MatrixGame:
    """E two-step games."""
    if wanted.rendering is not Rendering.NONE:
        raise TianJiError("MatrixGameEnv cannot be shown: it has no picture")
    return MatrixGame(wanted.n_envs)


class MatrixGame:
    """An `Env`: first agent 0 chooses which of two games both then play once.

    `obs` and `state` are one-hot: the start, the safe game, or the risky one; after the end, the
    game that was played. The best return is 8; who adds up values of single agents gets 7.
    """

    def __init__(self, n_envs: int) -> None:
        self.spec = agents_spec(
            ["agent_0", "agent_1"],
            Field("obs", "float32", (3,)),
            3,
            n_actions=2,
            n_envs=n_envs,
            max_episode_steps=2,
        )
        self._choices = Choices("MatrixGameEnv", self.spec)
        self._place = np.zeros(n_envs, np.int64)  # 0: the start, 1 and 2: the games
        self._ended = np.zeros(n_envs, np.bool_)
        self._nobody = np.zeros(n_envs, np.bool_)
        self._mask = np.ones((n_envs, 2, 2), np.bool_)

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every game; nothing is random."""
        self._place.fill(0)
        self._ended.fill(False)
        return self._seen()

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Chooses a game, plays it, or begins anew where it was played."""
        was_over, place = self._ended, self._place
        action = self._choices.check(action, self._mask, ~was_over)
        playing = (place > 0) & ~was_over
        gained = PAYOFFS[np.maximum(place - 1, 0), action[:, 0] % 2, action[:, 1] % 2]
        chosen = np.where(place == 0, 1 + action[:, 0], place)
        self._place = np.where(was_over, 0, chosen)
        self._ended = playing
        reward = np.where(playing, gained, np.float32(0))
        return Step(self._seen(), reward, playing, self._nobody.copy(), ~was_over, was_over.copy())

    def close(self) -> None:
        """Nothing is held."""

    def state(self) -> State:
        """Where each game stands."""
        return {"place": self._place, "ended": self._ended}

    def restore(self, state: State) -> None:
        """Goes on within the same games."""
        self._place = np.array(state["place"], np.int64)
        self._ended = np.array(state["ended"], np.bool_)

    def _seen(self) -> Arrays:
        where = np.eye(3, dtype=np.float32)[self._place]
        return {
            "obs": np.repeat(where[:, None], 2, 1),
            "mask": self._mask,
            "state": where,
            "alive": np.ones(self._mask.shape[:2], np.bool_),
        }
