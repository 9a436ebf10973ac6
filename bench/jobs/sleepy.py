"""CartPole whose steps take a given time: a stand-in for a slow simulator that needs no core.

Sleeping takes no CPU, so that two cores carry the actors of many more. What is measured with it is
simulated, and has to be labelled so. Nothing here needs TianJi: other libraries are given the same
environment, as `gymnasium.make("sleepy:SleepyCartPole-v1", step_seconds=0.001)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv

NAME = "SleepyCartPole-v1"


class Pace:
    """Makes calls take a given time on average.

    What a call took too long is taken off the next ones. So the late waking of a sleep does not add
    up, as with deadlines on a clock; but time between two calls, in which a caller may have waited
    for something else, is nobody's debt.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._began = self._late = 0.0

    def begin(self) -> None:
        """The call begins."""
        self._began = self._clock()

    def end(self, seconds: float) -> None:
        """Sleeps until the call, with what earlier ones took too long, has taken `seconds`."""
        left = seconds - self._late - (self._clock() - self._began)
        if left > 0:
            self._sleep(left)
        late = self._late + (self._clock() - self._began) - seconds
        self._late = min(max(0.0, late), seconds)  # work that never keeps up owes one call at most


class SleepyCartPole(CartPoleEnv):
    """One pole; a step takes `step_seconds`."""

    def __init__(self, step_seconds: float = 0.0, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._seconds, self._pace = step_seconds, Pace()

    def step(self, action: Any) -> Any:
        """As the pole's, and slow."""
        self._pace.begin()
        result = super().step(action)
        self._pace.end(self._seconds)
        return result


class SleepyCartPoleVector(CartPoleVectorEnv):
    """Many poles; a step of all of them together takes `step_seconds`."""

    def __init__(self, num_envs: int = 1, step_seconds: float = 0.0, **arguments: Any) -> None:
        super().__init__(num_envs, **arguments)
        self._seconds, self._pace = step_seconds, Pace()

    def step(self, action: Any) -> Any:
        """As the poles', and slow."""
        self._pace.begin()
        result = super().step(action)
        self._pace.end(self._seconds)
        return result


if NAME not in gymnasium.registry:
    gymnasium.register(
        NAME,
        entry_point=SleepyCartPole,
        vector_entry_point=SleepyCartPoleVector,
        max_episode_steps=500,
        reward_threshold=475.0,
    )
