"""MAPPO, and as its simpler kin IPPO: PPO of several agents that may remember."""

# ruff: noqa: RUF009 - `key` makes a dataclasses.field, which is what a default may be

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tianji.algorithms.base import MEASURED, other_default
from tianji.algorithms.ppo import PPO, PPOHyp, Samples
from tianji.algorithms.surrogate import Gains, objective
from tianji.config.binder import key
from tianji.core.algorithm import PolicyGraph, Task, Weights
from tianji.core.lazy import torch
from tianji.core.schema import Arrays, Field
from tianji.models.agent_actor_critic import (
    AgentsActorCritic,
    actors_of,
    agent_policy_fields,
    critics_of,
    n_spread,
    n_values,
)
from tianji.models.agent_policies import DrawingAgents
from tianji.models.layout import Floats
from tianji.models.normaliser import Sums
from tianji.models.recurrent import outputs_of
from tianji.models.tensors import array_of

_by_default = partial(other_default, PPOHyp)


@dataclass(frozen=True)
class MAPPOHyp(PPOHyp):
    """Hyper-parameters of MAPPO and IPPO."""

    name: ClassVar[str] = "MAPPO"

    central: bool = key(
        True,
        "values read the state, or where there is none what all agents see; False: each what its "
        "agent sees (IPPO)",
    )
    shared: bool = key(
        True,
        "the agents of a team share a policy and a value network, which are told who each is; "
        "False: one each",
    )
    lr: float = _by_default("lr", 7e-4)
    update_step: int = _by_default("update_step", 10)
    minibatch: int = key(
        4_096, "environment steps, of all agents, per step of the optimiser", at_least=1
    )
    ent_coef: float = _by_default("ent_coef", 0.01)
    max_grad_norm: float | None = _by_default("max_grad_norm", 10.0)
    normalise_value: bool = _by_default("normalise_value", True)
    huber: float | None = _by_default("huber", 10.0)
    normalise_obs: Any = key(
        False, "network inputs", no_effect="what agents see goes into their networks as it is"
    )


class MAPPO(PPO):
    """Decentralised policies, central values (Yu et al. 2022); teams may compete.

    Each team has policies, values, and units of advantages and returns of its own.
    """

    Hyp = MAPPOHyp
    several_agents = True

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        teams = np.asarray(task.env.teams)
        self._teams, self._n_values = torch.from_numpy(teams), n_values(task)
        self._scales.whose = teams if self._n_values == len(teams) else np.zeros(1, np.int64)

    def _make_networks(self, seed: int) -> AgentsActorCritic:
        return AgentsActorCritic(self.task, seed)

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        """The density of what each agent drew, the draw if it is numbers, and their memories."""
        return agent_policy_fields(task)

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> DrawingAgents:
        """All agents' policies."""
        return DrawingAgents(task, actors_of(task), n_spread(task), seed)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of all policies."""
        return actors_of(task).n_weights + n_spread(task) + cls.scales(task).n_numbers

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Those of the value networks too."""
        critics = critics_of(task)
        return cls.n_weights(task) + (0 if critics is None else critics.n_weights)

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """Each agent's likeliest possible option or its mean, and with a GRU its memory."""
        from tianji.models.export_agents import exported_agents

        name = "mean" if task.env.n_actions is None else "logits"
        n_scores = outputs_of(task.env, task.hyp.name)
        return exported_agents(actors_of(task), weights, task.env, name, n_scores)

    def stage(self, batch: Arrays) -> Any:
        """What is large goes to the device; the rest is looked at where it is."""
        from tianji.models.agent_inputs import AgentsInputs

        return batch, AgentsInputs(self.task.env, batch, self._stage, self._n_values)

    def _prepare(self, batch: Arrays, inputs: Any) -> tuple[Samples, list[Sums]]:
        out, value = inputs.through(self.networks, not self._fresh)
        log, acts, device = self.networks.log_probability, inputs.acts, self._device
        action = inputs.steps(batch["action" if self._discrete else "raw"]).to(device)
        acting, rows = inputs.acting(inputs.rows), inputs.rows

        def under() -> torch.Tensor:
            found: torch.Tensor = log(inputs.policy(self.networks), action, acting)[0]
            return found

        now = None if out is None or not len(rows) else log(out, action, acting)[0].detach()
        old, drift, weights = self._aged(inputs.steps(batch["logp"])[acts], now, under)
        gain, target, returns = self._scales.advantages(
            inputs.told, value, None, self.hyp.gamma, self.hyp.gae_lambda
        )
        gains = inputs.steps(gain).expand(acts.shape)[acts]
        teams: tuple[torch.Tensor, ...] = ()
        if self.task.env.n_teams > 1:
            team = self._teams.expand(acts.shape)[acts]
            teams = tuple(team == number for number in range(self.task.env.n_teams))
        before, goal = (inputs.steps(each).to(device) for each in (value[:, :-1], target))
        samples = Samples(
            inputs,
            rows,
            action,
            inputs.spread(old.to(device)),
            before,
            goal,
            Gains(gains, weights, teams),
            drift,
        )
        return samples, self._sums(batch, inputs, returns, inputs.told["valid"])

    def log_probabilities(self, batch: Arrays) -> Floats:
        """Of `MEASURED` actions of all agents, or those of one sequence."""
        arrays, inputs = self.stage(batch)
        if not len(inputs.rows):
            return np.empty(0, np.float32)
        rows = inputs.rows[:: -(-inputs.acts.numel() // MEASURED) or 1]
        action = inputs.steps(arrays["action" if self._discrete else "raw"])[rows.cpu()]
        with torch.no_grad():
            out = self.networks(inputs(rows))[0]
            acts = inputs.acting(rows)
            return array_of(self.networks.log_probability(out, action.to(self._device), acts)[0])

    def _minibatches(
        self, samples: Samples, gain: torch.Tensor, n_rows: int
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        return super()._minibatches(samples, samples.inputs.spread(gain), n_rows)

    def _n_minibatches(self, total: int, n_rows: int) -> int:
        if not actors_of(self.task).network.n_memory:
            return super()._n_minibatches(total, n_rows)
        sequences = n_rows // self.hyp.step_len
        return min(super()._n_minibatches(n_rows, n_rows), sequences)

    def _loss(
        self,
        inputs: Any,
        rows: torch.Tensor,
        action: torch.Tensor,
        old: torch.Tensor,
        before: torch.Tensor,
        advantage: torch.Tensor,
        target: torch.Tensor,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The dead count for nothing, but the value of a team that goes on without them does."""
        acts = inputs.acting(rows)
        out, value = self.networks(inputs(rows))
        logp, entropy = self.networks.log_probability(out, action, acts)
        valued = inputs.valued(rows)
        value, before, target = value[valued], before[valued], target[valued]
        return objective(self.hyp, logp, entropy, value, old[acts], before, advantage[acts], target)
