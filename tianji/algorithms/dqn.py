"""DQN: double, dueling, n-step, prioritised, distributional; exploration differs between actors."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from tianji.algorithms.base import FallingRate, TargetAlgorithm, one_choice
from tianji.config.binder import key
from tianji.core.algorithm import PolicyGraph, Scalars, Task, Weights
from tianji.core.frames import TICKET
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.models.layout import Floats, Network, network_of
from tianji.models.policies import IMPOSSIBLE, GreedyPolicy
from tianji.models.tensors import array_of
from tianji.stores.prioritised import Prioritised
from tianji.stores.replay import Replay


@dataclass(frozen=True)
class DQNHyp(FallingRate):
    """Hyper-parameters of DQN, under the paper's names."""

    name: ClassVar[str] = "DQN"
    duels: ClassVar[bool] = False  # unless the model says so

    lr: float = key(5e-4, "learning rate of Adam", above=0)
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    epsilon: float = key(0.02, "final probability of a random action", at_least=0, at_most=1)
    max_decay_step: int = key(
        2_000, "environment steps over which epsilon falls from 1 to its final value", at_least=0
    )
    epsilon_spread: float = key(
        0.0,
        "environment i of N, of all actors, explores with epsilon ** (1 + spread * i / (N - 1)); "
        "0: all alike",
        at_least=0,
    )
    batch_size: int = key(32, "samples per update", at_least=1)
    buffer_size: int = key(2_048, "samples kept", at_least=1)
    warmup_size: int = key(32, "samples received before the first update", at_least=0)
    warmup_full_random: bool = key(False, "act at random until the warm-up is over")
    target_replace_iter: int = key(
        100,
        "updates from one copy into the target network to the next",
        at_least=1,
        needs={"target_tau": (None,)},
    )
    double_q: bool = key(True, "choose the next action with the online network")
    loss: Literal["huber", "mse"] = key("huber", "of the TD error")
    n_step: int = key(1, "steps of reward before bootstrapping", at_least=1)
    updates_per_step: float = key(1.0, "updates per environment step in serial training", above=0)
    target_tau: float | None = key(
        None,
        "share of the way that the target network moves at every update; None: it is copied "
        "every target_replace_iter",
        above=0,
        at_most=1,
    )
    distribution: Literal["none", "c51", "qr"] = key(
        "none", "learn the distribution of returns: over fixed values (C51), or its quantiles (QR)"
    )
    atoms: int = key(
        51,
        "values or quantiles of a distribution",
        at_least=2,
        needs={"distribution": ("c51", "qr")},
    )
    v_min: float = key(-10.0, "smallest return of C51", needs={"distribution": ("c51",)})
    v_max: float = key(10.0, "largest return of C51", needs={"distribution": ("c51",)})
    prioritised: bool = key(False, "draw samples with larger errors more often")
    alpha: float = key(
        0.6,
        "prioritised: 0 draws all alike, 1 by error",
        at_least=0,
        at_most=1,
        needs={"prioritised": (True,)},
    )
    beta: float = key(
        0.4,
        "prioritised: how far importance weights correct at first",
        at_least=0,
        at_most=1,
        needs={"prioritised": (True,)},
    )
    beta_steps: int | None = key(
        None,
        "updates over which beta rises to 1; None: it stays",
        at_least=1,
        needs={"prioritised": (True,)},
    )
    clip_grad_norm: float | None = key(
        None, "largest norm of the gradient; None: no limit", above=0
    )
    adam_eps: float = key(1e-8, "epsilon of Adam", above=0)

    def check(self) -> str | None:
        """What is wrong, if anything."""
        if self.distribution == "c51" and self.v_min >= self.v_max:
            return f"v_min={self.v_min:g} must be below v_max={self.v_max:g}"
        return None


