"""Tensors as arrays and back: what a checkpoint keeps of a learner, wherever it computes."""

from __future__ import annotations

from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.models.layout import Floats


def array_of(tensor: torch.Tensor) -> Floats:
    """The values as numpy float32; a view where the tensor lies in the CPU's memory."""
    array: Floats = tensor.detach().cpu().numpy()
    return array


def copy_into(tensor: torch.Tensor, array: Floats, name: str) -> None:
    """Sets the values in place, so that every view of the tensor sees them."""
    if array.shape != tuple(tensor.shape):
        want, got = list(tensor.shape), list(array.shape)
        raise TianJiError(
            f"saved {name}: want shape {want}, got {got}: was it made with another model?"
        )
    tensor.detach().copy_(torch.tensor(array))  # a copy: what was saved may be read-only
