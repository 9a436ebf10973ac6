"""MADDPG: each agent acts by what it sees, and learns from a critic that sees all and everyone."""

# ruff: noqa: RUF009 - `key` makes a dataclasses.field, which is what a default may be

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from tianji.algorithms.base import other_default
from tianji.algorithms.off_policy import OffPolicy, OffPolicyHyp, on
from tianji.config.binder import key
from tianji.core.algorithm import PolicyGraph, Scalars, Task, Weights
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.models.agent_actors import ActorAgents, numbers_used
from tianji.models.policies import ActionBounds
from tianji.models.recurrent import FORBIDDEN, AgentsLayout, agents_layout, n_state, outputs_of

_by_default = partial(other_default, OffPolicyHyp)


@dataclass(frozen=True)
class MADDPGHyp(OffPolicyHyp):
    """Hyper-parameters of MADDPG; with `twin`, `delay` and `target_noise` it is MATD3."""

    lr: float = key(1e-2, "learning rate of Adam", above=0, aliases=("critic_lr",))
    gamma: float = _by_default("gamma", 0.95)
    tau: float = _by_default("tau", 0.01)
    batch_size: int = _by_default("batch_size", 1_024)
    updates_per_step: float = _by_default("updates_per_step", 0.01)
    clip_grad_norm: float | None = _by_default("clip_grad_norm", 0.5)
    shared: bool = key(
        True, "the agents of a team share an actor and a critic, which are told who each is"
    )
    noise: float = key(0.1, "deviation of the noise on actions that are numbers", at_least=0)
    logits_penalty: float = key(1e-3, "weight of the actors' squared outputs", at_least=0)
    twin: bool = key(False, "two critics each, of which the smaller value counts")
    delay: int = key(1, "updates of the critics for each of the actors", at_least=1)
    target_noise: float = key(0.0, "deviation of the noise on target actions (numbers)", at_least=0)
    noise_clip: float = key(0.5, "largest noise on target actions", at_least=0)
    epsilon: Any = key(
        None, "random actions", no_effect="actors explore by Gumbel noise, or by hyp.noise"
    )
    target_replace_iter: Any = key(
        None, "updates between two copies", no_effect="target networks move by hyp.tau"
    )


