"""Actors that follow critics of replayed samples: what TD3, SAC and MADDPG have in common."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tianji.algorithms.base import FallingRate, GradientAlgorithm
from tianji.config.binder import key
from tianji.core.algorithm import Scalars, Task, Weights
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.state import State
from tianji.models.layout import Floats, Network
from tianji.models.tensors import array_of, copy_into
from tianji.stores.replay import Replay

if TYPE_CHECKING:
    from tianji.models.flat import FlatParameters


@dataclass(frozen=True)
class OffPolicyHyp(FallingRate):
    """Hyper-parameters of replay, critics and soft targets."""

    lr: float = key(1e-3, "learning rate of Adam", above=0)
    actor_lr: float | None = key(None, "that of the actor; None: lr", above=0)
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    tau: float = key(
        0.005, "share of the way that target networks move at an update", above=0, at_most=1
    )
    batch_size: int = key(256, "samples per update", at_least=1)
    buffer_size: int = key(1_000_000, "samples kept", at_least=1)
    warmup_size: int = key(1_000, "samples received before the first update", at_least=0)
    warmup_full_random: bool = key(True, "act at random until the warm-up is over")
    n_step: int = key(1, "steps of reward before bootstrapping", at_least=1)
    updates_per_step: float = key(1.0, "updates per environment step in serial training", above=0)
    clip_grad_norm: float | None = key(
        None, "largest norm of the actors' gradient, and of the critics'; None: no limit", above=0
    )
    adam_eps: float = key(1e-8, "epsilon of Adam", above=0)


class OffPolicy(GradientAlgorithm):
    """Actors and critics in one vector, an optimiser for each, and targets that follow slowly.

    A subclass calls `_make` with its networks and defines `_critic_loss` and `_actor_loss`. Noise
    depends on the seed and the number of the update alone.
    """

    _delay = 1  # critics' updates for each of the actors'

    def _make(
        self,
        actors: Sequence[torch.nn.Module],
        critics: Sequence[torch.nn.Module],
        seed: int,
        device: str,
        more: Sequence[torch.nn.Parameter] = (),
    ) -> None:
        """`more` learns with the actors."""
        from tianji.models.optimisers import Adam

        h: OffPolicyHyp = self.task.hyp
        self._seed = seed
        self.actors, self.critics = torch.nn.ModuleList(actors), torch.nn.ModuleList(critics)
        first = [*self.actors.parameters(), *more]
        self._own([*first, *self.critics.parameters()], device)
        self._n_first = sum(parameter.numel() for parameter in first)
        self._parts = self._flat.part(0, self._n_first), self._flat.part(self._n_first)
        self._actor_optimiser = Adam(self._parts[0], h.lr, h.adam_eps, self._flat)
        self._optimiser = Adam(self._parts[1], h.lr, h.adam_eps, self._flat)
        self.target_actors, self._slow_actors = _target_of(self.actors, device)
        self.target_critics, self._slow_critics = _target_of(self.critics, device)

    @classmethod
    def sampling(cls, task: Task) -> Replay:
        """Uniform replay."""
        h: OffPolicyHyp = task.hyp
        sizes = h.batch_size, h.buffer_size, h.warmup_size
        return Replay(*sizes, h.gamma, h.n_step, h.updates_per_step)

    @classmethod
    def random_steps(cls, task: Task) -> float:
        """Steps of one actor that are random."""
        h: OffPolicyHyp = task.hyp
        return h.warmup_size / task.n_actors if h.warmup_full_random else 0.0

    def _critic_loss(self, batch: Any) -> tuple[Any, Any, Any]:
        """The loss of all critics, their values, and what these should have been."""
        raise NotImplementedError

    def _actor_loss(self, batch: Any) -> tuple[Any, Scalars]:
        """The loss of all actors, whose critics stand still, and further scalars."""
        raise NotImplementedError

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """One step of Adam for the critics, and one for the actors whenever it is their turn."""
        h: OffPolicyHyp = self.task.hyp
        turn = self._n_updates % self._delay == 0
        loss, q, goal = self._critic_loss(batch)
        self._flat.backward(loss)
        more: Scalars = {}
        if turn:
            with _still(self.critics):
                actor_loss, more = self._actor_loss(batch)
                self._flat.add(actor_loss)
        if self.task.n_learners > 1:
            yield from self._flat.exchanged()
        self._optimiser.lr = h.rate(self._n_updates)
        self._actor_optimiser.lr = self._optimiser.lr * (h.actor_lr or h.lr) / h.lr
        for part in self._parts:
            part.clip(h.clip_grad_norm)
        self._optimiser.step()
        if turn:
            self._actor_optimiser.step()
            self._follow(h.tau)
        self._n_updates += 1
        return {"loss": loss.detach(), "q_mean": q.mean(), "target_mean": goal.mean(), **more}

    def _follow(self, tau: float = 1.0) -> None:
        n = len(self._slow_actors.vector)
        self._slow_actors.follow(self._flat.part(0, n), tau)
        self._slow_critics.follow(self._parts[1], tau)

    def _noise(self, *shape: int) -> torch.Tensor:
        """Numbers of deviation 1 for this update: all learners of a group draw the same."""
        return on(self._device, self._random().standard_normal(shape, np.float32))[0]

    def _random(self) -> np.random.Generator:
        return np.random.default_rng((self._seed, self._n_updates))

    def load(self, weights: Weights) -> None:
        """Sets the actors; all targets begin anew from what is learned."""
        super().load(weights)
        self._follow()

    def state(self) -> State:
        """What is learned, its targets, both optimisers, and what the noise follows from."""
        return {
            **super().state(),
            "actor_optimiser": self._actor_optimiser.state(),
            "target_actors": array_of(self._slow_actors.vector),
            "target_critics": array_of(self._slow_critics.vector),
            "seed": self._seed,
        }

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        super().restore(state)
        self._actor_optimiser.restore(state["actor_optimiser"])
        copy_into(self._slow_actors.vector, state["target_actors"], "target actors")
        copy_into(self._slow_critics.vector, state["target_critics"], "target critics")
        self._seed = state["seed"]


def modules(networks: Sequence[Network], seed: int, first: int = 0) -> list[torch.nn.Module]:
    """One module of each network, each with first weights of its own."""
    seeds = np.random.SeedSequence((seed, first)).generate_state(len(networks))
    return [
        network.module(torch.Generator().manual_seed(int(own)))
        for network, own in zip(networks, seeds, strict=True)
    ]


def vectors_only(task: Task, name: str) -> None:
    """Refuses convolutions, which cannot read actions beside observations."""
    if task.model.type == "CNN":
        raise TianJiError(
            f"model.type: the critics of {name} read observations and actions as one vector, which "
            "a CNN cannot: use type='MLP'"
        )


def on(device: str, *arrays: Floats) -> list[torch.Tensor]:
    """Arrays as tensors on a device."""
    return [torch.from_numpy(array).to(device) for array in arrays]


def _target_of(
    modules: torch.nn.ModuleList, device: str
) -> tuple[torch.nn.ModuleList, FlatParameters]:
    """A copy that does not learn by itself, and its parameters."""
    from tianji.models.flat import FlatParameters

    target = copy.deepcopy(modules).requires_grad_(False)
    return target, FlatParameters([*target.parameters()], device)


@contextmanager
def _still(module: torch.nn.Module) -> Iterator[None]:
    """Lets gradients through a module without gathering any for it."""
    module.requires_grad_(False)
    try:
        yield
    finally:
        module.requires_grad_(True)