class DQN(TargetAlgorithm):
    """Q-learning from replayed samples (Mnih et al. 2015)."""

    Hyp = DQNHyp
    masks = True
    scalars: ClassVar[tuple[str, ...]] = ("loss", "q_mean", "target_mean")

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.cuda_graph import Graphed
        from tianji.models.flat import FlatParameters
        from tianji.models.optimisers import Adam

        self.hyp: DQNHyp = task.hyp
        network = q_network(task)
        self.online = network.module(torch.Generator().manual_seed(seed))
        self.target = network.module(torch.Generator().manual_seed(seed)).requires_grad_(False)
        self._own([*self.online.parameters()], device)
        self._target_flat = FlatParameters([*self.target.parameters()], device)
        self._optimiser = Adam(self._flat, self.hyp.lr, self.hyp.adam_eps)
        self._choose_precision(self.online, self.hyp.batch_size)
        self._choose_precision(self.target, self.hyp.batch_size)
        self._values = Values(self.hyp, device)
        self._update = Graphed(self._alone, device)
        self._target_flat.follow(self._flat)

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> GreedyPolicy:
        """Greedy with probability 1 - epsilon."""
        h: DQNHyp = task.hyp
        random_until = h.warmup_size / task.n_actors if h.warmup_full_random else 0
        final, decay = _final_epsilon(task, actor), h.max_decay_step / task.n_actors
        values = None if h.distribution == "none" else partial(mean_values, h)
        return GreedyPolicy(task, q_network(task), seed, final, decay, random_until, values)

    @classmethod
    def sampling(cls, task: Task) -> Replay:
        """Replay, uniform or by priority."""
        h: DQNHyp = task.hyp
        sizes = h.batch_size, h.buffer_size, h.warmup_size
        facts = *sizes, h.gamma, h.n_step, h.updates_per_step
        if h.prioritised:
            return Prioritised(*facts, alpha=h.alpha, beta=h.beta, anneal=h.beta_steps)
        return Replay(*facts)

    @classmethod
    def n_weights(cls, task: Task) -> int:
        """Weights of the online network."""
        return q_network(task).n_weights

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The greedy action, and the Q-values that it is the best of."""
        from tianji.models.export import exported

        values = None if task.hyp.distribution == "none" else Values(task.hyp)
        return exported(q_network(task), weights, task.env, "q", head=values)

    def stage(self, batch: Arrays) -> Any:
        """What is learned from, on the device."""
        gather = self.task.env.gather
        weight = ("weight",) if self.hyp.prioritised else ()
        used = {name: batch[name] for name in ("action", "reward", "discount", *weight)}
        if self.task.env.masked:
            used["next_mask"] = batch["next_mask"]
        if TICKET in batch:  # the samples are on the device already
            from tianji.models.device_frames import observed

            here, following = observed(batch, self.task.env, self._device)
            return self._stage(used) | {"obs": here, "next_obs": following}
        return self._stage(used | {"obs": gather(batch), "next_obs": gather(batch, "next_")})

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """One step of Adam on the TD error."""
        h = self.hyp
        self._optimiser.lr = h.rate(self._n_updates)
        if self.task.n_learners == 1:
            scalars: Scalars = dict(self._update(batch))
        else:
            loss, scalars = self._loss(batch)
            yield from self._descend(loss, h.clip_grad_norm)
        self._learned(h.target_tau, h.target_replace_iter)
        error = scalars.pop("priorities")
        return {**scalars, "priorities": array_of(error)} if h.prioritised else scalars

    def _alone(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """A step that no other learner has a part in: nothing but tensors, so it can be a graph."""
        loss, found = self._loss(batch)
        for _ in self._descend(loss, self.hyp.clip_grad_norm):
            pass
        return found

    def _loss(self, batch: dict[str, torch.Tensor]) -> tuple[Any, dict[str, torch.Tensor]]:
        """What is descended on, and what is told of it."""
        losses, error, q, goal = self._losses(batch)
        loss = (losses * batch["weight"]).mean() if self.hyp.prioritised else losses.mean()
        scalars = {"loss": loss.detach(), "q_mean": q.mean(), "target_mean": goal.mean()}
        return loss, {**scalars, "priorities": error}

    def _losses(self, b: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Of each sample: its loss, its error as a priority, Q of the action, and the target."""
        action, values = b["action"], self._values
        with torch.no_grad():  # truncation is no termination: `discount` is 0 where the task ended
            following = self.target(b["next_obs"])
            chooser = self.online(b["next_obs"]) if self.hyp.double_q else following
            scores = values(chooser)
            if "next_mask" in b:
                scores = scores.masked_fill(~b["next_mask"], IMPOSSIBLE)
            after = values.of_action(following, scores.argmax(1))
        chosen = values.of_action(self.online(b["obs"]), action)
        if self.hyp.distribution != "none":
            return values.losses(chosen, after, b["reward"], b["discount"])
        goal = b["reward"] + b["discount"] * after
        measure = torch.nn.functional
        loss = measure.smooth_l1_loss if self.hyp.loss == "huber" else measure.mse_loss
        q = chosen.detach()
        return loss(chosen, goal, reduction="none"), (goal - q).abs(), q, goal