class MADDPG(OffPolicy):
    """Decentralised actors, central critics (Lowe et al. 2017), against others or with them."""

    Hyp = MADDPGHyp
    scalars: ClassVar[tuple[str, ...]] = ("loss", "q_mean", "target_mean")
    several_agents = True

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.gru import AgentsNetworks

        self.hyp: MADDPGHyp = task.hyp
        self._delay = self.hyp.delay
        generator = torch.Generator().manual_seed(seed)
        layouts = [actors_of(task)] + [critics_of(task)] * (1 + self.hyp.twin)
        actors, *critics = (AgentsNetworks(layout, generator) for layout in layouts)
        self._make([actors], critics, seed, device)
        self._n = layouts[0].network.n_outputs
        (self._used,) = on(device, numbers_used(task.env, self._n))
        if task.env.n_actions is None:
            bounds = ActionBounds(task.env)
            self._centre, self._inverse = on(device, bounds.centre, bounds.inverse)

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> ActorAgents:
        """All agents' actors."""
        return ActorAgents(task, actors_of(task), seed, task.hyp.noise, cls.random_steps(task))

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of all actors."""
        return actors_of(task).n_weights

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Those of the critics too."""
        return cls.n_weights(task) + (1 + int(task.hyp.twin)) * critics_of(task).n_weights

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """Each agent's best possible option, or its numbers within their bounds."""
        from tianji.models.export_agents import exported_agents

        layout, numbers = actors_of(task), task.env.n_actions is None
        name, n = "mean" if numbers else "logits", layout.network.n_outputs
        return exported_agents(layout, weights, task.env, name, n, squashed=numbers)

    def stage(self, batch: Arrays) -> Any:
        """What is learned from, on the device; actions are one-hot, or lie between -1 and 1."""
        wanted = ("obs", "state", "mask", "alive")
        names = [n for name in wanted for n in (name, f"next_{name}") if name in batch]
        b = self._stage({n: batch[n] for n in (*names, "action", "reward", "discount")})
        if self.task.env.n_actions is not None:
            action = torch.nn.functional.one_hot(b["action"], self._n).float()
        else:
            action = (b["action"].flatten(1) - self._centre) * self._inverse
            action = action.view(len(action), -1, self._n) * self._used
        reward = b["reward"] if b["reward"].ndim == 2 else b["reward"][:, None]
        return b | {"action": action, "reward": reward}

    def _critic_loss(self, batch: Any) -> tuple[Any, Any, Any]:
        with torch.no_grad():
            joint = self._best(batch)
            after = self._q(self.target_critics, batch, "next_", joint[:, None]).amin(0)
            if self.task.env.ends_alone and "next_alive" in batch:
                after = after * batch["next_alive"]  # who has left gains nothing more
            goal = batch["reward"] + batch["discount"][:, None] * after
        q = self._q(self.critics, batch, "", batch["action"][:, None])
        return (q - goal).square().mean((1, 2)).sum(), q.detach(), goal

    def _actor_loss(self, batch: Any) -> tuple[Any, Scalars]:
        out = self._outputs(self.actors, batch, "")
        if self.task.env.n_actions is None:
            own, penalised = torch.tanh(out) * self._used, out * self._used
        else:
            own, penalised = self._drawn(out), out.masked_fill(out <= FORBIDDEN, 0.0)
        # Row i of the joint actions [B, A, A, n] lets gradients through to agent i alone.
        alone = torch.eye(own.shape[1], device=own.device)[..., None]
        joint = alone * own[:, None] + (1 - alone) * own.detach()[:, None]
        q = self._q(self.critics[:1], batch, "", joint)[0]
        alive = batch["alive"] if "alive" in batch else torch.ones_like(q)
        gain = (q * alive).sum() / alive.sum().clamp(min=1)
        return self.hyp.logits_penalty * penalised.square().mean() - gain, {}

    def _outputs(
        self, actors: torch.nn.ModuleList, batch: dict[str, torch.Tensor], prefix: str
    ) -> torch.Tensor:
        """What the actors say [B, A, n]; of options that are possible."""
        out: torch.Tensor = actors[0](batch[prefix + "obs"][:, None])[:, 0]
        mask = batch.get(prefix + "mask")
        return out if mask is None else out.masked_fill(~mask, FORBIDDEN)

    def _best(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """The target actors' actions after the step [B, A, n]."""
        out, h = self._outputs(self.target_actors, batch, "next_"), self.hyp
        if self.task.env.n_actions is not None:
            return torch.nn.functional.one_hot(out.argmax(2), self._n).float()
        action = torch.tanh(out)
        if h.target_noise:
            noise = self._noise(*action.shape) * h.target_noise
            action = (action + noise.clamp(-h.noise_clip, h.noise_clip)).clamp(-1, 1)
        return action * self._used

    def _drawn(self, logits: torch.Tensor) -> torch.Tensor:
        """A draw of each agent, one-hot, whose gradient is that of the softmax (Gumbel, tau 1)."""
        drawn = self._random().gumbel(size=tuple(logits.shape)).astype(np.float32)
        soft = (logits + on(self._device, drawn)[0]).softmax(2)
        hard = torch.nn.functional.one_hot(soft.argmax(2), self._n)
        return hard + soft - soft.detach()

    def _q(
        self,
        critics: torch.nn.ModuleList,
        batch: dict[str, torch.Tensor],
        prefix: str,
        joint: torch.Tensor,
    ) -> torch.Tensor:
        """What each critic says of each agent, [critics, B, A].

        `joint` are the actions of all [B, A or 1, A, n]; where that is not 1, each agent's critic
        reads its own row.
        """
        from tianji.models.gru import floats_of

        state = floats_of(batch.get(prefix + "state", batch[prefix + "obs"])).flatten(1)
        n_agents = joint.shape[2]
        shown = state[:, None].expand(-1, n_agents, -1)
        acted = joint.flatten(2).expand(-1, n_agents, -1)
        inputs = torch.cat([shown, acted], 2)[:, None]
        return torch.stack([critic(inputs)[:, 0, :, 0] for critic in critics])


def actors_of(task: Task) -> AgentsLayout:
    """The actors' networks: a logit per option, or one output per number."""
    layout = agents_layout(task, "MADDPG", outputs_of(task.env, "MADDPG"), task.hyp.shared)
    if task.model.type != "MLP":
        raise TianJiError(
            f"model.type: MADDPG learns from single steps, with networks of type 'MLP', not "
            f"{task.model.type!r}"
        )
    if task.env.choices is None:
        ActionBounds(task.env)
    return layout


def critics_of(task: Task) -> AgentsLayout:
    """The critics' networks, which read the state, or all that is seen, and all actions."""
    actors, env = actors_of(task), task.env
    n_inputs = n_state(env) + len(env.agents) * actors.network.n_outputs
    return replace(actors, network=replace(actors.network, n_inputs=n_inputs, n_outputs=1))
