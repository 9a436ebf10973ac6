"""Which number format and memory layout convolutions are fastest in, on this machine: measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tianji.models.cnn import CNN

PROBE_SECONDS = 0.25  # for each of four candidates


@dataclass(frozen=True)
class Precision:
    """How the body of a network computes."""

    bf16: bool = False
    channels_last: bool = False

    @property
    def dtype(self) -> torch.dtype:
        """Of activations."""
        return torch.bfloat16 if self.bf16 else torch.float32

    @property
    def memory_format(self) -> torch.memory_format:
        """Of activations [B, C, H, W]."""
        return torch.channels_last if self.channels_last else torch.contiguous_format

    def __str__(self) -> str:
        """As in `bfloat16, channels last`."""
        return f"{'bfloat16' if self.bf16 else 'float32'}{', channels last' * self.channels_last}"


_chosen: dict[tuple[object, ...], Precision] = {}  # by what was asked, in this process

CANDIDATES = [Precision(bf16, last) for bf16 in (False, True) for last in (False, True)]


def choose(network: CNN, batch: int, learns: bool, names: str = "auto") -> Precision:
    """The fastest of the candidates for this network and batch; on a GPU bfloat16, channels last.

    `names` is "auto", or "float32" or "bfloat16" to choose among those only.
    """
    device = next(network.parameters()).device
    wanted = [each for each in CANDIDATES if names in ("auto", str(each).partition(",")[0])]
    if device.type != "cpu":
        return wanted[-1]
    asked = (network.layout, batch, learns, names, torch.get_num_threads())
    if asked not in _chosen:
        frames = torch.zeros(batch, *network.layout.input_shape, dtype=torch.uint8)
        took = {each: _seconds(network, frames, each, learns) for each in wanted}
        _chosen[asked] = min(took, key=took.__getitem__)
    return _chosen[asked]


def _seconds(network: CNN, frames: torch.Tensor, precision: Precision, learns: bool) -> float:
    """Of one pass, the fastest of those that fit into the time."""
    before, network.precision = network.precision, precision
    gradients = [parameter.grad for parameter in network.parameters()]
    parameters, best = list(network.parameters()), float("inf")
    end = time.perf_counter() + PROBE_SECONDS
    try:
        while best == float("inf") or time.perf_counter() < end:
            start = time.perf_counter()
            if learns:
                torch.autograd.grad(network(frames).sum(), parameters)
            else:
                with torch.inference_mode():
                    network(frames)
            best = min(best, time.perf_counter() - start)
    finally:
        network.precision = before
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
    return best
