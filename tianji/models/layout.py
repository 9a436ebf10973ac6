"""The shape of a small network without torch, and its forward pass in numpy for actors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class MLPLayout:
    """A multi-layer perceptron: where every weight lies in one flat vector.

    With `dueling` the last layer has one output more, the state's value V, and the result is
    Q = V + A - mean(A).
    """

    n_inputs: int
    hidden: tuple[int, ...]
    n_outputs: int
    act: str = "relu"
    dueling: bool = False

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weight [out, in] and bias [out] of each layer, in the order of the flat vector."""
        sizes = [self.n_inputs, *self.hidden, self.n_outputs + int(self.dueling)]
        shapes: list[tuple[int, ...]] = []
        for size_in, size_out in pairwise(sizes):
            shapes += [(size_out, size_in), (size_out,)]
        return shapes

    @property
    def n_weights(self) -> int:
        """Length of the flat vector."""
        return sum(math.prod(shape) for shape in self.shapes)


class NumpyMLP:
    """The forward pass of an `MLPLayout`; cheaper than torch at an actor's batch sizes."""

    def __init__(self, layout: MLPLayout) -> None:
        self.layout = layout
        self.flat = np.zeros(layout.n_weights, np.float32)
        views, start = [], 0
        for shape in layout.shapes:
            views.append(self.flat[start : start + math.prod(shape)].reshape(shape))
            start += math.prod(shape)
        self._layers = [(views[i].T, views[i + 1]) for i in range(0, len(views), 2)]
        self._tanh = layout.act == "tanh"

    def load(self, flat: Floats) -> None:
        """Copies a flat vector of weights."""
        self.flat[...] = flat

    def __call__(self, obs: npt.NDArray[Any]) -> Floats:
        """Outputs [E, n_outputs] for observations [E, ...]."""
        x = np.asarray(obs.reshape(len(obs), -1), np.float32)
        *inner, (weight, bias) = self._layers
        for w, b in inner:
            x = x @ w
            x += b
            if self._tanh:
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0.0, out=x)
        x = x @ weight
        x += bias
        if self.layout.dueling:
            advantage = x[:, 1:]
            x = x[:, :1] + advantage - advantage.mean(1, keepdims=True)
        return x
