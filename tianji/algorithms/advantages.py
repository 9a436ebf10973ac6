"""Advantages and value targets of whole trajectories: GAE, and V-trace for old samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tianji.lazy import torch
from tianji.models.layout import Floats
from tianji.schema import Arrays


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
