"""A small environment whose policies see stacked frames."""

import numpy as np
from film import Film, film_spec

from tianji.core.state import random_state, restore_random

STACK = 3


class PixelEnv(Film):
    """A film whose reward depends on the frame before the newest one."""

    def __init__(self, config=None, n_envs=None, same_step=False):
        super().__init__(film_spec(STACK, n_envs or 2, same_step), 0, None, 0.1)

    def reset(self, seed=None):
        self.random = np.random.default_rng(seed)
        return super().reset()

    def step(self, action):
        step = super().step(action)
        step.reward[:] = action == (self.time // 2) % 2
        return step

    def state(self):
        about = {name: getattr(self, name).copy() for name in ("episode", "time", "over")}
        return {**about, "random": random_state(self.random)}

    def restore(self, state):
        for name in ("episode", "time", "over"):
            getattr(self, name)[:] = state[name]
        restore_random(self.random, state["random"])

    def close(self):
        pass
