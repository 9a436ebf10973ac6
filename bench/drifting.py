"""A task whose cost per step stands in a file that may be written anew while it runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from tianji.envs import BaseEnv

LOOK_SECONDS = 0.1  # from one look at the file to the next


class Drifting(BaseEnv):
    """Ten steps of noise; the file says how long a step takes and of what: `sleep 0.002`.

    `sleep` takes no CPU, so a few cores carry many actors and the result is a simulated one;
    `spin` is work.
    """

    def init(self, pace: str = "pace") -> None:
        """Nothing is read before the first step."""
        self.observation_space = spaces.Box(-1, 1, (8,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.pace = Path(pace)
        self.random = np.random.default_rng(0)
        self.t, self.looked_at, self.how, self.seconds = 0, 0.0, "sleep", 0.0

    def seed(self, seed: int) -> None:
        """Of the noise."""
        self.random = np.random.default_rng(seed)

    def reset(self) -> Any:
        """Begins another ten steps."""
        self.t = 0
        return self.random.uniform(-1, 1, 8).astype(np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes its time."""
        now = time.monotonic()
        if now > self.looked_at + LOOK_SECONDS:
            how, seconds = self.pace.read_text().split()
            self.looked_at, self.how, self.seconds = now, how, float(seconds)
        if self.how == "sleep":
            time.sleep(self.seconds)
        else:
            used = time.thread_time()
            while time.thread_time() - used < self.seconds:
                pass
        self.t += 1
        obs = self.random.uniform(-1, 1, 8).astype(np.float32)
        return obs, float(obs[0] > 0), False, self.t == 10, {}

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """Nor to close."""
