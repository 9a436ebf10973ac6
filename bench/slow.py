"""An environment and algorithms that sleep for most of their costs: two cores carry many roles."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from gymnasium import spaces

from tianji.algorithms.dqn import DQN
from tianji.algorithms.ppo import PPO
from tianji.envs import BaseEnv

UPDATE_SECONDS = 0.004  # of DQN
EPOCHS_SECONDS = 0.060  # of PPO


class Slow(BaseEnv):
    """A thousand steps of nothing, each of which takes `seconds`."""

    def init(self, seconds: float = 0.002) -> None:
        """Keeps the time that a step takes."""
        self.seconds = seconds
        self.observation_space = spaces.Box(0, 1, (8,), np.float32)
        self.action_space = spaces.Discrete(4)

    def seed(self, seed: int) -> None:
        """Makes the observations reproducible."""
        self.random = np.random.default_rng(seed)

    def reset(self) -> Any:
        """Starts an episode."""
        self.t = 0
        return self.random.random(8, np.float32)

    def step(self, action: Any) -> Any:
        """Sleeps."""
        time.sleep(self.seconds)
        self.t += 1
        return self.random.random(8, np.float32), 0.0, False, self.t == 1_000, {}

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """There is nothing to give back."""


class SlowDQN(DQN):
    """DQN whose update takes so much longer."""

    def learn(self, batch: Any) -> dict[str, float]:
        """Sleeps, then learns."""
        time.sleep(UPDATE_SECONDS)
        return super().learn(batch)


class SlowPPO(PPO):
    """PPO whose update takes so much longer, whatever the batch."""

    def learn(self, batch: Any) -> dict[str, float]:
        """Sleeps, then learns."""
        time.sleep(EPOCHS_SECONDS)
        return super().learn(batch)
