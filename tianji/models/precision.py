"""Which number format and memory layout convolutions are fastest in, on this machine: measured."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tianji.core.errors import TianJiError
from tianji.core.lazy import torch

if TYPE_CHECKING:
    from tianji.models.cnn import CNN

PROBE_SECONDS = 0.75  # for all candidates together
LEAST_ROUNDS = 3  # of one pass each, however slow the machine is


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


_chosen: dict[tuple[object, ...], Precision] = {}  # by what was measured, in this process
_decided: dict[str, Precision] = {}  # by what was asked, in this process
_repeated: dict[str, Precision] = {}  # the same of a run that is repeated

CANDIDATES = [Precision(False, False), Precision(False, True), Precision(True, True)]


def has_bf16() -> bool:
    """Whether this CPU has instructions for bfloat16; without them it is emulated, and slow."""
    return torch.cpu._is_avx512_bf16_supported()


def for_acting(network: CNN, device: str) -> Precision:
    """What a few pictures at once are passed through this network in: nothing is measured."""
    on_gpu, wanted = device != "cpu", network.layout.precision
    bf16 = on_gpu or has_bf16() if wanted == "auto" else wanted == "bfloat16"
    usual = Precision(bf16, channels_last=bf16 or on_gpu)
    asked = f"{network.layout} acts"
    _decided[asked] = _repeated.get(asked, usual)
    return _decided[asked]


def choose(network: CNN, batch: int) -> Precision:
    """The format in which this network learns from a batch fastest; on a GPU the last candidate.

    Where its layout says "float32" or "bfloat16", among those only.
    """
    asked = f"{network.layout} learns from {batch}"
    _decided[asked] = _repeated.get(asked) or _fastest(network, batch)
    return _decided[asked]


def decided() -> dict[str, str]:
    """What was decided in this process, in words."""
    return {asked: _words(precision) for asked, precision in _decided.items()}


@contextmanager
def as_decided(there: Mapping[str, str]) -> Iterator[None]:
    """Within, nothing is measured that was decided in another process, which `decided` told."""
    known = {_words(each): each for each in CANDIDATES}
    for words in there.values():
        if words not in known:
            raise TianJiError(
                f"the run computed in {words}, which this CPU does not have "
                f"({'; '.join(known)}): replay it on one like that of the run"
            )
    _repeated.update((asked, known[words]) for asked, words in there.items())
    try:
        yield
    finally:
        _repeated.clear()


def _words(precision: Precision) -> str:
    emulated = precision.bf16 and not has_bf16()
    return f"{precision}{', emulated' * emulated}"


def _fastest(network: CNN, batch: int) -> Precision:
    device, names = next(network.parameters()).device, network.layout.precision
    wanted = [each for each in CANDIDATES if names in ("auto", str(each).partition(",")[0])]
    if device.type != "cpu":
        return wanted[-1]
    if names == "auto" and not has_bf16():
        wanted = wanted[:-1]
    if len(wanted) == 1:
        return wanted[0]
    asked = (network.layout, batch, torch.get_num_threads())
    if asked not in _chosen:
        frames = torch.zeros(batch, *network.layout.input_shape, dtype=torch.uint8)
        took = _seconds(network, frames, wanted)
        _chosen[asked] = min(took, key=took.__getitem__)
    return _chosen[asked]


def _seconds(
    network: CNN, frames: torch.Tensor, wanted: Sequence[Precision]
) -> dict[Precision, float]:
    """Of one pass with gradients in each, the fastest of those that fit into the time.

    They take turns, and this thread's own time counts: on a busy machine neither a noisy moment
    nor a long wait for a core may decide. The first passes warm up.
    """
    before, parameters = network.precision, list(network.parameters())
    took = dict.fromkeys(wanted, float("inf"))
    end, n_rounds = time.perf_counter() + PROBE_SECONDS, 0
    try:
        while n_rounds < LEAST_ROUNDS or time.perf_counter() < end:
            for precision in wanted:
                network.precision = precision
                start = time.thread_time()
                torch.autograd.grad(network(frames).sum(), parameters)
                took[precision] = min(took[precision], time.thread_time() - start)
            n_rounds += 1
    finally:
        network.precision = before
    return took
