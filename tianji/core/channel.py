"""Channels: the only way in which roles exchange data, and they never wait.

A sender pushes when its data is ready; a receiver probes when it has time:

    if (arrays := outbox.slot()) is not None:      # None: full, do something else and try again
        fill(arrays)                               # in place, nothing is copied
        outbox.commit(version)

    if (message := inbox.take()) is not None:      # None: nothing has come
        use(message.arrays)                        # views, valid until the next take() or free()
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tianji.core.schema import Arrays, Schema

Descriptors = tuple[int, dict[str, int]]
"""A memory file, and an event for each process by name."""


class Delivery(enum.Enum):
    """What a channel promises about messages that were not read in time."""

    EVERY = "every"  # each message arrives once, in order; a full channel refuses (trajectories)
    LATEST = "latest"  # the newest replaces the older ones; many may read it (weights, metrics)


@dataclass(frozen=True)
class ChannelSpec:
    """One directed channel between two roles, before any memory is given to it.

    An EVERY channel has one source and one target; a LATEST channel has one source and any number
    of targets, whom a message wakes, and of readers, who look at it when they like.
    """

    name: str
    source: str
    targets: tuple[str, ...]
    schema: Schema
    delivery: Delivery = Delivery.EVERY
    depth: int = 2  # messages in flight before slot() answers None (EVERY only)
    readers: tuple[str, ...] = ()  # besides the targets (LATEST only)

    def __str__(self) -> str:
        """As in `actor-0.3 -> buffer-0.0`."""
        return f"{self.source} -> {', '.join(self.targets or self.readers)}"


@dataclass(slots=True)
class Message:
    """What `take` returns: arrays that belong to the channel until `free` or the next `take`."""

    arrays: Arrays
    version: int  # of the policy that made it (`learn` calls behind its weights)
    sequence: int  # 0, 1, 2, ... per sender; a LATEST channel may skip numbers


def empty_handed(number: int) -> int:
    """The version of a message that has nothing in it, but takes the place of number `number`."""
    return -1 - number


def number_of(version: int) -> int:
    """The number of a message, whether it has something in it or not."""
    return version if version >= 0 else -1 - version


class Outbox(Protocol):
    """The sending end."""

    refused: int  # how often slot() answered None

    @property
    def in_flight(self) -> int:
        """Committed messages whose receiver is not finished with them yet (EVERY)."""

    def slot(self) -> Arrays | None:
        """The next message's arrays, to be filled in place; None while the channel is full."""

    def commit(self, version: int) -> None:
        """Sends what was filled into the last `slot`; returns at once."""

    def push(self, arrays: Arrays, version: int) -> bool:
        """`slot`, copy and `commit` in one call; False when the channel is full."""

    @property
    def abandoned(self) -> bool:
        """True when the receiver has closed its end: nobody will read what is sent (EVERY)."""

    def close(self) -> None:
        """Ends the stream: the receiver sees `closed` once it has taken everything."""


class Copying:
    """What an outbox needs besides the rest, to send what lies elsewhere."""

    def push(self: Outbox, arrays: Arrays, version: int) -> bool:
        """`slot`, copy and `commit` in one call; False when the channel is full."""
        slot = self.slot()
        if slot is None:
            return False
        for name, array in slot.items():
            array[...] = arrays[name]
        self.commit(version)
        return True


class Inbox(Protocol):
    """The receiving end."""

    @property
    def waiting(self) -> int:
        """Messages that were sent and not taken yet."""

    def take(self) -> Message | None:
        """The next message if one has come; frees the one taken before."""

    def free(self) -> None:
        """Gives the message taken last back at once, for who has copied what it needs."""

    @property
    def closed(self) -> bool:
        """True when the sender has closed and nothing is left to take."""

    def close(self) -> None:
        """Says that nothing more will be taken."""


def is_away(inbox: Inbox) -> bool:
    """Whether an inbox's sender is lost and not replaced yet; not every transport knows."""
    return bool(getattr(inbox, "away", False))


@runtime_checkable
class Peeking(Protocol):
    """An inbox that shows what it will hand over next; a transport's need not."""

    def peek(self) -> Message | None:
        """What the next `take` returns, if it has come; the message taken last stays in use."""


class InFront:
    """An inbox in front of another, which it passes on; `take` is where it may step in."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    @property
    def waiting(self) -> int:
        """Messages that were sent and not taken yet."""
        return self._inbox.waiting

    @property
    def closed(self) -> bool:
        """True when the sender has closed and nothing is left to take."""
        return self._inbox.closed

    @property
    def away(self) -> bool:
        """True while the sender is lost and not replaced yet, and everything was taken."""
        return is_away(self._inbox)

    def take(self) -> Message | None:
        """The next message if one has come."""
        return self._inbox.take()

    def free(self) -> None:
        """Gives the message taken last back."""
        self._inbox.free()

    def close(self) -> None:
        """Says that nothing more will be taken."""
        self._inbox.close()


class Carrier(Protocol):
    """The channels of a run, seen from one process."""

    def outbox(self, name: str) -> Outbox:
        """The sending end of the channel called `name`."""

    def inbox(self, name: str) -> Inbox:
        """A receiving end of the channel called `name`."""

    def arm(self) -> None:
        """Announces that this process is about to wait, so that senders ring its bell."""

    def disarm(self) -> None:
        """Takes the announcement back: there was something to do after all."""

    def wait(self, timeout_seconds: float) -> None:
        """Sleeps until a message or a free slot may have come, or the time is over."""

    def close(self) -> None:
        """Gives the memory back; the ends must not be used afterwards."""


class Transport(Carrier, Protocol):
    """A carrier for the process engine; a config may name another `module:Class`.

    The launcher calls `create`, hands `inherited` file descriptors and the `describe` text to
    every child process, and the child calls `attach`.
    """

    @classmethod
    def create(
        cls, specs: list[ChannelSpec], homes: dict[str, str], reserved: Descriptors | None = None
    ) -> Transport:
        """Memory for all `specs`; `homes` maps a role's name to the name of its process.

        `reserved` are file descriptors that the children have inherited already.
        """

    @classmethod
    def attach(cls, description: dict[str, Any], home: str) -> Transport:
        """The same transport, seen from the process called `home`."""

    def describe(self) -> dict[str, Any]:
        """Plain data from which `attach` rebuilds this transport in a child."""
