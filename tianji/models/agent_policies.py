"""Policies of several agents at once; they compute in numpy."""

from __future__ import annotations

import numpy as np

from tianji.core.algorithm import Task, Weights
from tianji.core.env import BoolArray
from tianji.core.frames import MEMORY
from tianji.core.schema import Arrays
from tianji.core.state import State
from tianji.models.agent_actors import numbers_used
from tianji.models.layout import Floats
from tianji.models.policies import LOG_2PI, Remembering, chosen
from tianji.models.recurrent import (
    FORBIDDEN,
    ActingAgents,
    AgentsLayout,
    any_possible,
    best_possible,
)


class GreedyAgents(Remembering[ActingAgents]):
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
        super().__init__(ActingAgents(layout, task.env.n_envs), seed)
        self._remembers = layout.network.n_memory > 0
        self._version = 0

    def load(self, weights: Weights, version: int) -> None:
        """Copies the agents' weights; their version is the number of updates behind them."""
        super().load(weights, version)
        self._version = version

    @property
    def epsilon(self) -> float:
        """Probability of a random action at the current step."""
        by_steps = self._steps / self._over_steps if self._over_steps else 1.0
        by_updates = self._version / self._over_updates if self._over_updates else 1.0
        return 1.0 + (self._final - 1.0) * min(by_steps, by_updates, 1.0)

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """One action for each agent of each environment, and what was remembered before."""
        values, memory = self.outputs(obs["obs"], first)
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
        return {**super().state(), "version": self._version}

    def restore(self, state: State) -> None:
        """Explores on where another policy stopped."""
        super().restore(state)
        self._version = state["version"]


class DrawingAgents(Remembering[ActingAgents]):
    """Each agent draws one of its possible options, or a vector of numbers around its outputs."""

    def __init__(self, task: Task, layout: AgentsLayout, n_spread: int, seed: int) -> None:
        """The logarithms of the spread, `n_spread` numbers, lie behind the networks' weights."""
        super().__init__(ActingAgents(layout, task.env.n_envs), seed)
        self._remembers = layout.network.n_memory > 0
        self._n_actions = task.env.n_actions
        self._spread = np.zeros((len(layout.groups), n_spread // len(layout.groups)), np.float32)
        self._log_std = np.zeros((layout.n_agents, self._spread.shape[1]), np.float32)
        self._groups = layout.groups
        if self._n_actions is None:
            shape = layout.n_agents, self._spread.shape[1]
            self._low, self._high = (
                np.asarray(each, np.float32).reshape(shape)
                for each in (task.env.action_low, task.env.action_high)
            )
            self._used = numbers_used(task.env, shape[1])

    def load(self, weights: Weights, version: int) -> None:
        """Copies the agents' weights, and how far they spread."""
        self.outputs.load(weights)
        start = len(self.outputs.flat)
        spread = weights[start : start + self._spread.size]
        self._set_spread(spread.reshape(self._spread.shape))

    def _set_spread(self, spread: Floats) -> None:
        self._spread[...] = spread
        for group, own in zip(self._groups, self._spread, strict=True):
            self._log_std[group.index] = own

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """One action for each agent, the density of each draw, and what was remembered before."""
        out, memory = self.outputs(obs["obs"], first)
        kept = {MEMORY: memory} if self._remembers else {}
        if self._n_actions is None:
            return self._numbers(out[..., : self._spread.shape[1]], explore) | kept
        logits = np.where(obs["mask"], out[..., : self._n_actions], np.float32(FORBIDDEN))
        shape = logits.shape[:2]
        random = self._random if explore else None
        action, logp = chosen(logits.reshape(-1, self._n_actions), random)
        return {"action": action.reshape(shape), "logp": logp.reshape(shape), **kept}

    def _numbers(self, raw: Floats, explore: bool) -> Arrays:
        density = -0.5 * LOG_2PI - self._log_std
        noise = np.zeros_like(raw)
        if explore:
            noise = self._random.standard_normal(raw.shape, np.float32)
            raw = raw + noise * np.exp(self._log_std)
        logp = ((density - 0.5 * np.square(noise)) * self._used).sum(2, dtype=np.float32)
        return {"action": np.clip(raw, self._low, self._high), "raw": raw, "logp": logp}

    def state(self) -> State:
        """The weights, what is remembered, the spread and the stream of draws."""
        return {**super().state(), "spread": self._spread}

    def restore(self, state: State) -> None:
        """Draws on where another policy stopped."""
        super().restore(state)
        self._set_spread(state["spread"])
