"""Advantages and value targets of whole trajectories: GAE, and V-trace for old samples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.models.layout import Floats


@dataclass(frozen=True)
class Importance:
    """Probability under the learner's policy over probability under the actor's, per sample."""

    ratio: Floats  # of every step, 1 where it is not valid
    logp: torch.Tensor  # log-probability under the learner's policy, of the valid steps
    vtrace: bool  # weigh the steps of the return as well, not only the sample itself

    @property
    def clipped(self) -> Floats:
        """At most 1: an old sample may count less, never more."""
        return np.minimum(self.ratio, 1.0)


def advantages(
    batch: Arrays,
    value: Floats,
    final_value: Floats | None,
    gamma: float,
    gae_lambda: float,
    weight: Importance | None = None,
) -> tuple[Floats, Floats]:
    """Advantage and value target of every step; arrays are [n, T, E] and `value` is [n, T+1, E].

    A terminated step has no future. A truncated one has the value of its last observation, but no
    advantage flows back over the boundary. Steps that are not valid only reset: nothing flows
    through. With V-trace the targets are those of the IMPALA paper, lambda being part of its c; the
    advantage is target minus value, which is the paper's own for lambda = 1 and GAE's for weight 1.
    """
    ended = batch["terminated"] | batch["truncated"]
    following = value[:, 1:]
    if final_value is not None:
        following = np.where(batch["truncated"], final_value, following)
    delta = batch["reward"] + gamma * following * ~batch["terminated"] - value[:, :-1]
    through = gamma * gae_lambda * (~ended).astype(np.float32)
    through[:, :-1] *= batch["valid"][:, 1:]
    if weight is not None and weight.vtrace:
        delta = delta * weight.clipped
        through = through * weight.clipped
    advantage = delta * batch["valid"]
    for t in range(advantage.shape[1] - 2, -1, -1):
        advantage[:, t] += through[:, t] * advantage[:, t + 1]
    target = advantage + value[:, :-1]
    return advantage.astype(np.float32), target.astype(np.float32)


@dataclass(frozen=True)
class Moments:
    """What advantages are normalised with: of one learner's samples, or of several learners'."""

    n: float  # samples; the mean over the learners
    mean: torch.Tensor | float
    spread: torch.Tensor | float
    centre: torch.Tensor | float = 0.0  # mean per weight (V-trace)


NONE = Moments(0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Gains:
    """Advantages of the valid samples, and the weights that these have for their age."""

    values: torch.Tensor
    clipped: torch.Tensor | None = None
    vtrace: bool = False

    def moments(self) -> Moments:
        """Of these samples alone."""
        gain = self.values
        if not len(gain):
            return NONE
        spread = gain.std(correction=min(1, len(gain) - 1)) + 1e-8
        if self.clipped is None or not self.vtrace:
            return Moments(len(gain), gain.mean(), spread)
        return Moments(len(gain), gain.mean(), spread, gain.sum() / (self.clipped.sum() + 1e-8))

    def sums(self) -> list[float]:
        """From which `pooled` finds the moments of all learners' samples."""
        gain = self.values.double()
        weights = 0.0 if self.clipped is None else float(self.clipped.sum())
        return [len(gain), float(gain.sum()), float(gain.square().sum()), weights]

    def normalised(self, moments: Moments) -> torch.Tensor:
        """Advantages of mean 0 and spread 1; a sample without weight must keep none."""
        if self.clipped is None:
            return (self.values - moments.mean) / moments.spread
        if self.vtrace:  # its weights are in the advantages already
            return (self.values - self.clipped * moments.centre) / moments.spread
        return (self.values - moments.mean) / moments.spread * self.clipped


class Samples(NamedTuple):
    """The valid samples of a batch, one after the other, on the learner's device."""

    obs: torch.Tensor
    action: torch.Tensor
    logp: torch.Tensor  # log-probability of the action where the clipped ratio starts from
    target: torch.Tensor  # of the value network
    gains: Gains  # advantages, not normalised yet, in the CPU's memory


def pooled(sums: list[float], n_learners: int) -> Moments:
    """The moments of all learners' samples, from the means over the learners of their `sums`."""
    n, total, squares, weights = sums
    if not n:
        return NONE
    mean = total / n
    free = n - min(1.0, n_learners * n - 1) / n_learners
    variance = max(0.0, squares - n * mean**2) / free
    return Moments(n, mean, math.sqrt(variance) + 1e-8, total / (weights + 1e-8))
