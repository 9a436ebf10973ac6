"""An environment of one's own: a corridor with a sign that says which end has the prize.

Train on it with `tianji train examples/own_environment_config.py`. The class follows the template
of the paper's Figure 8; a `gymnasium.Env` would do as well.
"""

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete

from tianji import BaseEnv, State, random_state, restore_random


class Corridor(BaseEnv):
    """Starts in the middle; the observation is the sign (-1 or 1) and one's place (-1 to 1)."""

    def init(self, length: int = 9, step_cost: float = 0.01) -> None:
        """Takes the keys of the config's `environment` section."""
        self.observation_space = Box(-1, 1, (2,), np.float32)
        self.action_space = Discrete(2)
        self.middle, self.step_cost = length // 2, step_cost
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Makes the signs reproducible."""
        self.random = np.random.default_rng(seed)

    def reset(self) -> Any:
        """Puts up a sign and goes to the middle."""
        self.place, self.sign = 0, int(self.random.choice([-1, 1]))
        return self._observe()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """0 walks left, 1 right; the prize is 1 at the end the sign points to, -1 at the other."""
        self.place += 1 if action == 1 else -1
        at_end = abs(self.place) == self.middle
        prize = self.sign * self.place / self.middle if at_end else 0.0
        return self._observe(), prize - self.step_cost, at_end, False, {}

    def _observe(self) -> Any:
        return np.array([self.sign, self.place / self.middle], np.float32)

    def state(self) -> State:
        """Everything that the next steps depend on, for checkpoints; optional."""
        return {"place": self.place, "sign": self.sign, "random": random_state(self.random)}

    def restore(self, state: State) -> None:
        """Goes on within the episode that was saved: a resumed run is the uninterrupted one."""
        self.place, self.sign = state["place"], state["sign"]
        restore_random(self.random, state["random"])

    def render(self) -> None:
        """Prints the corridor."""
        print(
            "".join("@" if x == self.place else "." for x in range(-self.middle, self.middle + 1))
        )

    def close(self) -> None:
        """Has nothing to give back."""
