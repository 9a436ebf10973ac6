"""A policy and a value that learn from whole rollouts: what PPO and IMPALA have in common."""

from __future__ import annotations

from typing import Any

from tianji.algorithms.base import GradientAlgorithm
from tianji.algorithms.scales import Scales
from tianji.core.algorithm import Policy, PolicyGraph, Task, Weights
from tianji.core.schema import Arrays, Field
from tianji.models.actor_critic import (
    ActorCritic,
    n_spread,
    n_value_weights,
    policy_fields,
    policy_network,
    policy_of,
)


class OnPolicy(GradientAlgorithm):
    """An actor-critic for either kind of action, whose rollouts have `hyp.step_len` steps.

    A subclass calls `_make` and gives itself an optimiser, and defines `sampling` and `updates`.
    """

    def _make(self, seed: int, device: str) -> None:
        """The networks, in one vector, and the scales."""
        self._discrete = self.task.env.choices is not None
        self._scales = self.scales(self.task)
        self.networks = self._make_networks(seed)
        self._own(self.networks.parameters(), device, self._scales.normalisers)

    def _make_networks(self, seed: int) -> Any:
        """The policy and the values."""
        return ActorCritic(self.task, seed)

    @classmethod
    def scales(cls, task: Task) -> Scales:
        """Of inputs and returns; by default none."""
        return Scales(task.env)

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        """The density of what was drawn, and the draw itself where bounds may have changed it."""
        return policy_fields(task)

    @classmethod
    def rollout_length(cls, task: Task) -> int:
        """`step_len`."""
        return int(task.hyp.step_len)

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> Policy:
        """A policy for either kind of action."""
        return policy_of(task, seed, cls.scales(task).inputs is not None)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the policy: an actor needs no values, unless they are of the same network."""
        return policy_network(task).n_weights + n_spread(task) + cls.scales(task).n_numbers

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Those of the value network too."""
        return cls.n_weights(task) + n_value_weights(task)

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The likeliest action and its logits, or the mean action within its bounds."""
        from tianji.models.export import exported

        scores, norm = "mean" if task.env.choices is None else "logits", cls.scales(task).inputs
        return exported(policy_network(task), weights, task.env, scores, n_spread(task), norm)

    def stage(self, batch: Arrays) -> Any:
        """What is large goes to the device; the rest is looked at where it is."""
        from tianji.models.inputs import RolloutInputs

        return batch, RolloutInputs(self.task.env, batch, self._stage, self._scales.inputs)
