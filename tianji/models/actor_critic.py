"""The networks of an actor-critic: a policy, which actors have too, and a value for the learner."""

from __future__ import annotations

from typing import Any

import numpy as np

from tianji.core.algorithm import Policy, Task
from tianji.core.lazy import torch
from tianji.core.schema import Field
from tianji.models.layout import Network, network_of
from tianji.models.policies import LOG_2PI, CategoricalPolicy, GaussianPolicy, SeveralChoicesPolicy

CHUNK = 2_048  # samples that pass through a network at once, where no gradient is wanted
SMALL = 0.01  # gain of the policy's last layer: at first all actions are about equally likely


class ActorCritic:
    """Policy and value: two networks, or one whose last output is the value (`model.shared`)."""

    def __init__(self, task: Task, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._choices, self._n_policy = task.env.choices, n_policy_outputs(task)
        network = policy_network(task)
        self.exact = network.exact  # in an actor as here
        self.actor = network.module(generator, 1.0 if task.model.shares else SMALL)
        self.log_std = torch.nn.Parameter(torch.zeros(n_spread(task)))
        if task.model.shares:
            for last in [p for p in self.actor.parameters() if p.ndim == 2][-1:]:
                last.data[: self._n_policy] *= SMALL
            self.critic = None
        else:
            self.critic = network_of(task, 1).module(generator, 1.0)

    def parameters(self) -> list[torch.nn.Parameter]:
        """What actors need first."""
        critic = [] if self.critic is None else [*self.critic.parameters()]
        return [*self.actor.parameters(), self.log_std, *critic]

    def __call__(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The policy's outputs [B, n] and the values [B]."""
        out = self.actor(inputs)
        if self.critic is None:
            return out[:, :-1], out[:, -1]
        return out, self.critic(inputs).squeeze(1)

    def decide(self, inputs: torch.Tensor) -> torch.Tensor:
        """The policy's outputs [B, n] alone."""
        out: torch.Tensor = self.actor(inputs)
        return out if self.critic is not None else out[:, :-1]

    def values(self, inputs: torch.Tensor) -> torch.Tensor:
        """The values [B] alone."""
        return self(inputs)[1] if self.critic is None else self.critic(inputs).squeeze(1)

    def prepared(self, inputs: torch.Tensor) -> torch.Tensor:
        """Inputs as a shared network begins with them; two networks may begin differently."""
        return inputs if self.critic is not None else prepared(self.actor, inputs)

    def log_probability(
        self, out: torch.Tensor, action: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probability of each action under the policy's outputs, and the mean entropy."""
        if self._choices is not None and len(self._choices) == 1:
            return of_one_choice(out, action.reshape(-1, 1))
        if self._choices is not None:
            parts = torch.split(out, list(self._choices), 1)
            chosen = action.reshape(len(out), -1, 1).unbind(1)
            each = [of_one_choice(*pair) for pair in zip(parts, chosen, strict=True)]
            logps, entropies = zip(*each, strict=True)  # choices do not depend on each other
            return torch.stack(logps).sum(0), torch.stack(entropies).sum()
        logp, entropy = of_numbers(out, action, self.log_std)
        return logp.sum(1), entropy.sum()

    def log_probability_at(
        self, inputs: Any, rows: torch.Tensor, action: torch.Tensor
    ) -> torch.Tensor:
        """Of the actions in these rows of a `RolloutInputs`, not too many at once."""
        n = -(-len(rows) // CHUNK)
        parts = zip(rows.tensor_split(n), action.tensor_split(n), strict=True)
        outs = ((inputs.possible(self.decide(inputs(r)), r), a) for r, a in parts)
        return torch.cat([self.log_probability(out, a)[0] for out, a in outs])


def of_numbers(
    out: torch.Tensor, action: torch.Tensor, log_std: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-densities of numbers around `out`, and the entropy of each."""
    noise = (action - out) * torch.exp(-log_std)
    return -0.5 * noise.square() - log_std - 0.5 * LOG_2PI, log_std + 0.5 + 0.5 * LOG_2PI


def of_one_choice(out: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each of several single choices [B, 1], and the mean entropy."""
    logits = torch.log_softmax(out, 1)
    entropy = -(logits.exp() * logits).sum() / len(logits)
    return logits.gather(1, action).squeeze(1), entropy


def prepared(network: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Inputs in the number format and order of a CNN's first layer; others take them as they are.

    What was made so under `no_grad` may be learned from: nothing that is learned comes before it.
    """
    from tianji.models.cnn import CNN

    return network.prepared(inputs) if isinstance(network, CNN) else inputs


def n_policy_outputs(task: Task) -> int:
    """A logit per option of each choice, or a mean per number of an action vector."""
    if task.env.choices is not None:
        return sum(task.env.choices)
    return int(np.prod(task.env.action.shape, dtype=int))


def n_spread(task: Task) -> int:
    """Numbers that a Gaussian policy's spread has; none where actions are choices."""
    return 0 if task.env.choices is not None else n_policy_outputs(task)


def policy_network(task: Task) -> Network:
    """The network that actors have."""
    return network_of(task, n_policy_outputs(task) + task.model.shares)


def n_value_weights(task: Task) -> int:
    """Weights that actors have not."""
    return 0 if task.model.shares else network_of(task, 1).n_weights


def policy_of(task: Task, seed: int, normalise: bool = False) -> Policy:
    """A policy for any kind of action."""
    network, env = policy_network(task), task.env
    if env.n_actions is not None:
        return CategoricalPolicy(task, network, env.n_actions, seed, normalise)
    if env.choices is not None:
        return SeveralChoicesPolicy(task, network, env.choices, seed, normalise)
    return GaussianPolicy(task, network, seed, normalise)


def policy_fields(task: Task) -> tuple[Field, ...]:
    """The density of what was drawn, and the draw itself where bounds may have changed it."""
    logp = Field("logp", "float32")
    if task.env.choices is not None:
        return (logp,)
    return (logp, Field("raw", "float32", (n_policy_outputs(task),)))
