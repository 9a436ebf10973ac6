"""A game that shows a Dict and a number, and whose actions count from 5: pick the dial shown."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Dials(gymnasium.Env):
    """A point for the action that the dial shows, told from 5 on; eight steps are an episode."""

    def __init__(self):
        self.observation_space = spaces.Dict(
            {"dial": spaces.Discrete(3, start=1), "noise": spaces.Box(-1, 1, (2,))}
        )
        self.action_space = spaces.Discrete(3, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._shown(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(action - 5 == self.dial - 1)
        self.t += 1
        return self._shown(), reward, self.t == 8, False, {}

    def _shown(self):
        self.dial = int(self.np_random.integers(1, 4))
        return {"dial": self.dial, "noise": self.np_random.uniform(-1, 1, 2).astype(np.float32)}
