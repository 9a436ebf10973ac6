"""A policy without exploration as one torch module, for torch's exporter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from tianji.core.algorithm import Weights
from tianji.core.env import EnvSpec
from tianji.models.flat import fill
from tianji.models.layout import Network
from tianji.models.normaliser import LIMIT, Normaliser


class ActingModule(nn.Module):
    """From float32 observations to the action and the scores that it follows from."""

    centre: torch.Tensor
    unit: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor

    def __init__(
        self,
        network: Network,
        weights: Weights,
        env: EnvSpec,
        n_scores: int,
        normaliser: Normaliser | None,
        head: Callable[[torch.Tensor], torch.Tensor] | None,
    ) -> None:
        super().__init__()
        self.network = network.module(torch.Generator().manual_seed(0)).requires_grad_(False)
        fill(self.network.parameters(), torch.tensor(np.asarray(weights[: network.n_weights])))
        self._head, self._n_scores, self._env = head, n_scores, env
        pictures = len(env.inputs) == 1 and env.inputs[0].dtype == "uint8"
        unit = np.float32(1 / 255 if pictures and normaliser is None else 1.0)
        self.register_buffer("centre", torch.tensor(0.0 if normaliser is None else normaliser.mean))
        scale = unit if normaliser is None else normaliser.scale
        self.register_buffer("unit", torch.tensor(np.asarray(scale)))
        self._limited = normaliser is not None
        if env.choices is None:
            self.register_buffer("low", torch.tensor(env.action_low))
            self.register_buffer("high", torch.tensor(env.action_high))

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The action [B, ...] and its scores [B, n]."""
        inputs = (obs - self.centre) * self.unit
        out = self.network(inputs.clamp(-LIMIT, LIMIT) if self._limited else inputs)
        scores = out[:, : self._n_scores] if self._head is None else self._head(out)
        if self._env.n_actions is not None:
            return scores.argmax(1), scores
        if self._env.choices is not None:
            best = [part.argmax(1) for part in scores.split(self._env.choices, 1)]
            return torch.stack(best, 1).reshape(-1, *self._env.action.shape), scores
        bounded = torch.minimum(torch.maximum(scores, self.low), self.high)
        return bounded.reshape(-1, *self._env.action.shape), scores
