"""The clipped policy gradient: normalised advantages, the loss, and what is logged of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tianji.core.algorithm import Scalars
from tianji.core.lazy import torch

if TYPE_CHECKING:
    from tianji.algorithms.ppo import PPOHyp


@dataclass(frozen=True)
class Moments:
    """What advantages are normalised with: of one learner's samples, or of several learners'."""

    n: float  # samples; the mean over the learners
    mean: torch.Tensor | float
    spread: torch.Tensor | float


NONE = Moments(0.0, 0.0, 1.0)


@dataclass(frozen=True)
class Gains:
    """Advantages of the valid samples, and the weights that these have for their age."""

    values: torch.Tensor
    weights: torch.Tensor | None = None
    teams: tuple[torch.Tensor, ...] = ()  # which of them are each team's, if there are several

    def moments(self) -> list[Moments]:
        """Of these samples alone, of each team."""
        return [_moments(gain) for gain in self._of_teams()]

    def sums(self) -> list[float]:
        """From which `pooled` finds the moments of all learners' samples."""
        parts = [gain.double() for gain in self._of_teams()]
        each = [(len(gain), float(gain.sum()), float(gain.square().sum())) for gain in parts]
        return [number for sums in each for number in sums]

    def normalised(self, moments: Sequence[Moments]) -> torch.Tensor:
        """Advantages of mean 0 and spread 1; a sample without weight must keep none."""
        parts = [
            (gain - own.mean) / own.spread
            for gain, own in zip(self._of_teams(), moments, strict=True)
        ]
        normal = parts[0]
        if self.teams:
            normal = torch.empty_like(self.values)
            for own, part in zip(self.teams, parts, strict=True):
                normal[own] = part
        return normal if self.weights is None else normal * self.weights

    def _of_teams(self) -> list[torch.Tensor]:
        return [self.values[own] for own in self.teams] or [self.values]


def _moments(gain: torch.Tensor) -> Moments:
    if not len(gain):
        return NONE
    spread = gain.std(correction=min(1, len(gain) - 1)) + 1e-8
    return Moments(len(gain), gain.mean(), spread)


def pooled(sums: Sequence[float], n_learners: int) -> list[Moments]:
    """The moments of all learners' samples, from the means over the learners of their `sums`."""
    return [_pooled(sums[i : i + 3], n_learners) for i in range(0, len(sums), 3)]


def _pooled(sums: Sequence[float], n_learners: int) -> Moments:
    n, total, squares = sums
    if not n:
        return NONE
    mean = total / n
    free = n - min(1.0, n_learners * n - 1) / n_learners
    variance = max(0.0, squares - n * mean**2) / free
    return Moments(n, mean, math.sqrt(variance) + 1e-8)


def objective(
    hyp: PPOHyp,
    logp: torch.Tensor,
    entropy: torch.Tensor,
    value: torch.Tensor,
    old: torch.Tensor,
    before: torch.Tensor,
    advantage: torch.Tensor,
    target: torch.Tensor,
) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """The clipped surrogate, the value loss and the entropy bonus; and what is logged of them.

    Values need not be as many as the samples of the policy.
    """
    change = logp - old
    ratio = change.exp()
    clipped = ratio.clamp(1 - hyp.clip_param, 1 + hyp.clip_param)
    policy_loss = -torch.minimum(advantage * ratio, advantage * clipped).mean()
    cost = _cost(value, target, hyp.huber)
    if hyp.value_clip is not None:
        bounded = before + (value - before).clamp(-hyp.value_clip, hyp.value_clip)
        cost = torch.maximum(cost, _cost(bounded, target, hyp.huber))
    value_loss = cost.mean()
    loss = policy_loss + hyp.vf_coef * value_loss
    if hyp.ent_coef:
        loss = loss - hyp.ent_coef * entropy
    return loss, (policy_loss, value_loss, entropy, change, ratio, clipped)


def _cost(value: torch.Tensor, target: torch.Tensor, huber: float | None) -> torch.Tensor:
    """Squared errors; those above `huber` count in a line from there."""
    if huber is None:
        return (value - target).square()
    return 2 * torch.nn.functional.huber_loss(value, target, reduction="none", delta=huber)


def surrogate_scalars(
    policy_loss: torch.Tensor,
    value_loss: torch.Tensor,
    entropy: torch.Tensor,
    change: torch.Tensor,
    ratio: torch.Tensor,
    clipped: torch.Tensor,
) -> Scalars:
    """What is logged of a clipped policy gradient: the figures of an update's last minibatch."""
    with torch.no_grad():
        return {
            "policy_gradient_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy_loss": -entropy.detach(),
            "approx_kl": (ratio - 1 - change).mean(),
            "clip_fraction": (ratio != clipped).float().mean(),
        }
