"""Networks of agents that may remember, as any process can describe them; they act in numpy.

A network reads what one agent sees and, one-hot, which agent it is. Dense layers come first, then
a GRU (Cho et al. 2014) if it has one, then a linear layer. Its module in torch is in `gru.py`; both
compute the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tianji.core.algorithm import Task
from tianji.core.env import BoolArray, EnvSpec
from tianji.core.errors import TianJiError
from tianji.models.layout import Floats, views_of

if TYPE_CHECKING:
    import torch

    from tianji.models.gru import AgentNetwork


FORBIDDEN = -1e9  # logit of an option that the mask forbids


@dataclass(frozen=True)
class RecurrentLayout:
    """Where the weights of such a network lie in one flat vector, in the order of `shapes`."""

    n_inputs: int  # numbers that an agent sees
    n_ids: int  # agents that share the network; 0: it is not told which one it is
    hidden: tuple[int, ...]  # units of the dense layers
    n_memory: int  # units of the GRU; 0: there is none
    n_outputs: int
    act: str = "relu"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weight and bias of each dense layer, of the GRU's gates (r, z, n), of the last layer."""
        sizes = [self.n_inputs + self.n_ids, *self.hidden]
        shapes: list[tuple[int, ...]] = []
        for size_in, size_out in pairwise(sizes):
            shapes += [(size_out, size_in), (size_out,)]
        last, n = sizes[-1], self.n_memory
        if n:
            shapes += [(3 * n, last), (3 * n, n), (3 * n,), (3 * n,)]
        return [*shapes, (self.n_outputs, n or last), (self.n_outputs,)]

    @property
    def n_weights(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)

    def module(self, generator: torch.Generator, last_gain: float | None = None) -> AgentNetwork:
        """The module in torch, with first weights drawn from `generator`.

        With `last_gain` they are orthogonal, the last layer's scaled by it; without, uniform.
        """
        from tianji.models.gru import AgentNetwork

        return AgentNetwork(self).start(generator, last_gain)


class NumpyRecurrent:
    """The forward pass of a `RecurrentLayout`; cheaper than torch at an actor's batch sizes."""

    def __init__(self, layout: RecurrentLayout, flat: Floats | None = None) -> None:
        """`flat` is where the weights lie; default: in an array of its own."""
        self.layout = layout
        self.flat = np.zeros(layout.n_weights, np.float32) if flat is None else flat
        views = views_of(self.flat, layout.shapes)
        n = 2 * len(layout.hidden)
        self._dense = [(views[i].T, views[i + 1]) for i in range(0, n, 2)]
        self._gates = views[n:-2]
        self._last = views[-2].T, views[-1]
        self._tanh = layout.act == "tanh"

    def __call__(self, inputs: Floats, memory: Floats) -> tuple[Floats, Floats]:
        """Outputs [N, n_outputs] and the next memory [N, n_memory]; the old one is left alone."""
        x = inputs
        for weight, bias in self._dense:
            x = x @ weight
            x += bias
            if self._tanh:
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0.0, out=x)
        if self._gates:
            x = memory = self._remember(x, memory)
        weight, bias = self._last
        x = x @ weight
        x += bias
        return x, memory

    def _remember(self, x: Floats, memory: Floats) -> Floats:
        """One step of the GRU: r and z are sigmoids, written as the faster tanh."""
        w_in, w_memory, b_in, b_memory = self._gates
        n = self.layout.n_memory
        gates, old = x @ w_in.T, memory @ w_memory.T
        gates += b_in
        old += b_memory
        both = gates[:, : 2 * n]
        both += old[:, : 2 * n]
        both *= 0.5
        np.tanh(both, out=both)
        both += 1.0
        both *= 0.5
        new = old[:, 2 * n :]
        new *= both[:, :n]
        new += gates[:, 2 * n :]
        np.tanh(new, out=new)
        following: Floats = memory - new
        following *= both[:, n:]
        following += new
        return following


@dataclass(frozen=True)
class AgentGroup:
    """Agents that have one set of weights between them."""

    agents: tuple[int, ...]  # places on the axis A

    @property
    def index(self) -> slice | list[int]:
        """What selects them on the axis A: a view where they stand side by side."""
        first, last = self.agents[0], self.agents[-1]
        if self.agents == tuple(range(first, last + 1)):
            return slice(first, last + 1)
        return list(self.agents)


def groups_of(env: EnvSpec, shared: bool) -> tuple[AgentGroup, ...]:
    """Who shares weights: each team, or nobody."""
    agents = range(len(env.agents))
    if not shared:
        return tuple(AgentGroup((a,)) for a in agents)
    teams = [tuple(a for a in agents if env.teams[a] == team) for team in range(env.n_teams)]
    return tuple(map(AgentGroup, teams))


@dataclass(frozen=True)
class AgentsLayout:
    """The networks of all agents: one for each group, of the same shape, one after the other."""

    network: RecurrentLayout
    groups: tuple[AgentGroup, ...]

    @property
    def n_agents(self) -> int:
        """A."""
        return sum(len(group.agents) for group in self.groups)

    @property
    def n_weights(self) -> int:
        """Length of the flat vector of all networks."""
        return self.network.n_weights * len(self.groups)


