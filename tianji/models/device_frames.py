"""A replay's frames on a GPU, and the batches drawn from them, which never leave it.

The buffer rides with its learner. It gathers both stacks of a batch on the device and hands over a
ticket in their place; `observed` finds the tensors by it.
"""

from __future__ import annotations

import itertools
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tianji.core.env import EnvSpec
from tianji.core.frames import TICKET, stacked_shape
from tianji.core.lazy import torch
from tianji.core.schema import Arrays, Field

Index = npt.NDArray[np.int64]

BATCHES = 4  # two wait or are learned from, one is being drawn
SHIFT = 32  # bits of a ticket that count the batches of one store

_held: WeakValueDictionary[int, DeviceFrames] = WeakValueDictionary()  # by the rest of a ticket
_numbers = itertools.count(1)


class DeviceFrames:
    """Frames by row, and the batches that were drawn last."""

    def __init__(self, frame: Field, n_rows: int, stack: int, batch: int, device: str) -> None:
        kind = torch.from_numpy(np.empty(0, frame.dtype)).dtype
        self._device = device
        self._frames = torch.empty((n_rows, *frame.shape), dtype=kind, device=device)
        drawn = (BATCHES, 2, batch * stack, *frame.shape)
        self._drawn = torch.empty(drawn, dtype=kind, device=device)
        self._seen = (batch, *stacked_shape(stack, frame.shape))
        self._n = 0  # batches drawn
        self._number = next(_numbers)
        _held[self._number] = self

    @staticmethod
    def n_bytes(frame: Field, n_rows: int, stack: int, batch: int) -> int:
        """Memory of the device that these take, all of it from the beginning."""
        return (n_rows + BATCHES * 2 * batch * stack) * frame.n_bytes

    def write(self, rows: Index, frames: npt.NDArray[Any]) -> None:
        """Copies one frame into each row."""
        values = torch.tensor(frames.reshape(-1, *self._frames.shape[1:]), device=self._device)
        self._frames.index_copy_(0, self._at(rows), values)

    def read(self, rows: Index) -> npt.NDArray[Any]:
        """The frames of some rows, in the CPU's memory."""
        found: npt.NDArray[Any] = self._frames[self._at(rows)].cpu().numpy()
        return found.reshape(*rows.shape, *found.shape[1:])

    def draw(self, places: Index, following: Index) -> int:
        """Gathers the stacks at these rows [B, k], and those that follow; returns their ticket."""
        self._n += 1
        for out, rows in zip(self._drawn[self._n % BATCHES], (places, following), strict=True):
            torch.index_select(self._frames, 0, self._at(rows), out=out)
        return self._number << SHIFT | self._n

    def drawn(self, ticket: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The stacks of a ticket; they are written anew three draws later."""
        n = ticket & ((1 << SHIFT) - 1)
        assert self._n - BATCHES < n <= self._n, "a batch is learned from before it is overwritten"
        here, following = self._drawn[n % BATCHES]
        return here.reshape(self._seen), following.reshape(self._seen)

    def _at(self, rows: Index) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(rows).ravel()).to(self._device)


def observed(batch: Arrays, env: EnvSpec, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What networks read of drawn samples, and of what followed them, on a device."""
    if TICKET in batch:
        ticket = int(batch[TICKET][0])
        return _held[ticket >> SHIFT].drawn(ticket)
    here, following = (torch.from_numpy(env.gather(batch, each)) for each in ("", "next_"))
    return here.to(device), following.to(device)
