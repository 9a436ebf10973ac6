"""Channels within one process: the same rings, over ordinary memory."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from tianji.core.channel import ChannelSpec, Inbox, Outbox
from tianji.core.schema import ALIGNMENT
from tianji.core.state import State, Stateful
from tianji.transports import ring
from tianji.transports.bell import Silence

_End = TypeVar("_End", Inbox, Outbox)


class LocalTransport:
    """Carries messages between roles that take turns in one process."""

    def __init__(self, specs: list[ChannelSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._blocks = {spec.name: aligned(ring.n_bytes(spec)) for spec in specs}
        self._silence = Silence()
        self._ends: dict[str, Stateful] = {}  # in the order in which they were asked for

    def outbox(self, name: str) -> Outbox:
        """The sending end of the channel called `name`."""
        return self._known(f"{name} out", ring.sender(self._specs[name], self._blocks[name], ()))

    def inbox(self, name: str) -> Inbox:
        """A receiving end of the channel called `name`."""
        end = ring.receiver(self._specs[name], self._blocks[name], self._silence)
        return self._known(f"{name} in", end)

    def arm(self) -> None:
        """Nobody else runs while this process waits."""

    def disarm(self) -> None:
        """Nothing was announced."""

    def wait(self, timeout_seconds: float) -> None:
        """Returns at once: nothing can come while this process waits."""

    def state(self) -> State:
        """Everything that is in flight, and where both ends of every channel stand."""
        ends = {name: end.state() for name, end in self._ends.items()}
        return {"blocks": dict(self._blocks), "ends": ends}

    def fits(self, state: State) -> bool:
        """Whether a `state` is of the same channels, laid out alike, with the same ends."""
        sizes = {name: block.size for name, block in self._blocks.items()}
        saved = {name: block.size for name, block in state["blocks"].items()}
        return saved == sizes and state["ends"].keys() == self._ends.keys()

    def restore(self, state: State) -> None:
        """Goes on with the same messages, for whoever asked for the same ends in the same order."""
        for name, block in self._blocks.items():
            np.copyto(block, state["blocks"][name])
        for name, end in self._ends.items():
            end.restore(state["ends"][name])

    def _known(self, name: str, end: _End) -> _End:
        assert isinstance(end, Stateful)
        self._ends[f"{name} {len(self._ends)}"] = end
        return end

    def close(self) -> None:
        """The memory goes with the last end."""
        self._blocks.clear()


def aligned(n_bytes: int) -> ring.Block:
    """Private memory that starts on a cache line."""
    block = np.zeros(n_bytes + ALIGNMENT, np.uint8)
    start = -block.ctypes.data % ALIGNMENT
    return block[start : start + n_bytes]
