"""The networks of an actor-critic: a policy, which actors have too, and a value for the learner."""

from __future__ import annotations

import numpy as np

from tianji.algorithms.policies import LOG_2PI
from tianji.core.algorithm import Task
from tianji.core.lazy import torch
from tianji.models.layout import Floats, MLPLayout


class ActorCritic:
    """Both networks in one flat vector, in which what actors need lies first."""

    def __init__(self, task: Task, seed: int, device: str) -> None:
        from tianji.models.mlp import MLP, FlatParameters

        self._discrete = task.env.n_actions is not None
        generator = torch.Generator().manual_seed(seed)
        self.actor = MLP(policy_layout(task)).orthogonal(generator, last_gain=0.01)
        self.critic = MLP(value_layout(task)).orthogonal(generator, last_gain=1.0)
        self.log_std = torch.nn.Parameter(torch.zeros(n_spread(task)))
        parameters = [*self.actor.parameters(), self.log_std, *self.critic.parameters()]
        self.flat = FlatParameters(parameters, device)

    def log_probability(
        self, obs: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability of each action, and the mean entropy."""
        out = self.actor(obs)
        if self._discrete:
            logits = torch.log_softmax(out, 1)
            entropy = -(logits.exp() * logits).sum() / len(logits)
            return logits.gather(1, action[:, None]).squeeze(1), entropy
        log_std = self.log_std
        noise = (action - out) * torch.exp(-log_std)
        logp = (-0.5 * noise.square() - log_std - 0.5 * LOG_2PI).sum(1)
        return logp, (log_std + 0.5 + 0.5 * LOG_2PI).sum()

    def values(self, obs: torch.Tensor) -> Floats:
        """Of observations [n, T, E, ...], without gradients and in the CPU's memory."""
        with torch.no_grad():
            value: Floats = self.critic(obs.flatten(0, 2)).view(obs.shape[:3]).cpu().numpy()
        return value


def policy_layout(task: Task) -> MLPLayout:
    """The policy network: a logit per action, or a mean per number of an action vector."""
    if task.env.n_actions is not None:
        n_outputs = task.env.n_actions
    else:
        n_outputs = int(np.prod(task.env.action.shape, dtype=int))
    return MLPLayout(_n_inputs(task), tuple(task.model.hidden), n_outputs, task.model.act)


def n_spread(task: Task) -> int:
    """Numbers that a Gaussian policy's spread has; none for a choice among n actions."""
    return 0 if task.env.n_actions is not None else policy_layout(task).n_outputs


def value_layout(task: Task) -> MLPLayout:
    """The value network: the same hidden layers and one output."""
    return MLPLayout(_n_inputs(task), tuple(task.model.hidden), 1, task.model.act)


def _n_inputs(task: Task) -> int:
    return task.env.n_inputs
