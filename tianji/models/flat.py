"""Parameters as one flat vector, and their gradients as another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tianji.core.state import State
from tianji.models.layout import Floats
from tianji.models.tensors import array_of, copy_into


class Part(NamedTuple):
    """Some of the parameters, side by side, for an optimiser of their own."""

    vector: Tensor
    gradient: Tensor

    def clip(self, max_norm: float | None) -> None:
        """Scales the gradient down to `max_norm` where it is longer."""
        if max_norm is not None:
            norm = torch.linalg.vector_norm(self.gradient)
            self.gradient.mul_((max_norm / (norm + 1e-6)).clamp(max=1.0))


class FlatParameters:
    """Parameters as one vector, and their gradients as another.

    Modules keep working as before: their parameters become views. The optimiser then steps a single
    tensor, publishing weights is one copy, and averaging two learners is one vector operation.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], device: str = "cpu", n_more: int = 0
    ) -> None:
        """What is exchanged has `n_more` zeros behind the gradient: of what it does not move."""
        self.vector = torch.cat([p.detach().reshape(-1) for p in parameters]).to(device)
        self._exchanged = self.vector.new_zeros(len(self.vector) + n_more)
        self.gradient = self._exchanged[: len(self.vector)]
        start = 0
        for p in parameters:
            stop = start + p.numel()
            p.data = self.vector[start:stop].view_as(p)
            p.grad = self.gradient[start:stop].view_as(p)
            start = stop

    def backward(self, loss: Tensor, max_norm: float | None = None) -> None:
        """Sets the gradient to that of `loss`, scaled down to `max_norm` where it is longer.

        A loss that is NaN or Inf leaves a gradient that no optimiser takes.
        """
        self.gradient.zero_()
        self.add(loss)
        self.clip(max_norm)

    def add(self, loss: Tensor) -> None:
        """Adds the gradient of `loss`."""
        loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        found = loss.detach()
        if found.device.type != "cpu":
            self.gradient[:1] += 0 * found
        elif not math.isfinite(found.item()):
            self.gradient[:1] = math.nan

    def exchanged(self) -> Iterator[Floats]:
        """Yields the gradient for others to change: itself, or a copy where a GPU holds it."""
        if self.gradient.device.type == "cpu":
            yield self._exchanged.numpy()
            return
        copy = self._exchanged.cpu()
        yield copy.numpy()
        self._exchanged.copy_(copy)

    def part(self, start: int, stop: int | None = None) -> Part:
        """The parameters from `start` to `stop`."""
        return Part(self.vector[start:stop], self.gradient[start:stop])

    def clip(self, max_norm: float | None) -> None:
        """Scales the gradient down to `max_norm` where it is longer."""
        self.part(0).clip(max_norm)

    def follow(self, other: FlatParameters | Part, tau: float = 1.0) -> None:
        """Moves towards the parameters of `other` by the share `tau`: a target network."""
        if tau == 1.0:
            self.vector.copy_(other.vector)
        else:
            self.vector.lerp_(other.vector, tau)


def fill(parameters: Iterable[nn.Parameter], vector: Tensor) -> None:
    """Copies a flat vector into parameters; it may be longer than they are."""
    start = 0
    for parameter in parameters:
        stop = start + parameter.numel()
        parameter.copy_(vector[start:stop].view_as(parameter))
        start = stop


class Average:
    """A moving average of parameters: step k counts `decay` times as much as step k + 1."""

    def __init__(self, flat: FlatParameters, decay: float) -> None:
        self._flat, self._decay = flat, decay
        self.restart()

    def restart(self) -> None:
        """Begins with the parameters as they are now."""
        self.vector = self._flat.vector.detach().clone()
        self._weight = 1.0  # of all that is in it, when the newest has 1

    def add(self) -> None:
        """Takes in the parameters as they are now."""
        self._weight = self._decay * self._weight + 1
        self.vector.lerp_(self._flat.vector.detach(), 1 / self._weight)

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """The modules compute with the average meanwhile."""
        own = self._flat.vector.detach().clone()
        self._flat.vector.copy_(self.vector)
        try:
            yield
        finally:
            self._flat.vector.copy_(own)

    def state(self) -> State:
        """The average, and how much is in it."""
        return {"vector": array_of(self.vector), "weight": self._weight}

    def restore(self, state: State) -> None:
        """Goes on from the average of another."""
        copy_into(self.vector, state["vector"], "averaged parameters")
        self._weight = state["weight"]
