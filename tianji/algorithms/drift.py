"""How far a policy goes: from those that acted by the time it learns, and by one update."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tianji.core.lazy import torch
from tianji.core.state import State

if TYPE_CHECKING:
    from tianji.algorithms.ppo import PPOHyp

LR_RANGE = (1e-6, 1e-2)  # within which `kl_target` moves the learning rate
MOST = 20.0  # log of the largest ratio that is told apart: float32 goes further


@dataclass(frozen=True)
class Drift:
    """How far the policy that learns has gone from those that acted, by the samples of a batch."""

    SCALARS: ClassVar[tuple[str, ...]] = ("staleness/ess", "staleness/kl")
    log_ratio: torch.Tensor  # log-probability of each action now, minus that when it was drawn

    @property
    def ratio(self) -> torch.Tensor:
        """Of the probabilities now and then, w = pi / pi_acted, of each sample."""
        return self.log_ratio.clamp(max=MOST).exp()

    @property
    def ess(self) -> float:
        """Effective sample size, (sum w)^2 / sum w^2, as a share of the samples."""
        w = self.ratio.double()
        return float(w.sum().square() / (w.square().sum() * len(w)))

    @property
    def kl(self) -> float:
        """KL divergence of the policy that learns from those that acted: mean of w - 1 - log w."""
        return float((self.ratio - 1 - self.log_ratio).mean())

    @classmethod
    def scalars_of(cls, drift: Drift | None) -> dict[str, float]:
        """What a learner reports; None: every sample is of the present policy."""
        numbers = (1.0, 0.0) if drift is None else (drift.ess, drift.kl)
        return dict(zip(cls.SCALARS, numbers, strict=True))


class KLRate:
    """A learning rate that falls in a line, and where a divergence is wanted, follows it."""

    def __init__(self, hyp: PPOHyp) -> None:
        self._hyp = hyp
        self._factor = 1.0  # what the divergences have made of the rate
        self.kl = 0.0  # what the last update changed the policy by

    def measured(self, kl: Any) -> None:
        """The KL divergence of an update, a number or a tensor of one."""
        if (target := self._hyp.kl_target) is not None:
            kl = float(kl)
            self.kl = max(0.0, kl) if math.isfinite(kl) else 4 * target  # too much, whatever it was

    def next(self, kl: float, n_updates: int) -> float:
        """Of the next update, when the last changed the policy by `kl`."""
        h = self._hyp
        lr = h.rate(n_updates)
        if h.kl_target is None:
            return lr
        if kl > 2 * h.kl_target:
            self._factor /= 1.5
        elif kl < h.kl_target / 2 and n_updates:
            self._factor *= 1.5
        least, most = LR_RANGE
        bounded = min(max(lr * self._factor, min(least, lr)), max(most, lr))
        self._factor = bounded / lr if lr else 1.0
        return bounded

    def state(self) -> State:
        """Both numbers."""
        return {"factor": self._factor, "kl": self.kl}

    def restore(self, state: State) -> None:
        """Goes on where another stood."""
        self._factor, self.kl = state["factor"], state["kl"]
