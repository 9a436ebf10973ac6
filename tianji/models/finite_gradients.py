"""Gradients with NaN or Inf in them, of which no step is made."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class FiniteGradients:
    """Says before every step of an optimiser whether its gradient is finite; counts those not.

    On a GPU the answer is a tensor, so that nobody waits for it and a CUDA graph can hold it. On
    the CPU the look takes a twelfth of a step of Adam: one product, which is finite only where all
    numbers are. Numbers beyond 1e18 count as infinite.
    """

    def __init__(self, gradient: Tensor) -> None:
        self._gradient = gradient
        self._array = gradient.numpy() if gradient.device.type == "cpu" else None
        self._left_out = torch.zeros((), device=gradient.device)

    def look(self) -> bool | Tensor:
        """Whether a step may be made; of a GPU, what is 0 where it may be made, else 1."""
        if self._array is not None:
            sound = math.isfinite(self._array.dot(self._array))
            if not sound:
                self._left_out += 1
            return sound
        bad = (~torch.isfinite(self._gradient.square().sum())).float()
        self._left_out += bad
        return bad

    @property
    def n_left_out(self) -> int:
        """Steps that were not made; waits for a GPU."""
        return int(self._left_out)