def agents_layout(task: Task, name: str, n_outputs: int, shared: bool) -> AgentsLayout:
    """The networks that a job's `model` section asks for, of `n_outputs` for each agent.

    Those that share weights are told apart by one-hot inputs, if they are several.
    """
    env, model = task.env, task.model
    if not env.agents:
        one = "'TD3' or 'SAC'" if env.choices is None else "'DQN' or 'PPO'"
        raise TianJiError(
            f"{name} is for several agents, and this environment has no axis of agents: "
            f"use agent = dict(type=...) with {one}, or an environment of docs/agents.md"
        )
    if model.type not in ("GRU", "MLP"):
        raise TianJiError(
            f"model.type: {name} has networks of type 'GRU' or 'MLP', not {model.type!r}"
        )
    if len(env.inputs) != 1 or env.stack > 1:
        raise TianJiError(f"{name} reads one array called 'obs', without stacked frames")
    groups = groups_of(env, shared)
    n_inputs = math.prod(env.inputs[0].shape[1:])
    n_ids = max(len(group.agents) for group in groups)
    n_memory = model.gru if model.type == "GRU" else 0
    default = (64,) if n_memory else (64, 64)
    hidden = default if model.hidden is None else tuple(model.hidden)
    layout = RecurrentLayout(
        n_inputs, n_ids if n_ids > 1 else 0, hidden, n_memory, n_outputs, model.act
    )
    return AgentsLayout(layout, groups)


def outputs_of(env: EnvSpec, name: str) -> int:
    """A logit per option of an agent, or one output per number of its action."""
    if env.agents and env.choices is not None and env.n_actions is None:
        raise TianJiError(
            f"{name}: an agent makes one choice or gives a vector of numbers, and this "
            f"environment's action is {env.action}: use one Discrete space for each agent"
        )
    return env.n_actions or math.prod(env.action.shape[1:])


def n_state(env: EnvSpec) -> int:
    """Numbers that central critics read: the state, or without one what all agents see."""
    shown = next((f for f in env.observations if f.name == "state"), env.inputs[0])
    return math.prod(shown.shape)


class ActingAgents:
    """What the policies of several agents begin with: their networks, and what they remember."""

    def __init__(self, layout: AgentsLayout, n_envs: int) -> None:
        self.layout, network = layout, layout.network
        n_agents = layout.n_agents
        self.flat = np.zeros(layout.n_weights, np.float32)
        parts = self.flat.reshape(len(layout.groups), network.n_weights)
        self._networks = [NumpyRecurrent(network, part) for part in parts]
        self._inputs = [_with_ids(network, len(group.agents), n_envs) for group in layout.groups]
        self._memory = np.zeros((n_envs, n_agents, network.n_memory), np.float32)
        self._outputs = np.zeros((n_envs, n_agents, network.n_outputs), np.float32)

    def load(self, weights: Floats) -> None:
        """Copies the weights of all networks; others may lie behind them."""
        self.flat[...] = weights[: len(self.flat)]

    def __call__(self, obs: npt.NDArray[Any], first: BoolArray) -> tuple[Floats, Floats]:
        """Outputs [E, A, n] for what is seen [E, A, ...], and what was remembered before.

        Where `first` says that an episode begins, nothing is. The outputs are new with each call.
        """
        network, n_envs = self.layout.network, len(first)
        if n_envs != len(self._memory):
            self._resize(n_envs)
        before = self._memory
        if network.n_memory and first.any():
            before = np.where(first[:, None, None], np.float32(0), before)
        after, outputs = np.empty_like(before), np.empty_like(self._outputs)
        seen = obs.reshape(n_envs, self.layout.n_agents, -1)
        unit = np.float32(1 / 255 if seen.dtype == np.uint8 else 1.0)
        for group, forward, inputs in zip(
            self.layout.groups, self._networks, self._inputs, strict=True
        ):
            np.multiply(seen[:, group.index], unit, out=inputs[..., : network.n_inputs])
            shape = n_envs, len(group.agents), network.n_memory
            n = shape[0] * shape[1]
            out, memory = forward(
                inputs.reshape(n, -1), before[:, group.index].reshape(n, network.n_memory)
            )
            outputs[:, group.index] = out.reshape(n_envs, -1, network.n_outputs)
            after[:, group.index] = memory.reshape(shape)
        self._memory = after
        return outputs, before

    def _resize(self, n_envs: int) -> None:
        """Another number of environments than were announced: all begin anew."""
        fresh = ActingAgents(self.layout, n_envs)
        self._inputs, self._memory, self._outputs = fresh._inputs, fresh._memory, fresh._outputs

    def state(self) -> dict[str, Any]:
        """The weights, and what every agent remembers."""
        return {"weights": self.flat, "memory": self._memory}

    def restore(self, state: dict[str, Any]) -> None:
        """Acts on with the weights and the memory of another."""
        self.load(state["weights"])
        if len(state["memory"]) != len(self._memory):
            self._resize(len(state["memory"]))
        self._memory = np.array(state["memory"], np.float32)


def _with_ids(network: RecurrentLayout, n_agents: int, n_envs: int) -> Floats:
    """Inputs [E, A, n], in which only what is seen is missing."""
    inputs = np.zeros((n_envs, n_agents, network.n_inputs + network.n_ids), np.float32)
    if network.n_ids:
        inputs[..., network.n_inputs :] = np.eye(n_agents, network.n_ids, dtype=np.float32)
    return inputs


def best_possible(values: Floats, mask: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The option of the highest value among those that the mask allows, on the last axis."""
    best: npt.NDArray[np.int64] = np.where(mask, values, -np.inf).argmax(-1)
    return best


def any_possible(random: np.random.Generator, mask: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """One of the options that the mask allows, each equally likely, on the last axis."""
    nth = (random.random(mask.shape[:-1]) * mask.sum(-1)).astype(np.int64)
    chosen: npt.NDArray[np.int64] = (mask.cumsum(-1) > nth[..., None]).argmax(-1)
    return chosen
