"""Policies of several agents at once; they compute in numpy."""

from __future__ import annotations

import numpy as np

from tianji.core.algorithm import Task, Weights
from tianji.core.env import BoolArray
from tianji.core.frames import MEMORY
from tianji.core.schema import Arrays
from tianji.core.state import State, random_state, restore_random
from tianji.models.recurrent import ActingAgents, AgentsLayout, any_possible, best_possible


class GreedyAgents:
    """Each agent takes its best possible action, or any of them with a probability that falls.

    Epsilon has fallen when enough steps were made and enough updates: with many environments the
    steps alone are over before anything was learned.
    """

    def __init__(
        self,
        task: Task,
        layout: AgentsLayout,
        seed: int,
        final: float,
        steps: float,
        updates: int,
    ) -> None:
        """Epsilon falls from 1 to `final` over `steps` of this policy's own, and over `updates`."""
        self._final, self._over_steps, self._over_updates = final, steps, updates
        self._acting = ActingAgents(layout, task.env.n_envs)
        self._remembers = layout.network.n_memory > 0
        self._random = np.random.default_rng(seed)
        self._steps = self._version = 0

    def load(self, weights: Weights, version: int) -> None:
        """Copies the agents' weights; their version is the number of updates behind them."""
        self._acting.load(weights)
        self._version = version

    @property
    def epsilon(self) -> float:
        """Probability of a random action at the current step."""
        by_steps = self._steps / self._over_steps if self._over_steps else 1.0
        by_updates = self._version / self._over_updates if self._over_updates else 1.0
        return 1.0 + (self._final - 1.0) * min(by_steps, by_updates, 1.0)

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """One action for each agent of each environment, and what was remembered before."""
        values, memory = self._acting(obs["obs"], first)
        mask = obs["mask"]
        action = best_possible(values, mask)
        if explore:
            at_random = self._random.random(action.shape) < self.epsilon
            if at_random.any():
                action = np.where(at_random, any_possible(self._random, mask), action)
            self._steps += len(action)
        return {"action": action, MEMORY: memory} if self._remembers else {"action": action}

    def state(self) -> State:
        """The weights, what is remembered, the stream of draws, and how far exploration has come.

        Steps and updates are what epsilon depends on.
        """
        come = {"steps": self._steps, "version": self._version}
        return {**self._acting.state(), "random": random_state(self._random), **come}

    def restore(self, state: State) -> None:
        """Explores on where another policy stopped."""
        self._acting.restore(state)
        restore_random(self._random, state["random"])
        self._steps, self._version = state["steps"], state["version"]
