"""A wire: what a courier needs of whatever carries bytes from one machine to another.

Everything on it is a note of four numbers; some notes announce a payload, which follows on its way.
Nothing waits: sending and receiving are started, and `poll` tells later what has come of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from tianji.transports.ring import Block


class Word(enum.IntEnum):
    """What a note says, most of them about a channel; 0 is no word, as memory may be all zeros."""

    MESSAGE = 1  # message `number` of `version`; its payload follows
    FREED = 2  # the receiver is finished with all messages before `number`
    CLOSED = 3  # the sender has finished; `number` messages were sent
    ABANDONED = 4  # the receiver takes nothing more
    BEAT = 5  # nothing, but the sender is alive
    LEFT = 6  # the sender goes, with exit status `number`, once it hears that this was heard
    HEARD = 7  # that the other goes
    JOIN = 8  # process `number` comes; `version`: whose place it takes, among the sorted names
    GUEST = 9  # a new process of this machine comes for its shared memory
    STANDS = 10  # to a new sender: `number` messages had come, the first `version` were freed
    GONE = 11  # nobody comes in the place of peer `number`, if it is lost


class Note(NamedTuple):
    """Four numbers that travel in one piece."""

    word: Word
    channel: int = 0  # its place in the list of all channels
    number: int = 0
    version: int = 0


class Happening(enum.Enum):
    """What `poll` tells of."""

    NOTED = enum.auto()  # a note has come
    RECEIVED = enum.auto()  # the payload that a note had announced has come
    SENT = enum.auto()  # a payload has left: its memory may be used again
    LOST = enum.auto()  # the other end has gone; nothing more will come of it


class Event(NamedTuple):
    """One thing that has happened between this process and a peer."""

    what: Happening
    peer: int
    note: Note


class Wire(Protocol):
    """Carries notes and payloads between numbered peers, in order from each to each."""

    def send(self, peer: int, note: Note, payload: Block | None = None) -> None:
        """Starts to send; a payload must stay as it is until it is told to be SENT."""

    def receive(self, peer: int, note: Note, payload: Block) -> None:
        """Starts to receive what `note` announced; payloads of a peer come in their order."""

    def poll(self) -> list[Event]:
        """What has happened since the last time; returns at once."""

    def forget(self, peer: int) -> None:
        """Gives a peer up: nothing more is sent to it or expected of it, and it is told as LOST."""

    def close(self) -> None:
        """Takes back the memory that was offered for what is still to come."""


class Wires:
    """Several wires as one: whoever joins later brings a wire of its own."""

    def __init__(self, first: Wire, peers: Iterable[int]) -> None:
        self._wires = [first]
        self._of = dict.fromkeys(peers, first)
        self._leaving: list[int] = []  # told as lost last time; what had come of them comes now
        self._dead: list[Wire] = []  # with nobody at the other end; their memory may be in use

    def add(self, peer: int, wire: Wire) -> None:
        """From now on there is this peer too."""
        self._of[peer] = wire
        if wire not in self._wires:
            self._wires.append(wire)

    def send(self, peer: int, note: Note, payload: Block | None = None) -> None:
        """Starts to send on the wire of that peer."""
        if peer in self._of:
            self._of[peer].send(peer, note, payload)

    def receive(self, peer: int, note: Note, payload: Block) -> None:
        """Starts to receive on the wire of that peer."""
        self._of[peer].receive(peer, note, payload)

    def poll(self) -> list[Event]:
        """What has happened on all of them."""
        if len(self._wires) == 1:
            return self._wires[0].poll()
        events = [event for wire in self._wires for event in wire.poll()]
        for peer in self._leaving:
            self._drop(peer)
        self._leaving = [event.peer for event in events if event.what is Happening.LOST]
        return events

    def _drop(self, peer: int) -> None:
        """Looks no more at the wire of one that came later and is lost."""
        wire = self._of.get(peer, self._wires[0])
        if wire is not self._wires[0]:
            del self._of[peer]
            self._wires.remove(wire)
            self._dead.append(wire)

    def forget(self, peer: int) -> None:
        """Gives a peer up."""
        if peer in self._of:
            self._of[peer].forget(peer)

    def close(self) -> None:
        """Takes back the memory that was offered for what is still to come."""
        for wire in (*self._wires, *self._dead):
            wire.close()
