"""PQN: Q-learning from fresh rollouts of many environments, without replay or target network."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tianji.algorithms.base import (
    FallingRate,
    GradientAlgorithm,
    advantages,
    equal_share,
    one_choice,
)
from tianji.config.binder import key
from tianji.core.algorithm import PolicyGraph, Scalars, Task, Weights
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.core.state import State, random_state, restore_random
from tianji.models.actor_critic import prepared
from tianji.models.layout import Network, network_of
from tianji.models.policies import GreedyPolicy
from tianji.stores.rollouts import Rollouts


@dataclass(frozen=True)
class PQNHyp(FallingRate):
    """Hyper-parameters of PQN."""

    lr: float = key(2.5e-4, "learning rate of RAdam", above=0)
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    q_lambda: float = key(
        0.65,
        "lambda of Q(lambda): 0 looks one step ahead, 1 to the end of the rollout",
        at_least=0,
        at_most=1,
    )
    epsilon: float = key(0.001, "final probability of a random action", at_least=0, at_most=1)
    max_decay_step: int = key(
        100_000, "environment steps over which epsilon falls from 1 to its final value", at_least=0
    )
    step_len: int = key(32, "steps per rollout and environment", at_least=1)
    batch_size: int | None = key(
        None, "rollouts per update; default: one from each actor", at_least=1
    )
    update_step: int = key(2, "epochs over a batch", at_least=1)
    minibatch: int = key(128, "samples per step of the optimiser", at_least=1)
    max_grad_norm: float | None = key(10.0, "largest norm of the gradient; None: no limit", above=0)
    adam_eps: float = key(1e-8, "epsilon of RAdam", above=0)


class PQN(GradientAlgorithm):
    """Parallelised Q-network (Gallici et al. 2024): normalised layers instead of a target."""

    Hyp = PQNHyp
    scalars: ClassVar[tuple[str, ...]] = ("loss", "q_mean", "target_mean")

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.optimisers import RAdam

        self.hyp: PQNHyp = task.hyp
        self.network = q_network(task).module(torch.Generator().manual_seed(seed))
        self._own([*self.network.parameters()], device)
        self._optimiser = RAdam(self._flat, self.hyp.lr, self.hyp.adam_eps)
        self._choose_precision(self.network, self.hyp.minibatch)
        self._random = np.random.default_rng(seed)

    @classmethod
    def rollout_length(cls, task: Task) -> int:
        """`step_len`."""
        return int(task.hyp.step_len)

    @classmethod
    def alternates(cls, hyp: PQNHyp, n_actors: int) -> bool:
        """Actors and learner never work at the same time."""
        return True

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> GreedyPolicy:
        """Greedy with probability 1 - epsilon."""
        decay = task.hyp.max_decay_step / task.n_actors
        return GreedyPolicy(task, q_network(task), seed, task.hyp.epsilon, decay)

    @classmethod
    def sampling(cls, task: Task) -> Rollouts:
        """Whole rollouts of the present policy, each learned from once."""
        batch = task.hyp.batch_size or task.n_actors
        share, rows = equal_share(batch, task.n_actors), task.hyp.step_len * task.env.n_envs
        return Rollouts(batch, batch, rows, per_version=share)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the Q-network."""
        return q_network(task).n_weights

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The greedy action, and the Q-values that it is the best of."""
        from tianji.models.export import exported

        return exported(q_network(task), weights, task.env, "q")

    def stage(self, batch: Arrays) -> Any:
        """What is large goes to the device; the rest is looked at where it is."""
        from tianji.models.inputs import RolloutInputs

        return batch, RolloutInputs(self.task.env, batch, self._stage, None)

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """Several epochs of minibatches towards targets that are made once."""
        arrays, inputs = batch
        h, valid, loss = self.hyp, arrays["valid"], None
        goals = self._goals(arrays, inputs)[valid]
        columns = np.flatnonzero(valid), arrays["action"][valid], goals
        on_device = [torch.from_numpy(each).to(self._device) for each in columns]
        n = max(1, round(valid.size * self.task.n_learners / h.minibatch))
        lr = h.rate(self._n_updates)
        scalars = dict.fromkeys(self.scalars, 0.0)
        for _ in range(h.update_step):
            order = torch.from_numpy(self._random.permutation(len(goals))).to(self._device)
            for part in zip(*(each[order].tensor_split(n) for each in on_device), strict=True):
                loss = None
                if len(part[0]):  # of several learners one may have none left
                    loss, scalars = self._loss(inputs, *part)
                    loss = loss * (len(part[0]) * n / valid.size)  # equal samples, equal weights
                self._optimiser.lr = lr
                yield from self._descend(loss, h.max_grad_norm)
        self._n_updates += 1
        return scalars

    def _goals(self, batch: Arrays, inputs: Any) -> Any:
        """Q(lambda) of every step: a mean of the returns of all lengths, later ones counting less.

        The value of a state is that of its best action, so these are the targets of an advantage
        with lambda.
        """
        best = _Best(self.network)
        _, value = inputs.through(best, with_policy=False)
        final = inputs.final(best)
        return advantages(batch, value, final, self.hyp.gamma, self.hyp.q_lambda)[1]

    def _loss(
        self, inputs: Any, rows: torch.Tensor, action: torch.Tensor, goal: torch.Tensor
    ) -> tuple[torch.Tensor, Scalars]:
        """Half the squared error, and what is logged."""
        q = self.network(inputs(rows)).gather(1, action[:, None]).squeeze(1)
        loss = 0.5 * (q - goal).square().mean()
        scalars = {"loss": loss.detach(), "q_mean": q.detach().mean(), "target_mean": goal.mean()}
        return loss, scalars

    def state(self) -> State:
        """Everything that is learned, and the order of minibatches."""
        return {**super().state(), "random": random_state(self._random)}

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        super().restore(state)
        restore_random(self._random, state["random"])


class _Best:
    """A Q-network as what values states."""

    def __init__(self, network: torch.nn.Module) -> None:
        self._network = network

    def __call__(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Q of every action [B, n], and of the best [B]."""
        q = self._network(inputs)
        return q, q.amax(1)

    def values(self, inputs: torch.Tensor) -> torch.Tensor:
        """Q of the best action [B]."""
        return self(inputs)[1]

    def prepared(self, inputs: torch.Tensor) -> torch.Tensor:
        """Inputs as the network begins with them."""
        return prepared(self._network, inputs)


def q_network(task: Task) -> Network:
    """The Q-network of a job, with LayerNorm unless the model says otherwise."""
    n_actions, model = one_choice(task, "PQN"), task.model
    if model.norm is None:
        task = replace(task, model=replace(model, norm="all"))
    return network_of(task, n_actions, bool(model.dueling))
