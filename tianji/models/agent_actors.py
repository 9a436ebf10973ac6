"""Policies of several agents that follow critics: choices by Gumbel noise, or squashed numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tianji.core.algorithm import Task
from tianji.core.env import BoolArray, EnvSpec
from tianji.core.schema import Arrays
from tianji.models.layout import Floats
from tianji.models.policies import ActionBounds, Remembering
from tianji.models.recurrent import ActingAgents, AgentsLayout, any_possible


class ActorAgents(Remembering[ActingAgents]):
    """Each agent takes the best of its possible options, or a vector of numbers within bounds.

    It explores by Gumbel noise on the logits, which draws each option with its probability, or by
    noise of one deviation where bounds are -1 and 1. Until `random_until` of this policy's own
    steps everything that is possible is equally likely.
    """

    def __init__(
        self, task: Task, layout: AgentsLayout, seed: int, noise: float, random_until: float
    ) -> None:
        super().__init__(ActingAgents(layout, task.env.n_envs), seed)
        self._bounds = None if task.env.n_actions is not None else ActionBounds(task.env)
        self._noise, self._random_until = np.float32(noise), random_until

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """One action for each agent of each environment."""
        out, _ = self.outputs(obs["obs"], first)
        at_random = explore and self._steps < self._random_until
        self._steps += len(out) if explore else 0
        if self._bounds is not None:
            action = self._numbers(out, at_random, explore)
            return {"action": self._bounds.outer(action.reshape(len(out), -1))}
        mask = obs.get("mask")
        mask = np.ones(out.shape, np.bool_) if mask is None else mask
        if at_random:
            return {"action": any_possible(self._random, mask)}
        if explore:
            out = out + self._random.gumbel(size=out.shape).astype(np.float32)
        return {"action": np.where(mask, out, -np.inf).argmax(-1)}

    def _numbers(self, out: Floats, at_random: bool, explore: bool) -> Floats:
        if at_random:
            return self._random.uniform(-1, 1, out.shape).astype(np.float32)
        action: Floats = np.tanh(out)
        if explore:
            action = action + self._noise * self._random.standard_normal(out.shape, np.float32)
        return np.clip(action, -1, 1)


def numbers_used(env: EnvSpec, n: int) -> npt.NDArray[np.float32]:
    """1 for each option or number that an agent has, 0 where it is padded, [A, n]."""
    own = env.own_actions or (n,) * len(env.agents)
    return (np.arange(n) < np.array(own)[:, None]).astype(np.float32)