def q_network(task: Task) -> Network:
    """The Q-network of a job: one output per action, or several where it is a distribution."""
    h: DQNHyp = task.hyp
    n_actions, duels = one_choice(task, h.name), task.model.dueling
    atoms = 1 if h.distribution == "none" else h.atoms
    return network_of(task, n_actions * atoms, h.duels if duels is None else duels, atoms)


def _final_epsilon(task: Task, actor: int) -> float | Floats:
    """How much an actor explores in the end, or each of its environments, where they differ."""
    h, n_envs = task.hyp, task.env.n_envs
    if not h.epsilon_spread:
        return float(h.epsilon)
    i, n = actor * n_envs + np.arange(n_envs), task.n_actors * n_envs
    exponent: Floats = (1 + h.epsilon_spread * i / max(1, n - 1)).astype(np.float32)
    return np.float32(h.epsilon) ** exponent


def mean_values(hyp: DQNHyp, out: Floats) -> Floats:
    """The mean of every action's distribution [B, n], in numpy."""
    by_action = out.reshape(len(out), -1, hyp.atoms)
    if hyp.distribution == "qr":
        return np.asarray(by_action.mean(2))
    weight = np.exp(by_action - by_action.max(2, keepdims=True))
    values = np.linspace(hyp.v_min, hyp.v_max, hyp.atoms, dtype=np.float32)
    return np.asarray((weight @ values) / weight.sum(2))


class Values:
    """What a network's outputs say about each action: Q itself, or its distribution."""

    def __init__(self, hyp: DQNHyp, device: str = "cpu") -> None:
        self._kind, self._n = hyp.distribution, hyp.atoms
        self._atoms = torch.linspace(hyp.v_min, hyp.v_max, hyp.atoms, device=device)

    def __call__(self, out: torch.Tensor) -> torch.Tensor:
        """Q of every action [B, n]."""
        if self._kind == "none":
            return out
        by_action = out.view(out.shape[0], -1, self._n)
        return by_action.mean(2) if self._kind == "qr" else by_action.softmax(2) @ self._atoms

    def of_action(self, out: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Q of one action each [B], or what its distribution is made of [B, atoms]."""
        if self._kind == "none":
            return out.gather(1, action[:, None]).squeeze(1)
        by_action = out.view(out.shape[0], -1, self._n)
        return by_action[torch.arange(len(out), device=out.device), action]

    def losses(
        self,
        chosen: torch.Tensor,
        after: torch.Tensor,
        reward: torch.Tensor,
        discount: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Loss, priority, Q and target of each sample, from two distributions [B, atoms]."""
        if self._kind == "qr":
            goals = reward[:, None] + discount[:, None] * after
            loss = quantile_loss(chosen, goals)
            return loss, loss.detach(), chosen.detach().mean(1), goals.mean(1)
        goals = reward[:, None] + discount[:, None] * self._atoms
        share = projected(after.softmax(1), goals, self._atoms)
        loss = -(share * chosen.log_softmax(1)).sum(1)
        q = chosen.detach().softmax(1) @ self._atoms
        return loss, loss.detach(), q, share @ self._atoms


def projected(probability: torch.Tensor, values: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
    """Probability [B, n] of `values` [B, n], split between the two atoms around each."""
    step = atoms[1] - atoms[0]
    place = ((values.clamp(atoms[0], atoms[-1]) - atoms[0]) / step).clamp(0, len(atoms) - 1)
    low = place.floor().clamp(max=len(atoms) - 2).nan_to_num(0.0)  # NaN is no index
    upper = place - low
    shares = torch.zeros_like(probability)
    shares.scatter_add_(1, low.long(), probability * (1 - upper))
    return shares.scatter_add_(1, low.long() + 1, probability * upper)


def quantile_loss(quantiles: torch.Tensor, goals: torch.Tensor) -> torch.Tensor:
    """Huber loss of each sample's quantiles [B, n] against all samples of its goal [B, m]."""
    n = quantiles.shape[1]
    error = goals[:, None, :] - quantiles[:, :, None]
    middle = (torch.arange(n, device=quantiles.device) + 0.5) / n
    huber = torch.where(error.abs() <= 1, 0.5 * error.square(), error.abs() - 0.5)
    return ((middle[:, None] - (error.detach() < 0).float()).abs() * huber).mean(2).sum(1)
