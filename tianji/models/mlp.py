"""The multi-layer perceptron in torch, and parameters that are views of one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tianji.models.layout import MLPLayout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "tanh": torch.tanh}


class MLP(nn.Module):
    """The network that `MLPLayout` describes, its parameters in the same order."""

    def __init__(
        self, layout: MLPLayout, generator: torch.Generator, last_gain: float = 1.0
    ) -> None:
        super().__init__()
        self.layout = layout
        self._act = ACTIVATIONS[layout.act]
        self.weights = nn.ParameterList()
        gain = math.sqrt(2.0) if layout.act == "relu" else 5 / 3
        for i, shape in enumerate(layout.shapes):
            parameter = torch.zeros(shape)
            if len(shape) == 2:
                last = i == len(layout.shapes) - 2
                nn.init.orthogonal_(parameter, last_gain if last else gain, generator=generator)
            self.weights.append(nn.Parameter(parameter))

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs [B, n_outputs] for observations [B, ...]."""
        x = obs.reshape(len(obs), -1).float()
        w = list(self.weights)
        for i in range(0, len(w) - 2, 2):
            x = self._act(F.linear(x, w[i], w[i + 1]))
        x = F.linear(x, w[-2], w[-1])
        if self.layout.dueling:
            advantage = x[:, 1:]
            x = x[:, :1] + advantage - advantage.mean(1, keepdim=True)
        return x


class FlatParameters:
    """Parameters as one vector, and their gradients as another.

    Modules keep working as before: their parameters become views. The optimiser then steps a single
    tensor, publishing weights is one copy, and averaging two learners is one vector operation.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], device: str = "cpu") -> None:
        vector = torch.cat([p.detach().reshape(-1) for p in parameters]).to(device)
        gradient = torch.zeros_like(vector)
        start = 0
        for p in parameters:
            stop = start + p.numel()
            p.data = vector[start:stop].view_as(p)
            p.grad = gradient[start:stop].view_as(p)
            start = stop
        self.vector = nn.Parameter(vector)
        self.gradient = self.vector.grad = gradient

    def clip(self, max_norm: float) -> Tensor:
        """Scales the gradient down to `max_norm`; returns the norm it had."""
        norm: Tensor = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm
