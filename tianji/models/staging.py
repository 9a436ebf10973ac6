"""Batches on their way to where they are learned from."""

from __future__ import annotations

from typing import Any

import torch

from tianji.core.schema import Arrays

Tensors = dict[str, torch.Tensor]

DEPTH = 3  # batches between the channel and the end of their update


class Stage:
    """Copies batches to a device while that still learns from the batch before.

    To a GPU they go through pinned memory and on a stream of their own; what is learned from waits
    for its copy, and nobody else does. The learner stages the batch that waits before it looks at
    what the last update came to (`Learner._end`). On the CPU nothing is copied.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._slots: list[_Slot] = []
        self._next = 0
        self._stream: Any = None

    def __call__(self, batch: Arrays) -> Tensors:
        """The batch as tensors on the device."""
        if self._device == "cpu":
            return {name: torch.from_numpy(array) for name, array in batch.items()}
        if self._stream is None:
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # not annotated
            self._slots = [_Slot(batch) for _ in range(DEPTH)]
        slot = self._slots[self._next]
        self._next = (self._next + 1) % DEPTH
        return slot.copy(batch, self._device, self._stream)


class _Slot:
    """Pinned memory for one batch, and the event after which it may be written again."""

    def __init__(self, batch: Arrays) -> None:
        self._pinned = {
            name: torch.empty(a.shape, dtype=torch.from_numpy(a).dtype, pin_memory=True)
            for name, a in batch.items()
        }
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]  # not annotated

    def copy(self, batch: Arrays, device: str, stream: Any) -> Tensors:
        self._copied.synchronize()  # the copy of DEPTH batches ago: over long since
        for name, array in batch.items():
            self._pinned[name].numpy()[...] = array
        with torch.cuda.stream(stream):
            copies = {k: t.to(device, non_blocking=True) for k, t in self._pinned.items()}
            self._copied.record(stream)
        torch.cuda.current_stream().wait_event(self._copied)
        for tensor in copies.values():
            tensor.record_stream(torch.cuda.current_stream())
        return copies
