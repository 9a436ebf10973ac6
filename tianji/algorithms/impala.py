"""IMPALA: an actor-critic whose actors never wait; V-trace corrects for the age of samples."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from tianji.algorithms.base import FallingRate, vtrace
from tianji.algorithms.drift import MOST, Drift
from tianji.algorithms.on_policy import OnPolicy
from tianji.config.binder import key
from tianji.core.algorithm import Scalars, Task, Weights
from tianji.core.balance import bound_of_lag
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.stores.rollouts import Rollouts


@dataclass(frozen=True)
class IMPALAHyp(FallingRate):
    """Hyper-parameters of IMPALA."""

    lr: float = key(6e-4, "learning rate", above=0)
    gamma: float = key(0.99, "discount per step", at_least=0, at_most=1)
    step_len: int = key(20, "steps per rollout and environment", at_least=1)
    batch_size: int | None = key(
        None, "rollouts per update; default: as many as there are actors", at_least=1
    )
    max_lag: int | None = key(
        None,
        "versions that a rollout may be behind, older ones are dropped; default: what can be in "
        "flight, actors / batch_size + 1",
        at_least=1,
        because="for no lag set buffer_cfg.slack=0 and no hyp.batch_size",
    )
    rho_clip: float = key(1.0, "largest weight of a TD error (rho bar)", above=0)
    c_clip: float = key(1.0, "largest weight of what comes after a step (c bar)", at_least=0)
    vtrace_lambda: float = key(1.0, "factor of c: below 1, less variance", at_least=0, at_most=1)
    ent_coef: float = key(0.01, "weight of the entropy bonus", at_least=0)
    vf_coef: float = key(0.5, "weight of the value loss, half the squared error", at_least=0)
    max_grad_norm: float | None = key(
        40.0,
        "largest norm of the gradient, which is the sum over all steps of a batch; None: no limit",
        above=0,
    )
    optimiser: Literal["adam", "rmsprop"] = key("adam", "Adam, or RMSProp as in the paper")
    optimiser_eps: float | None = key(
        None, "epsilon of the optimiser; default: 1e-5 of Adam, 0.01 of RMSProp", above=0
    )


class IMPALA(OnPolicy):
    """One step on V-trace's policy gradient for each batch of rollouts (Espeholt et al. 2018)."""

    Hyp = IMPALAHyp
    scalars: ClassVar[tuple[str, ...]] = (
        "policy_gradient_loss",
        "value_loss",
        "entropy_loss",
        "ratio_mean",
        "clip_fraction",
        *Drift.SCALARS,
    )

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        from tianji.models.optimisers import Adam, RMSProp

        self.hyp: IMPALAHyp = task.hyp
        self._make(seed, device)
        kind, eps = (Adam, 1e-5) if self.hyp.optimiser == "adam" else (RMSProp, 0.01)
        self._optimiser = kind(self._flat, self.hyp.lr, self.hyp.optimiser_eps or eps)
        samples = self.sampling(task).batch_units // task.n_learners
        self._choose_precision(self.networks.actor, samples)

    @classmethod
    def correction(cls, task: Task) -> str:
        """V-trace, always."""
        return "V-trace"

    @classmethod
    def sampling(cls, task: Task) -> Rollouts:
        """Whole rollouts, each learned from once, as they come."""
        h: IMPALAHyp = task.hyp
        batch = h.batch_size or task.n_actors
        lag = bound_of_lag(h.max_lag, task.n_actors, batch)
        return Rollouts(batch, batch, h.step_len * task.env.n_envs, max_lag=lag)

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """One step on the sum over a batch, as the paper has it: so learners can share it."""
        h, loss, scalars = self.hyp, None, dict.fromkeys(self.scalars, 0.0)
        if batch[0]["valid"].any():
            loss, scalars = self._loss(*batch)
            loss = loss * self.task.n_learners  # what they exchange is the mean
        self._optimiser.lr = h.rate(self._n_updates)
        yield from self._descend(loss, h.max_grad_norm)
        self._n_updates += 1
        return scalars

    def _loss(self, batch: Arrays, inputs: Any) -> tuple[torch.Tensor, Scalars]:
        """The loss summed over the valid steps, and its parts as means."""
        h, valid = self.hyp, batch["valid"]
        acted = np.zeros_like(valid, shape=(len(valid), valid.shape[1] + 1, valid.shape[2]))
        acted[:, :-1] = valid  # the others are states that episodes, or rollouts, end in
        steps, ends = (torch.from_numpy(np.flatnonzero(which)) for which in (acted, ~acted))
        out, value = self.networks(inputs.at(steps))
        chosen = batch["action" if self._discrete else "raw"][valid]
        logp, entropy = self.networks.log_probability(
            out, torch.from_numpy(chosen).to(self._device)
        )
        values, ratio = np.empty(acted.shape, np.float32), np.ones(valid.shape, np.float32)
        values[acted] = value.detach().cpu().numpy()
        with torch.no_grad():
            values[~acted] = self.networks.values(inputs.at(ends)).cpu().numpy()
        change = logp.detach().cpu().numpy() - batch["logp"][valid]
        ratio[valid] = np.exp(np.clip(change, -MOST, MOST))
        clips = h.rho_clip, h.c_clip, h.vtrace_lambda
        final = inputs.final(self.networks)
        both = vtrace(batch, values, final, h.gamma, ratio, clips)
        gain, goal = (torch.from_numpy(each[valid]).to(self._device) for each in both)
        n, policy_loss = len(gain), -(gain * logp).sum()
        value_loss = 0.5 * (value - goal).square().sum()
        loss = policy_loss + h.vf_coef * value_loss - h.ent_coef * n * entropy
        return loss, {
            "policy_gradient_loss": policy_loss.detach() / n,
            "value_loss": value_loss.detach() / n,
            "entropy_loss": -entropy.detach(),
            "ratio_mean": float(ratio[valid].mean()),
            "clip_fraction": float((ratio[valid] > h.rho_clip).mean()),
            **Drift.scalars_of(Drift(torch.from_numpy(change))),
        }
