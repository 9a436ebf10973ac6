"""The networks of several actor-critics: a policy of each agent, and values for the learner."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tianji.core.algorithm import Task
from tianji.core.frames import FIRST, MEMORY
from tianji.core.lazy import torch
from tianji.core.schema import Field
from tianji.models.actor_critic import SMALL, of_numbers, of_one_choice
from tianji.models.agent_actors import numbers_used
from tianji.models.recurrent import (
    FORBIDDEN,
    AgentGroup,
    AgentsLayout,
    agents_layout,
    n_state,
    outputs_of,
)


class AgentsActorCritic:
    """Policies of all agents and values: of each agent, or one of the team that they are.

    A central value reads the state, which needs no memory. Others read what their agent sees; of
    agents that remember they are one more output of the policy's own network.
    """

    exact = True  # actors compute the same

    def __init__(self, task: Task, seed: int) -> None:
        from tianji.models.gru import AgentsNetworks

        generator = torch.Generator().manual_seed(seed)
        actors, critics = actors_of(task), critics_of(task)
        self._n_outputs, self._n_values = outputs_of(task.env, task.hyp.name), n_values(task)
        self._discrete, self._central = task.env.n_actions is not None, task.hyp.central
        self.actor = AgentsNetworks(actors, generator, SMALL if critics else 1.0)
        self.log_std = torch.nn.Parameter(torch.zeros(n_spread(task)))
        self.critic = None if critics is None else AgentsNetworks(critics, generator, 1.0)
        if critics is None:
            for network in self.actor.networks:
                last = [p for p in network.parameters() if p.ndim == 2][-1]
                last.data[: self._n_outputs] *= SMALL
        self._group = torch.from_numpy(group_of_each(actors))
        self._used = torch.from_numpy(numbers_used(task.env, self._n_outputs))

    def parameters(self) -> list[torch.nn.Parameter]:
        """What actors need first."""
        critic = [] if self.critic is None else [*self.critic.parameters()]
        return [*self.actor.parameters(), self.log_std, *critic]

    def __call__(self, seen: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """The policies' outputs [B, T, A, n] and the values [B, T, C], for fields [B, T, ...]."""
        obs = seen["obs"]
        out = self.actor(obs, seen.get(MEMORY), seen.get(FIRST))
        if self.critic is None:
            out, value = out[..., :-1], out[..., -1]
        elif self._central:
            state = seen.get("state", obs).flatten(2)
            value = self.critic(state[:, :, None].expand(-1, -1, self._n_values, -1))[..., 0]
        else:
            value = self.critic(obs)[..., 0]
        if self._discrete:
            out = out.masked_fill(~seen["mask"], FORBIDDEN)
        return out, value

    def log_probability(
        self, out: torch.Tensor, action: torch.Tensor, acts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities [N] of the actions of those N that act, and their mean entropy."""
        if self._discrete:
            return of_one_choice(out[acts], action[acts][:, None])
        device = out.device
        log_std = self.log_std.view(-1, self._n_outputs)[self._group.to(device)]
        used = self._used.to(device).expand(out.shape)[acts]
        logp, entropy = of_numbers(out[acts], action[acts], log_std.expand(out.shape)[acts])
        return (logp * used).sum(1), (entropy * used).sum(1).mean()


def actors_of(task: Task) -> AgentsLayout:
    """The policies' networks: a logit per option or a mean per number, and perhaps the value."""
    h = task.hyp
    n = outputs_of(task.env, h.name) + _values_within(task)
    return agents_layout(task, h.name, n, h.shared)


def critics_of(task: Task) -> AgentsLayout | None:
    """The value networks; None where they are part of the policies'."""
    if _values_within(task):
        return None
    h, env, actors = task.hyp, task.env, actors_of(task)
    network = replace(actors.network, n_outputs=1)
    if not h.central:
        return replace(actors, network=network)
    hidden = (*network.hidden, network.n_memory) if network.n_memory else network.hidden
    network = replace(network, n_inputs=n_state(env), hidden=hidden, n_memory=0)
    if env.reward_per_agent:
        return replace(actors, network=network)
    return AgentsLayout(replace(network, n_ids=0), (AgentGroup((0,)),))


def _values_within(task: Task) -> bool:
    return task.model.type == "GRU" and not task.hyp.central


def n_values(task: Task) -> int:
    """Values of a step: one of each agent, or one of a team with a reward in common."""
    critics = critics_of(task)
    return len(task.env.agents) if critics is None else critics.n_agents


def group_of_each(layout: AgentsLayout) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The number of the group that each agent shares its weights with."""
    found = np.zeros(layout.n_agents, np.int64)
    for number, group in enumerate(layout.groups):
        found[list(group.agents)] = number
    return found


def n_spread(task: Task) -> int:
    """Numbers of the spread of policies whose actions are numbers: of each group its own."""
    if task.env.n_actions is not None:
        return 0
    return len(actors_of(task).groups) * outputs_of(task.env, task.hyp.name)


def agent_policy_fields(task: Task) -> tuple[Field, ...]:
    """The density of what was drawn, the draw itself if it is numbers, and what is remembered."""
    env, n_memory = task.env, actors_of(task).network.n_memory
    n_agents = len(env.agents)
    fields = [Field("logp", "float32", (n_agents,))]
    if env.n_actions is None:
        fields.append(Field("raw", "float32", (n_agents, math.prod(env.action.shape[1:]))))
    if n_memory:
        fields.append(Field(MEMORY, "float32", (n_agents, n_memory)))
    return tuple(fields)
