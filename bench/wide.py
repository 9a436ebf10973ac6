"""A task that is nearly all observation: batches take long to make, steps and updates do not."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from tianji.envs import BaseEnv

N_SEEN = 64  # different observations


class Wide(BaseEnv):
    """Ten steps of noise, of `width` numbers each."""

    def init(self, width: int = 4_096) -> None:
        """Makes all that will ever be seen."""
        self.observation_space = spaces.Box(-1, 1, (width,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.seen = np.random.default_rng(0).uniform(-1, 1, (N_SEEN, width)).astype(np.float32)
        self.random = np.random.default_rng(0)
        self.t = 0

    def seed(self, seed: int) -> None:
        """Of what is seen when."""
        self.random = np.random.default_rng(seed)

    def reset(self) -> Any:
        """Begins another ten steps."""
        self.t = 0
        return self.seen[self.random.integers(N_SEEN)]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Shows something else."""
        self.t += 1
        obs = self.seen[self.random.integers(N_SEEN)]
        return obs, float(obs[0] > 0), False, self.t == 10, {}

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """Nor to close."""
