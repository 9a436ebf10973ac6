"""Two ways to learn from old samples that PPO does not have: what bench/async_grid.py compares."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tianji.algorithms.base import vtrace
from tianji.algorithms.drift import KLRate
from tianji.algorithms.ppo import PPO, Samples
from tianji.algorithms.surrogate import Gains
from tianji.core.algorithm import Task
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.models.normaliser import Sums

LEAST = 1e-6  # of a sample's weight: what is multiplied with it is divided by it again


class VTracePPO(PPO):
    """V-trace of the policy that begins an update, and the clip around it (average_decay=0)."""

    @classmethod
    def correction(cls, task: Task) -> str:
        """Always."""
        return "V-trace in PPO"

    def _prepare(self, batch: Arrays, inputs: Any) -> tuple[Samples, list[Sums]]:
        """Advantages and targets are V-trace's: rho and c at most 1, lambda that of PPO."""
        samples, sums = super()._prepare(batch, inputs)
        valid, ratio = batch["valid"], np.ones(batch["valid"].shape, np.float32)
        if samples.drift is not None:
            ratio[valid] = samples.drift.ratio.clamp(min=LEAST)
        value, final = inputs.through(self.networks, False)[1], inputs.final(self.networks)
        clips = 1.0, 1.0, self.hyp.gae_lambda
        both = vtrace(batch, value, final, self.hyp.gamma, ratio, clips)
        gain, goal, weight = (
            torch.from_numpy(each[valid]) for each in (*both, np.minimum(ratio, 1))
        )
        gains = Gains(gain / weight, weight)
        return samples._replace(gains=gains, target=goal.to(self._device)), sums


class ESSRate(KLRate):
    """Times the root of an effective sample size, as a share of the samples."""

    ess = 1.0

    def next(self, kl: float, n_updates: int) -> float:
        """Of the update whose samples `ess` tells of."""
        return super().next(kl, n_updates) * math.sqrt(self.ess)


class ESSPPO(PPO):
    """PPO-EWMA with smaller steps on older samples (VCPO, for Adam)."""

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        super().__init__(task, seed, device)
        self._rate: ESSRate = ESSRate(self.hyp)

    def _prepare(self, batch: Arrays, inputs: Any) -> tuple[Samples, list[Sums]]:
        """As ever; the learning rate is asked for behind it."""
        samples, sums = super()._prepare(batch, inputs)
        self._rate.ess = 1.0 if samples.drift is None else samples.drift.ess
        return samples, sums
