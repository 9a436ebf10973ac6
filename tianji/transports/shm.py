"""Channels between processes of one machine: rings in shared memory and a bell per process.

The memory is a `memfd`: it has no name, is inherited by the run's own processes only, and is gone
with the last of them, however they end. A bell is an `eventfd` beside a flag: a process raises its
flag before it sleeps, and whoever sends to it, or frees a slot for it, writes to the eventfd only
if the flag is up.
"""

from __future__ import annotations

import mmap
import os
import select
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from tianji.core.channel import ChannelSpec, Delivery, Descriptors, Inbox, Outbox
from tianji.core.errors import TianJiError
from tianji.core.schema import ALIGNMENT, Schema, align
from tianji.transports import ring
from tianji.transports.bell import Bell, Flag
from tianji.transports.descriptors import reserve
from tianji.transports.fence import fence, fence_all, is_fenced_from_afar


class DoorBell(Bell):
    """Wakes one process; rung by many."""

    def __init__(self, flag: Flag, event: int) -> None:
        self.flag = flag
        self._event = event

    def wake(self) -> None:
        """Ends the sleep of the process, or the next one if it has none now."""
        os.eventfd_write(self._event, 1)


class FencedFlag:
    """A flag for senders whom the sleeper cannot fence: each look at it has its own fence."""

    def __init__(self, flag: memoryview) -> None:
        self._flag = flag

    def __getitem__(self, place: Literal[0]) -> int:
        fence()
        return int(self._flag[place])


class ShmTransport:
    """Carries messages between processes of one machine."""

    def __init__(
        self,
        specs: list[ChannelSpec],
        homes: dict[str, str],
        memory: int,
        events: dict[str, int],
        home: str,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._homes = homes
        self._memory = memory
        self._events = events
        self._home = home
        places, total = _layout(specs, events)
        self._map = mmap.mmap(memory, total)
        whole = np.frombuffer(self._map, np.uint8)
        self._blocks = {
            spec.name: whole[places[spec.name] :][: ring.n_bytes(spec)] for spec in specs
        }
        flags = {name: whole[places[f"bell {name}"] :][:8].data.cast("q") for name in events}
        self._flag = flags[home]
        seen = flags if is_fenced_from_afar() else {n: FencedFlag(f) for n, f in flags.items()}
        self._bells = {name: DoorBell(seen[name], events[name]) for name in events}
        self._poll = select.poll()
        self._poll.register(events[home], select.POLLIN)

    @classmethod
    def create(
        cls,
        specs: list[ChannelSpec],
        homes: dict[str, str],
        reserved: Descriptors | None = None,
        home: str = "launcher",
    ) -> ShmTransport:
        """Takes the memory for all `specs` at once, so that none is missing later."""
        names = sorted({*homes.values(), home})
        memory, events = reserved or reserve(names)
        _, total = _layout(specs, events)
        try:
            os.ftruncate(memory, total)
            os.posix_fallocate(memory, 0, total)
        except OSError as error:
            raise TianJiError(
                f"no {total / 2**20:,.0f} MiB of shared memory for channels ({error.strerror}): "
                "use fewer actors, fewer environments per actor or a smaller send_size"
            ) from error
        return cls(specs, homes, memory, events, home)

    def describe(self) -> dict[str, Any]:
        """Layouts, homes and the numbers of the inherited file descriptors."""
        return {
            "memory": self._memory,
            "events": self._events,
            "homes": self._homes,
            "channels": [_to_json(spec) for spec in self._specs.values()],
        }

    @classmethod
    def attach(cls, description: dict[str, Any], home: str) -> ShmTransport:
        """Maps the inherited memory in a child process."""
        specs = [_from_json(channel) for channel in description["channels"]]
        return cls(specs, description["homes"], description["memory"], description["events"], home)

    @property
    def descriptors(self) -> list[int]:
        """Of the memory, and of the bell of each of its processes."""
        return [self._memory, *self._events.values()]

    def carries(self, name: str) -> bool:
        """Whether there is a channel of this name: one within a process is none of this memory."""
        return name in self._specs

    def outbox(self, name: str) -> Outbox:
        """The sending end of the channel called `name`."""
        spec = self._specs[name]
        return ring.sender(spec, self.block(name), self.bells(spec.targets))

    def inbox(self, name: str) -> Inbox:
        """A receiving end of the channel called `name`."""
        spec = self._specs[name]
        return ring.receiver(spec, self.block(name), self._bells[self._homes[spec.source]])

    def block(self, name: str) -> ring.Block:
        """The memory of the channel called `name`."""
        return self._blocks[name]

    def bells(self, roles: Iterable[str]) -> list[DoorBell]:
        """One bell for each process of this memory that some of these roles live in."""
        homes = dict.fromkeys(self._homes[role] for role in roles)
        return [self._bells[home] for home in homes if home in self._bells]

    def arm(self) -> None:
        """Raises this process's flag; look once more for what came before, then `wait`."""
        self._flag[0] = 1
        fence_all()

    def disarm(self) -> None:
        """Lowers the flag: this process is awake."""
        self._flag[0] = 0

    def wait(self, timeout_seconds: float) -> None:
        """Sleeps until the bell rings or the time is over."""
        if self._poll.poll(timeout_seconds * 1000):
            os.eventfd_read(self._events[self._home])
        self._flag[0] = 0

    def close(self) -> None:
        """Closes the file descriptors; the mapping goes with the last view of it."""
        for descriptor in (self._memory, *self._events.values()):
            os.close(descriptor)


def _layout(specs: list[ChannelSpec], events: dict[str, int]) -> tuple[dict[str, int], int]:
    """Where each channel and each bell's flag starts, and the size of it all."""
    places, position = {}, 0
    for name in events:
        places[f"bell {name}"] = position
        position += ALIGNMENT
    for spec in specs:
        places[spec.name] = position
        position += align(ring.n_bytes(spec))
    return places, max(position, 1)


def _to_json(spec: ChannelSpec) -> list[Any]:
    schema, targets, readers = spec.schema.to_json(), list(spec.targets), list(spec.readers)
    return [spec.name, spec.source, targets, schema, spec.delivery.value, spec.depth, readers]


def _from_json(channel: list[Any]) -> ChannelSpec:
    name, source, targets, schema, delivery, depth, readers = channel
    layout, kind = Schema.from_json(schema), Delivery(delivery)
    return ChannelSpec(name, source, tuple(targets), layout, kind, depth, tuple(readers))
