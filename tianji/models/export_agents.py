"""Policies of several agents without exploration, as one torch module for torch's exporter."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tianji.core.algorithm import PolicyGraph, Weights
from tianji.core.env import EnvSpec
from tianji.core.frames import FIRST, MEMORY
from tianji.models.export import converted
from tianji.models.flat import fill
from tianji.models.gru import AgentNetwork
from tianji.models.policies import ActionBounds
from tianji.models.recurrent import ActingAgents, AgentsLayout

MASK = "mask"
NEXT_MEMORY = "next_memory"


class ActingTeam(nn.Module):
    """From what all agents see to their actions, what these follow from, and what is remembered."""

    places: Tensor
    centre: Tensor
    scale: Tensor
    low: Tensor
    high: Tensor

    def __init__(
        self, layout: AgentsLayout, weights: Weights, env: EnvSpec, n_scores: int, squashed: bool
    ) -> None:
        """`squashed` numbers are the tanh of what networks say, within the bounds."""
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self._layout, self._n_scores, self._discrete = layout, n_scores, env.n_actions is not None
        self._squashed, self._unit = squashed, 1 / 255 if env.inputs[0].dtype == "uint8" else 1.0
        networks = [layout.network.module(generator) for _ in layout.groups]
        self.networks = nn.ModuleList(networks).requires_grad_(False)
        fill(self.networks.parameters(), torch.tensor(weights))
        order = [a for group in layout.groups for a in group.agents]
        self.register_buffer("places", torch.tensor(order).argsort())
        if not self._discrete:
            shape = env.action.shape
            self.register_buffer("low", torch.tensor(env.action_low).view(shape))
            self.register_buffer("high", torch.tensor(env.action_high).view(shape))
        if squashed:
            bounds = ActionBounds(env)
            self.register_buffer("centre", torch.from_numpy(bounds.centre).view(shape))
            self.register_buffer("scale", torch.from_numpy(bounds.scale).view(shape))

    def forward(
        self,
        obs: Tensor,
        mask: Tensor | None = None,
        memory: Tensor | None = None,
        first: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """Action [E, A, ...], scores [E, A, n] and the next memory [E, A, h] if there is one."""
        seen = obs.flatten(2) * self._unit
        if memory is not None and first is not None:
            memory = memory.masked_fill(first[:, None, None], 0.0)
        parts = [
            self._of_group(network, seen[:, group.index], group.index, memory)
            for network, group in zip(self.networks, self._layout.groups, strict=True)
        ]
        out, after = (torch.cat(each, 1)[:, self.places] for each in zip(*parts, strict=True))
        scores = out[..., : self._n_scores]
        action = self._best(scores, mask) if self._discrete else self._numbers(scores)
        return (action, scores) if memory is None else (action, scores, after)

    def _of_group(
        self, network: Any, seen: Tensor, index: Any, memory: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """What one network says for its agents [E, k, n], and what they remember then."""
        n_agents = seen.shape[1]
        if n_ids := self._layout.network.n_ids:
            ids = torch.eye(n_agents, n_ids).expand(seen.shape[0], n_agents, n_ids)
            seen = torch.cat([seen, ids], 2)
        return stepped(network, seen, None if memory is None else memory[:, index])

    def _best(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        possible = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return possible.argmax(2)

    def _numbers(self, out: Tensor) -> Tensor:
        if self._squashed:
            out = self.centre + self.scale * out.tanh()
        return torch.minimum(torch.maximum(out, self.low), self.high)


def stepped(network: AgentNetwork, x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    """One step of an agent's network, and the next memory; in plain operations."""
    weights, layout, linear = [*network.weights], network.layout, nn.functional.linear
    for _ in layout.hidden:
        x = linear(x, weights.pop(0), weights.pop(0))
        x = x.relu() if layout.act == "relu" else x.tanh()
    if memory is not None:
        w_in, w_memory, b_in, b_memory = (weights.pop(0) for _ in range(4))
        n = layout.n_memory
        gates, old = linear(x, w_in, b_in), linear(memory, w_memory, b_memory)
        r, z = (gates[..., : 2 * n] + old[..., : 2 * n]).sigmoid().chunk(2, -1)
        new = (gates[..., 2 * n :] + r * old[..., 2 * n :]).tanh()
        x = (1 - z) * new + z * memory
    return linear(x, *weights), x


def exported_agents(
    layout: AgentsLayout,
    weights: Weights,
    env: EnvSpec,
    scores: str,
    n_scores: int,
    squashed: bool = False,
) -> PolicyGraph:
    """The policy in which each agent takes its best possible option, or its mean.

    `scores` names what this follows from; networks may have more outputs than the `n_scores` first.
    """
    module = ActingTeam(layout, weights, env, n_scores, squashed).eval()
    examples = {"obs": torch.zeros(2, *env.inputs[0].shape)}
    if any(field.name == MASK for field in env.observations):
        examples[MASK] = torch.ones(2, layout.n_agents, n_scores, dtype=torch.bool)
    outputs = ["action", scores]
    if n_memory := layout.network.n_memory:
        examples[MEMORY] = torch.zeros(2, layout.n_agents, n_memory)
        examples[FIRST] = torch.zeros(2, dtype=torch.bool)
        outputs.append(NEXT_MEMORY)
    reference = ActingAgents(layout, 1)
    reference.load(weights)
    return PolicyGraph(
        converted(module, examples, outputs),
        lambda obs, first: reference(obs, first)[0][..., :n_scores],
        tuple(examples),
    )
