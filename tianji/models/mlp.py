"""The multi-layer perceptron in torch, and parameters that are views of one flat vector."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tianji.models.layout import Floats, MLPLayout


class MLP(nn.Module):
    """The network that `MLPLayout` describes, its parameters in the same order.

    On the CPU it is one node of the autograd graph instead of a dozen, see `_FusedMLP`.
    """

    def __init__(self, layout: MLPLayout) -> None:
        super().__init__()
        self.layout = layout
        self.weights = nn.ParameterList([torch.zeros(shape) for shape in layout.shapes])
        self._list = list(self.weights)

    def orthogonal(self, generator: torch.Generator, last_gain: float) -> MLP:
        """Starts with orthogonal weights and no biases; a small last layer decides little."""
        gain = math.sqrt(2.0) if self.layout.act == "relu" else 5 / 3
        *inner, last = [weight for weight in self._list if weight.ndim == 2]
        for weight in inner:
            nn.init.orthogonal_(weight, gain, generator=generator)
        nn.init.orthogonal_(last, last_gain, generator=generator)
        return self

    def uniform(self, generator: torch.Generator) -> MLP:
        """Starts with weights and biases of up to 1 / sqrt(inputs), as torch's linear layers do."""
        for i in range(0, len(self._list), 2):
            bound = 1 / math.sqrt(self._list[i].shape[1])
            for parameter in self._list[i : i + 2]:
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
        return self

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs [B, n_outputs] for observations [B, ...]."""
        x = obs.reshape(len(obs), -1).float()
        x = self._layers(x) if x.is_cuda else _fused(x, self.layout.act, *self._list)
        if self.layout.dueling:
            advantage = x[:, 1:]
            x = x[:, :1] + advantage - advantage.mean(1, keepdim=True)
        return x

    def _layers(self, x: Tensor) -> Tensor:
        act = torch.relu if self.layout.act == "relu" else torch.tanh
        for i in range(0, len(self._list) - 2, 2):
            x = act(torch.nn.functional.linear(x, self._list[i], self._list[i + 1]))
        return torch.nn.functional.linear(x, self._list[-2], self._list[-1])


class _FusedMLP(torch.autograd.Function):
    """All layers in one step, with the backward pass written out.

    On small networks most of an update's time is spent between torch's operations, and torch's
    tanh takes seven times as long as numpy's. The gradients are added straight into `.grad` of the
    weights.
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
        ctx.layers = layers
        ctx.weights = weights
        return torch.addmm(weights[-1], x, weights[-2].t())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weights: tuple[Tensor, ...] = ctx.weights
        for i in range(len(ctx.layers) - 1, -1, -1):
            x, weight, bias = ctx.layers[i], weights[2 * i], weights[2 * i + 1]
            if ctx.needs_input_grad[2 + 2 * i]:
                _add(weight, gradient.t() @ x)
            if ctx.needs_input_grad[3 + 2 * i]:
                _add(bias, gradient.sum(0))
            if i == 0:
                break
            gradient = gradient @ weight
            if ctx.act == "tanh":
                gradient = gradient.addcmul_(gradient, x * x, value=-1.0)
            else:
                gradient = gradient.mul_(x > 0)
        first = gradient @ weights[0] if ctx.needs_input_grad[0] else None
        return first, None, *(None for _ in weights)


_fused: Callable[..., Tensor] = _FusedMLP.apply


def _add(parameter: Tensor, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient


class FlatParameters:
    """Parameters as one vector, and their gradients as another.

    Modules keep working as before: their parameters become views. The optimiser then steps a single
    tensor, publishing weights is one copy, and averaging two learners is one vector operation.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], device: str = "cpu") -> None:
        self.vector = torch.cat([p.detach().reshape(-1) for p in parameters]).to(device)
        self.gradient = torch.zeros_like(self.vector)
        start = 0
        for p in parameters:
            stop = start + p.numel()
            p.data = self.vector[start:stop].view_as(p)
            p.grad = self.gradient[start:stop].view_as(p)
            start = stop

    def backward(self, loss: Tensor, max_norm: float | None = None) -> None:
        """Sets the gradient to that of `loss`, scaled down to `max_norm` where it is longer."""
        self.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        self.clip(max_norm)

    def exchanged(self) -> Iterator[Floats]:
        """Yields the gradient for others to change: itself, or a copy where a GPU holds it."""
        if self.gradient.device.type == "cpu":
            yield self.gradient.numpy()
            return
        copy = self.gradient.cpu()
        yield copy.numpy()
        self.gradient.copy_(copy)

    def clip(self, max_norm: float | None) -> None:
        """Scales the gradient down to `max_norm` where it is longer."""
        if max_norm is not None:
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))
