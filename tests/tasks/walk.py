"""A task that can say what it must remember, named in configs as `walk:Walk` and so on."""

import os
from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from tianji.core.state import random_state, restore_random
from tianji.envs import BaseEnv


class Walk(BaseEnv):
    """A walk in gusty wind; a sign says which end has the prize, and old footprints cost.

    Starts, signs and gusts are random, so episodes are of different lengths, and what comes next
    depends on everything that `state` names.
    """

    def init(self, middle=4, gusts=0.25):
        self.middle, self.gusts = middle, gusts
        self.observation_space = spaces.Box(-2, 2, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.footprints = np.zeros(2 * middle + 1, np.int64)
        self.place = self.sign = 0
        self.seed(0)

    def seed(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.footprints.fill(0)
        self.place = int(self.random.integers(1 - self.middle // 2, self.middle // 2))
        self.sign = int(self.random.choice([-1, 1]))
        return self._observe()

    def step(self, action):
        self.place += 1 if action else -1
        if self.random.random() < self.gusts:
            self.place += int(self.random.choice([-1, 1]))
        self.place = max(-self.middle, min(self.middle, self.place))
        reward = -0.02 * float(self.footprints[self.place + self.middle])
        self.footprints[self.place + self.middle] += 1
        if at_end := abs(self.place) == self.middle:
            reward += float(np.sign(self.place) * self.sign)
        return self._observe(), reward, at_end, False, {}

    def _observe(self):
        trodden = min(2, self.footprints[self.place + self.middle])
        return np.array([self.sign, self.place / self.middle, trodden], np.float32)

    def state(self):
        return {
            "place": self.place,
            "sign": self.sign,
            "footprints": self.footprints,
            "random": random_state(self.random),
        }

    def restore(self, state):
        self.place, self.sign = state["place"], state["sign"]
        self.footprints = state["footprints"]
        restore_random(self.random, state["random"])

    def render(self):
        return None

    def close(self):
        pass


class Forgetful(Walk):
    """The same walk, which cannot say what it must remember."""

    state = restore = None


class GymWalk(gymnasium.Env):
    """The same walk as gymnasium has it, with gymnasium's own random stream."""

    metadata: ClassVar = {"render_modes": []}

    def __init__(self, middle=4, render_mode=None):
        self.walk, self.render_mode = Walk(), render_mode
        self.walk.init(middle)
        self.observation_space = self.walk.observation_space
        self.action_space = self.walk.action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.walk.random = self.np_random
        return self.walk.reset(), {}

    def step(self, action):
        return self.walk.step(action)

    def state(self):
        return self.walk.state()

    def restore(self, state):
        self.walk.random = self.np_random
        self.walk.restore(state)


class Gusty(Walk):
    """The same walk, where a wind that knows no seed takes over from the 300th step of a place."""

    winds: ClassVar = {"steps": 0}

    def step(self, action):
        self.winds["steps"] += 1
        obs, reward, *rest = super().step(action)
        return obs, reward + (self.winds["steps"] > 600), *rest


class Glimpse(Walk):
    """The same walk, which shows something else once: after the call that GLIMPSE_AT says."""

    n_calls = -1  # the first is the reset before all steps

    def step(self, action):
        obs, *rest = super().step(action)
        return self._shown(obs), *rest

    def reset(self):
        return self._shown(super().reset())

    def _shown(self, obs):
        self.n_calls += 1
        if self.n_calls == int(os.environ.get("GLIMPSE_AT", "-1")):
            obs[2] += 0.25
        return obs


class Pitfall(Walk):
    """The same walk, which raises an exception in the 300th step."""

    n_steps = 0

    def step(self, action):
        self.n_steps += 1
        if self.n_steps == 300:
            raise RuntimeError("a pit")
        return super().step(action)
