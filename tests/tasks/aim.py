"""A continuous task of seconds that can say what it must remember, in configs `aim:Aim`."""

import numpy as np
from gymnasium import spaces

from tianji.core.state import random_state, restore_random
from tianji.envs import BaseEnv

LOW, HIGH = -2.0, 4.0


class Aim(BaseEnv):
    """Shows a mark on a line; the nearer an action comes to it, the more of a point it earns."""

    def init(self):
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Box(LOW, HIGH, (1,), np.float32)
        self.t, self.mark = 0, 0.0
        self.seed(0)

    def seed(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.t = 0
        return self._show()

    def step(self, action):
        reward = 1 - abs(float(action[0]) - self.mark)
        self.t += 1
        return self._show(), reward, False, self.t == 10, {}

    def _show(self):
        self.mark = float(self.random.uniform(-1.5, 3.5))
        place = (self.mark - 1) / 2.5
        return np.array([place, 0.5], np.float32)

    def state(self):
        return {"t": self.t, "mark": self.mark, "random": random_state(self.random)}

    def restore(self, state):
        self.t, self.mark = state["t"], state["mark"]
        restore_random(self.random, state["random"])

    def render(self):
        return None

    def close(self):
        pass
