"""The multi-layer perceptron in torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tianji.models.layout import NORM_EPS, MLPLayout


class MLP(nn.Module):
    """The network that `MLPLayout` describes, its parameters in the same order.

    On the CPU it is one node of the autograd graph instead of a dozen, see `_FusedMLP`.
    """

    def __init__(self, layout: MLPLayout) -> None:
        super().__init__()
        self.layout = layout
        self.weights = nn.ParameterList([torch.zeros(shape) for shape in layout.shapes])
        self._list = list(self.weights)
        pairs = list(zip(self._list[::2], self._list[1::2], strict=True))
        self._linear = [pair for pair in pairs if pair[0].ndim == 2]
        for gain, _ in (pair for pair in pairs if pair[0].ndim == 1):
            nn.init.ones_(gain)

    def orthogonal(self, generator: torch.Generator, last_gain: float) -> MLP:
        """Starts with orthogonal weights and no biases; a small last layer decides little."""
        gain = math.sqrt(2.0) if self.layout.act == "relu" else 5 / 3
        *inner, last = [weight for weight, _ in self._linear]
        for weight in inner:
            nn.init.orthogonal_(weight, gain, generator=generator)
        nn.init.orthogonal_(last, last_gain, generator=generator)
        return self

    def uniform(self, generator: torch.Generator) -> MLP:
        """Starts with weights and biases of up to 1 / sqrt(inputs), as torch's linear layers do."""
        for pair in self._linear:
            bound = 1 / math.sqrt(pair[0].shape[1])
            for parameter in pair:
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
        return self

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs [B, n_outputs] for observations [B, ...]."""
        x = obs.reshape(obs.shape[0], -1).float()
        pass_through = _layers if x.is_cuda else _fused
        if self.layout.norm:
            pass_through = _normed_layers
        x = pass_through(x, self.layout.act, *self._list)
        return duelling(x, self.layout.atoms) if self.layout.dueling else x


def _layers(x: Tensor, act: str, *weights: Tensor) -> Tensor:
    activation = torch.relu if act == "relu" else torch.tanh
    for i in range(0, len(weights) - 2, 2):
        x = activation(torch.nn.functional.linear(x, weights[i], weights[i + 1]))
    return torch.nn.functional.linear(x, weights[-2], weights[-1])


def _normed_layers(x: Tensor, act: str, *weights: Tensor) -> Tensor:
    activation, functional = torch.relu if act == "relu" else torch.tanh, torch.nn.functional
    for i in range(0, len(weights) - 2, 4):
        x = functional.linear(x, weights[i], weights[i + 1])
        gain, shift = weights[i + 2], weights[i + 3]
        x = activation(functional.layer_norm(x, x.shape[1:], gain, shift, NORM_EPS))
    return functional.linear(x, weights[-2], weights[-1])


def duelling(x: Tensor, atoms: int) -> Tensor:
    """Q = V + A - mean(A) of outputs [B, (1 + n) * atoms], V first."""
    parts = x.view(x.shape[0], -1, atoms)
    advantage = parts[:, 1:]
    return (parts[:, :1] + advantage - advantage.mean(1, keepdim=True)).flatten(1)


class _FusedMLP(torch.autograd.Function):
    """All layers in one node of the graph, with the backward pass written out.

    On small networks most of an update's time is spent between torch's operations, and torch's
    tanh takes seven times as long as numpy's.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, act: str, *weights: Tensor) -> Tensor:
        layers = [x]
        for i in range(0, len(weights) - 2, 2):
            x = torch.addmm(weights[i + 1], x, weights[i].t())
            if act == "tanh":
                array = x.numpy()
                np.tanh(array, out=array)
            else:
                x.relu_()
            layers.append(x)
        ctx.act = act
        ctx.save_for_backward(*layers, *weights)
        return torch.addmm(weights[-1], x, weights[-2].t())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        needs, n = ctx.needs_input_grad, (len(ctx.saved_tensors)) // 3
        if torch.is_grad_enabled():  # somebody wants the gradient of the gradient
            x, weights = ctx.saved_tensors[0], ctx.saved_tensors[n:]
            out, all_of_it = _layers(x, ctx.act, *weights), (x, *weights)
            wanted = [
                t for t, i in zip(all_of_it, (0, *range(2, 2 + 2 * n)), strict=True) if needs[i]
            ]
            found = iter(torch.autograd.grad(out, wanted, gradient, create_graph=True))
            return tuple(next(found) if need else None for need in needs)
        layers, weights = ctx.saved_tensors[:n], ctx.saved_tensors[n:]
        gradients: list[Tensor | None] = [None] * len(weights)
        for i in range(n - 1, -1, -1):
            x = layers[i]
            if needs[2 + 2 * i]:
                gradients[2 * i] = gradient.t() @ x
            if needs[3 + 2 * i]:
                gradients[2 * i + 1] = gradient.sum(0)
            if i == 0:
                break
            gradient = gradient @ weights[2 * i]
            if ctx.act == "tanh":
                gradient = gradient.addcmul_(gradient, x * x, value=-1.0)
            else:
                gradient = gradient.mul_(x > 0)
        first = gradient @ weights[0] if needs[0] else None
        return first, None, *gradients


_fused: Callable[..., Tensor] = _FusedMLP.apply
