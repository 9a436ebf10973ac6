"""SAC: an actor that is paid for its entropy, twin critics, and a temperature that adapts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tianji.algorithms.off_policy import OffPolicyHyp
from tianji.algorithms.td3 import ContinuousControl
from tianji.config.binder import key
from tianji.core.algorithm import Scalars, Task
from tianji.core.lazy import torch
from tianji.models.policies import LOG_2PI, LOG_STD, SquashedPolicy


@dataclass(frozen=True)
class SACHyp(OffPolicyHyp):
    """Hyper-parameters of SAC."""

    alpha: float | None = key(
        None, "worth of entropy (the temperature); None: it adapts to target_entropy", above=0
    )
    first_alpha: float = key(
        1.0, "the temperature that adapts, at first", above=0, needs={"alpha": (None,)}
    )
    target_entropy: float | None = key(
        None,
        "entropy to hold, of actions between -1 and 1; None: minus their numbers",
        needs={"alpha": (None,)},
    )


class SAC(ContinuousControl):
    """Soft actor-critic (Haarnoja et al. 2018)."""

    Hyp = SACHyp
    scalars: ClassVar[tuple[str, ...]] = ("loss", "q_mean", "target_mean", "entropy", "alpha")
    _outputs_per_number = 2  # a mean and a spread

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        self.hyp: SACHyp = task.hyp
        self._adapts = self.hyp.alpha is None
        first = math.log(self.hyp.alpha or self.hyp.first_alpha)
        self.log_alpha = torch.nn.Parameter(torch.full((1,), first), requires_grad=self._adapts)
        self._build(seed, device, 2, *([self.log_alpha] if self._adapts else []))
        self.log_alpha.data = self.log_alpha.data.to(device)
        target = self.hyp.target_entropy
        self._target_entropy = -float(self._n) if target is None else target

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Those of the critics too, and the temperature where it adapts."""
        adapts = task.hyp.alpha is None
        return cls.n_weights(task) + adapts + 2 * cls.critic_network(task).n_weights

    @classmethod
    def policy(cls, task: Task, actor: int, seed: int) -> SquashedPolicy:
        """The actor, which says itself how far it spreads."""
        return SquashedPolicy(task, cls.actor_network(task), seed, None, cls.random_steps(task))

    def _critic_loss(self, batch: Any) -> tuple[Any, Any, Any]:
        after = batch["next_obs"]
        with torch.no_grad():
            action, logp = self._drawn(after, 0)
            value = self._q(self.target_critics, after, action).amin(0)
            value -= self.log_alpha.exp() * logp
            goal = batch["reward"] + batch["discount"] * value
        q = self._q(self.critics, batch["obs"], batch["action"])
        return (q - goal).square().mean(1).sum(), q.detach(), goal

    def _actor_loss(self, batch: Any) -> tuple[Any, Scalars]:
        action, logp = self._drawn(batch["obs"], 1)
        value = self._q(self.critics, batch["obs"], action).amin(0)
        alpha, entropy = self.log_alpha.detach().exp(), -logp.detach().mean()
        loss = (alpha * logp - value).mean()
        if self._adapts:  # the temperature rises while the entropy is too low
            loss = loss + (self.log_alpha * (entropy - self._target_entropy)).sum()
        return loss, {"entropy": entropy, "alpha": alpha.squeeze(0)}

    def _drawn(self, obs: torch.Tensor, which: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions [B, n] and their log-density [B], of one of two draws."""
        out = self.actors[0](obs)
        mean, (low, high) = out[:, : self._n], LOG_STD
        log_std = low + (high - low) / 2 * (torch.tanh(out[:, self._n :]) + 1)
        drawn = self._noise(2, *mean.shape)[which]
        raw = mean + log_std.exp() * drawn
        # log(1 - tanh(x)^2), where tanh is rounded to 1
        shrunk = 2 * (math.log(2) - raw - torch.nn.functional.softplus(-2 * raw))
        logp = (-0.5 * drawn.square() - log_std - 0.5 * LOG_2PI - shrunk).sum(1)
        return torch.tanh(raw), logp
