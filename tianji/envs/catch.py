"""Catch: a small game of pixels for tests and first steps; a ball falls, a paddle catches it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete

from tianji.core.env import EnvSpec, Step
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays, Field
from tianji.core.state import State, random_state, restore_random
from tianji.envs.shown import Picture
from tianji.envs.spaces import Actions

CELLS = 12  # least cells from wall to wall
BALL, PADDLE = 255, 160  # grey levels
LEFT_STAY_RIGHT = 3


class Catch:
    """An `Env` of E boards. The ball falls one row a step and bounces off the walls; catch it.

    Per step the ball moves up to `fastest` columns to the side and the paddle, three columns wide,
    one. So a paddle that is where the ball is comes too late: who wants each ball must see how it
    flies, which takes two frames (`stack`). A caught ball is worth 1, a lost one -1, and an episode
    is `balls` of them: the best return is `balls`, and every ball can be caught.
    """

    def __init__(
        self, n_envs: int, size: int = 24, balls: int = 1, fastest: int = 2, stack: int = 2
    ) -> None:
        for name, value, low, high in (
            ("size", size, CELLS, 210),
            ("balls", balls, 1, 1000),
            ("fastest", fastest, 1, 3),
            ("stack", stack, 1, 16),
        ):
            if type(value) is not int or not low <= value <= high:
                raise TianJiError(
                    f"Catch: {name} must be a whole number from {low} to {high}, found {value!r}"
                )
        self._pixels = size // CELLS  # of a cell's side
        self._cells = size // self._pixels
        self._balls, self._fastest = balls, fastest
        self.spec = EnvSpec(
            observations=(Field("obs", "uint8", (size, size)),),
            action=Field("action", "int64", ()),
            choices=(LEFT_STAY_RIGHT,),
            n_envs=n_envs,
            reward_threshold=0.9 * balls,
            max_episode_steps=balls * (self._cells - 1),
            stack=stack,
        )
        self.fps = 10.0
        self._actions = Actions("Catch", Discrete(LEFT_STAY_RIGHT), self.spec)
        self._random = np.random.default_rng(0)
        self._row, self._column, self._speed, self._paddle, self._left = (
            np.zeros(n_envs, np.int64) for _ in range(5)
        )
        self._ended = np.zeros(n_envs, np.bool_)
        self._valid = np.ones(n_envs, np.bool_)

    def reset(self, seed: int | None = None) -> Arrays:
        """Begins every episode anew; one seed makes them all."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self._ended.fill(False)
        self._begin(np.ones(len(self._ended), np.bool_))
        return self._observed()

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Moves paddles, then balls; where an episode had ended, only begins the next."""
        moves = self._actions.all(action) - 1
        fresh, self._valid = self._ended, ~self._ended
        np.clip(self._paddle + moves, 1, self._cells - 2, out=self._paddle)
        self._row += 1
        self._column += self._speed
        last = self._cells - 1
        out = (self._column < 0) | (self._column > last)
        self._speed[out] *= -1
        self._column[self._column < 0] *= -1
        far = self._column > last
        self._column[far] = 2 * last - self._column[far]
        landed = (self._row == last) & self._valid
        caught = np.abs(self._column - self._paddle) <= 1
        reward = np.where(landed, np.where(caught, 1.0, -1.0), 0.0).astype(np.float32)
        self._left -= landed
        self._ended = landed & (self._left == 0)
        self._drop(landed & ~self._ended)
        self._begin(fresh)
        none = np.zeros(len(landed), np.bool_)
        return Step(self._observed(), reward, self._ended, none, self._valid, ~self._valid)

    def close(self) -> None:
        """There is nothing to give back."""

    def picture(self) -> Picture:
        """The first board, in grey."""
        board = self._observed()["obs"][0].repeat(8, 0).repeat(8, 1)
        return np.repeat(board[:, :, None], 3, 2)

    def state(self) -> State:
        """Boards and the random stream."""
        return {"boards": self._boards(), "random": random_state(self._random)}

    def restore(self, state: State) -> None:
        """Goes on within the same episodes."""
        for name, array in self._boards().items():
            array[...] = state["boards"][name]
        restore_random(self._random, state["random"])

    def _boards(self) -> Arrays:
        return {
            "row": self._row,
            "column": self._column,
            "speed": self._speed,
            "paddle": self._paddle,
            "left": self._left,
            "ended": self._ended,
            "valid": self._valid,
        }

    def _begin(self, which: npt.NDArray[np.bool_]) -> None:
        self._paddle[which] = self._cells // 2
        self._left[which] = self._balls
        self._drop(which)

    def _drop(self, which: npt.NDArray[np.bool_]) -> None:
        """A new ball at the top."""
        n = int(np.count_nonzero(which))
        if not n:
            return
        self._row[which] = 0
        self._column[which] = self._random.integers(self._cells, size=n)
        speed = self._random.integers(1, self._fastest + 1, size=n)
        self._speed[which] = speed * self._random.choice((-1, 1), size=n)

    def _observed(self) -> Arrays:
        """The boards as frames, new ones each time."""
        n, p = len(self._row), self._pixels
        frames = np.zeros((n, *self.spec.observations[0].shape), np.uint8)
        e, side = np.arange(n)[:, None, None], np.arange(p)
        last = (self._cells - 1) * p
        wide = np.arange(3 * p)
        columns = ((self._paddle - 1) * p)[:, None, None] + wide
        frames[e, (last + side)[None, :, None], columns] = PADDLE
        rows = (self._row * p)[:, None, None] + side[:, None]
        frames[e, rows, (self._column * p)[:, None, None] + side] = BALL
        return {"obs": frames}
