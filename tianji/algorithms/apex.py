"""Ape-X: DQN with prioritised replay, whose environments explore each at a constant rate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from tianji.algorithms.base import other_default
from tianji.algorithms.dqn import DQN, DQNHyp

_by_default = partial(other_default, DQNHyp)


@dataclass(frozen=True)
class ApeXHyp(DQNHyp):
    """Hyper-parameters of Ape-X: those of DQN, with other defaults."""

    name: ClassVar[str] = "ApeX"
    duels: ClassVar[bool] = True

    lr: float = _by_default("lr", 1e-4)
    adam_eps: float = _by_default("adam_eps", 1.5e-4)
    clip_grad_norm: float | None = _by_default("clip_grad_norm", 40.0)
    epsilon: float = _by_default("epsilon", 0.4)
    epsilon_spread: float = _by_default("epsilon_spread", 7.0)
    max_decay_step: int = _by_default("max_decay_step", 0)
    n_step: int = _by_default("n_step", 3)
    prioritised: bool = _by_default("prioritised", True)
    batch_size: int = _by_default("batch_size", 512)
    buffer_size: int = _by_default("buffer_size", 100_000)
    warmup_size: int = _by_default("warmup_size", 5_000)
    target_replace_iter: int = _by_default("target_replace_iter", 2_500)
    updates_per_step: float = _by_default("updates_per_step", 1 / 64)


class ApeX(DQN):
    """Distributed prioritised experience replay (Horgan et al. 2018)."""

    Hyp = ApeXHyp
