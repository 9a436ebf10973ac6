"""QMIX, and as its simpler kin VDN and IQL: Q-learning of several agents that may remember."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tianji.algorithms.base import FallingRate, TargetAlgorithm, one_choice
from tianji.config.binder import key
from tianji.core.algorithm import PolicyGraph, Scalars, Task, Weights
from tianji.core.errors import TianJiError
from tianji.core.frames import MEMORY
from tianji.core.lazy import torch
from tianji.core.schema import Arrays, Field
from tianji.models.agent_policies import GreedyAgents
from tianji.models.mixer import Mixer, MixerLayout
from tianji.models.recurrent import AgentsLayout, agents_layout
from tianji.stores.sequences import IS_FIRST, Sequences

MIXES = {"mixer": ("qmix",)}
USED = ("obs", "mask", "action", "reward", "terminated", "truncated", "valid")


@dataclass(frozen=True)
class QMIXHyp(FallingRate):
    """Hyper-parameters of QMIX, VDN and IQL."""

    name: ClassVar[str] = "QMIX"

    mixer: Literal["qmix", "vdn", "none"] = key(
        "qmix",
        "what makes a team's value of its agents': `qmix` (a network that grows with each of "
        "them), `vdn` (their sum), `none` (each agent learns for itself: IQL)",
    )
    mixing_units: int = key(32, "units of the mixer", at_least=1, needs=MIXES)
    hyper_units: int = key(
        64, "units of the networks that make the mixer's weights", at_least=1, needs=MIXES
    )
    hyper_scale: float = key(
        0.01, "factor of their last layers' first weights", above=0, needs=MIXES
    )
    shared: bool = key(
        True, "the agents of a team have one network, which is told who each is; False: one each"
    )
    lr: float = key(5e-4, "learning rate", above=0)
    optimiser: Literal["adam", "radam", "rmsprop"] = key("adam", "what makes a step of a gradient")
    adam_eps: float = key(1e-5, "epsilon of the optimiser", above=0)
    clip_grad_norm: float | None = key(
        10.0, "largest norm of the gradient; None: no limit", above=0
    )
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    td_lambda: float = key(
        0.6,
        "lambda of the targets: 0 looks one step ahead, 1 to the end of the sequence",
        at_least=0,
        at_most=1,
    )
    double_q: bool = key(True, "choose the next action with the online networks")
    reward_scale: float = key(1.0, "factor of all rewards that are learned from", above=0)
    epsilon: float = key(0.05, "final probability of a random action", at_least=0, at_most=1)
    max_decay_step: int = key(
        50_000, "environment steps over which epsilon falls from 1 to its final value", at_least=0
    )
    decay_updates: int = key(
        500,
        "updates that it takes as well: epsilon has come as far as the slower of the two, so that "
        "many environments do not end exploration before anything was learned",
        at_least=0,
    )
    step_len: int = key(20, "steps of a sequence, and of a rollout of one environment", at_least=1)
    burn_in: int = key(0, "steps of a sequence that only bring its memory up to date", at_least=0)
    batch_size: int = key(32, "sequences per update", at_least=1)
    buffer_size: int = key(200_000, "steps kept", at_least=1)
    warmup_size: int = key(2_000, "steps received before the first update", at_least=0)
    updates_per_rollout: float = key(
        1 / 16,
        "updates per rollout of one environment in serial training: with batches of 32, two steps "
        "are learned from per step made",
        above=0,
    )
    target_replace_iter: int = key(
        200,
        "updates from one copy into the target networks to the next",
        at_least=1,
        needs={"target_tau": (None,)},
    )
    target_tau: float | None = key(
        0.01,
        "share of the way that the target networks move at every update; None: they are copied "
        "every target_replace_iter",
        above=0,
        at_most=1,
    )

    def check(self) -> str | None:
        """What is wrong, if anything."""
        if self.burn_in >= self.step_len:
            return f"burn_in={self.burn_in} leaves nothing of step_len={self.step_len} to learn"
        return None


class QMIX(TargetAlgorithm):
    """Monotonic value factorisation (Rashid et al. 2018), with TD(lambda) over sequences."""

    Hyp = QMIXHyp
    scalars: ClassVar[tuple[str, ...]] = ("loss", "q_mean", "target_mean")
    several_agents = True

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.flat import FlatParameters

        self.hyp: QMIXHyp = task.hyp
        self._online, self._target = (_Networks(task, seed) for _ in range(2))
        self._own(self._online.parameters, device)
        self._target_flat = FlatParameters(self._target.parameters, device)
        self._optimiser = _optimiser(self.hyp, self._flat)

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        """What the agents remember, if they do."""
        network = agents_of(task).network
        shape = len(task.env.agents), network.n_memory
        return (Field(MEMORY, "float32", shape),) if network.n_memory else ()

    @classmethod
    def rollout_length(cls, task: Task) -> int:
        """`step_len`."""
        return int(task.hyp.step_len)

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> GreedyAgents:
        """Greedy with probability 1 - epsilon, each agent for itself."""
        h: QMIXHyp = task.hyp
        steps = h.max_decay_step / task.n_actors
        return GreedyAgents(task, agents_of(task), seed, h.epsilon, steps, h.decay_updates)

    @classmethod
    def sampling(cls, task: Task) -> Sequences:
        """Sequences of a rollout's length."""
        h: QMIXHyp = task.hyp
        ratio = h.batch_size * h.updates_per_rollout
        return Sequences(h.batch_size, h.buffer_size, h.warmup_size, h.step_len, ratio)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the agents' networks."""
        check_rewards(task)
        return agents_of(task).n_weights

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """The mixer's as well."""
        mixer = mixer_of(task)
        return cls.n_weights(task) + (0 if mixer is None else mixer.n_weights)

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """Each agent's best possible action, and with a GRU its memory."""
        from tianji.models.export_agents import exported_agents

        layout = agents_of(task)
        return exported_agents(layout, weights, task.env, "q", layout.network.n_outputs)

    def stage(self, batch: Arrays) -> Any:
        """What is learned from, on the device."""
        more: tuple[str, ...] = ("state",) if self.hyp.mixer == "qmix" else ()
        if self.task.env.ends_alone:
            more += ("alive",)
        if MEMORY in batch:
            more += (MEMORY, IS_FIRST)
        return self._stage({name: batch[name] for name in (*USED, *more)})

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """One step of the optimiser on the TD error of whole sequences."""
        h, counts = self.hyp, self._counts(batch)
        total = counts.sum().clamp(min=1)
        q, goal = self._values_and_goals(batch)
        loss = ((q - goal).square() * counts).sum() / total
        self._optimiser.lr = h.rate(self._n_updates)
        yield from self._descend(loss, h.clip_grad_norm)
        self._learned(h.target_tau, h.target_replace_iter)
        means = ((value.detach() * counts).sum() / total for value in (q, goal))
        return dict(zip(self.scalars, (loss.detach(), *means), strict=True))

    def _counts(self, b: dict[str, torch.Tensor]) -> torch.Tensor:
        """1 where something is learned, 0 elsewhere: of teams [B, T], of agents [B, T, A].

        Whoever has rewards of its own learns while it takes part.
        """
        counts = b["valid"].float()
        counts[:, : self.hyp.burn_in] = 0.0
        if self.hyp.mixer != "none":
            return counts
        agents = counts[..., None].expand(b["action"].shape)
        return agents * b["alive"][:, :-1] if "alive" in b else agents

    def _values_and_goals(self, b: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """What the actions of every row are worth, and what they should be."""
        online = self._online.agents(b["obs"], b.get(MEMORY), b.get(IS_FIRST))
        chosen = online[:, :-1].gather(3, b["action"][..., None]).squeeze(3)
        state = b.get("state")
        q = self._online.mixed(chosen, None if state is None else state[:, :-1])
        with torch.no_grad():
            target = self._target.agents(b["obs"], b.get(MEMORY), b.get(IS_FIRST))[:, 1:]
            chooser = online[:, 1:] if self.hyp.double_q else target
            best = chooser.masked_fill(~b["mask"][:, 1:], -torch.inf).argmax(3, keepdim=True)
            after = target.gather(3, best).squeeze(3)
            after = self._target.mixed(after, None if state is None else state[:, 1:])
            goal = self._goals(b, after)
        return q, goal

    def _goals(self, b: dict[str, torch.Tensor], after: torch.Tensor) -> torch.Tensor:
        """TD(lambda), from the values [B, T, ...] of what follows each row."""
        h, reward = self.hyp, b["reward"] * self.hyp.reward_scale
        ended = b["terminated"] | b["truncated"]
        future = ~b["terminated"]
        onward = ~ended
        onward[:, :-1] &= b["valid"][:, 1:]  # the row after only resets
        onward[:, -1] = False
        if after.ndim == 3:  # of agents
            future, onward = future[..., None], onward[..., None]
            reward = reward if reward.ndim == 3 else reward[..., None]
            if "alive" in b:  # who has left gains nothing more; what ends for all, ended above
                future = future & b["alive"][:, 1:]
        through = h.td_lambda * onward
        now = reward + h.gamma * future * (1 - through) * after
        through = through * h.gamma * future
        goal = torch.empty_like(after)
        following = torch.zeros_like(after[:, 0])
        for t in range(after.shape[1] - 1, -1, -1):
            following = torch.addcmul(now[:, t], through[:, t], following, out=goal[:, t])
        return goal


class _Networks:
    """The agents' networks and the mixer; those of a target are the same at first."""

    def __init__(self, task: Task, seed: int) -> None:
        from tianji.models.gru import AgentsNetworks

        generator = torch.Generator().manual_seed(seed)
        self.agents = AgentsNetworks(agents_of(task), generator)
        self._kind, layout = task.hyp.mixer, mixer_of(task)
        self._mixer = None if layout is None else Mixer(layout, generator, task.hyp.hyper_scale)
        mixing = [] if self._mixer is None else self._mixer.parameters
        self.parameters = [*self.agents.parameters(), *mixing]

    def mixed(self, values: torch.Tensor, state: torch.Tensor | None) -> torch.Tensor:
        """The team's value [B, T] of the agents' [B, T, A]; without a mixer as they are."""
        if self._mixer is not None:
            assert state is not None
            return self._mixer(values, state)
        return values.sum(2) if self._kind == "vdn" else values


def agents_of(task: Task) -> AgentsLayout:
    """The agents' networks: one output per action."""
    return agents_layout(task, task.hyp.name, one_choice(task, task.hyp.name), task.hyp.shared)


def mixer_of(task: Task) -> MixerLayout | None:
    """The mixer of a job, if it has one."""
    h, env = task.hyp, task.env
    if h.mixer != "qmix":
        return None
    (n_state,) = next(field.shape for field in env.observations if field.name == "state")
    return MixerLayout(len(env.agents), n_state, h.mixing_units, h.hyper_units)


def check_rewards(task: Task) -> None:
    """Refuses rewards of which no team has one in common."""
    env, mixer = task.env, task.hyp.mixer
    if mixer == "none" or not env.agents:
        return
    alone = "give agent = dict(type='IQL', ...), whose agents learn each for itself"
    if env.n_teams > 1:
        raise TianJiError(
            f"hyp.mixer={mixer!r} learns one value that all agents share, and this environment has "
            f"{env.n_teams} teams that compete: {alone}"
        )
    if env.reward_per_agent:
        raise TianJiError(
            f"hyp.mixer={mixer!r} learns one value that all agents share, and this environment has "
            f"a reward for each of its {len(env.agents)} agents: write environment.reward='team', "
            f"which is their sum, or {alone}"
        )


def _optimiser(hyp: QMIXHyp, flat: Any) -> Any:
    from tianji.models import optimisers

    kinds = {"adam": optimisers.Adam, "radam": optimisers.RAdam, "rmsprop": optimisers.RMSProp}
    return kinds[hyp.optimiser](flat, hyp.lr, hyp.adam_eps)
