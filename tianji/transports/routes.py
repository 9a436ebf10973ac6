"""The ends of channels that cross from one host to another, as a courier sees them.

A role fills a slot of a ring and commits it as on one host; `EveryOut` sends the slot as it lies,
and `EveryIn` at the other end receives it straight into a slot of the ring that the target reads. A
slot is free again when the target has freed it over there, so what is in flight stays bounded by
the depth of the channel however far the hosts are apart.

Publications (LATEST) cross once per host: whoever receives them puts them where every reader of
that host looks. The newest is sent when the one before has arrived; those in between are not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from tianji.core.channel import ChannelSpec
from tianji.transports.bell import Bell
from tianji.transports.ring import (
    ABANDONED,
    AWAY,
    CLOSED,
    READ,
    WRITTEN,
    Block,
    CellInbox,
    CellOutbox,
    End,
)
from tianji.transports.wire import Event, Happening, Note, Wire, Word


class Route(ABC):
    """One end of a channel between processes; by default one that has nothing to send."""

    def look(self, wire: Wire) -> bool:
        """Sends what has become due; whether there was anything."""
        return False

    @abstractmethod
    def happened(self, wire: Wire, event: Event) -> None:
        """Something on the wire concerns this channel."""

    @property
    def owes(self) -> int | None:
        """The peer that something is still to be sent to, or to arrive at; None: nobody."""
        return None

    def left(self, peer: int) -> None:  # noqa: B027  # a sender has closed its end before it goes
        """A peer has gone in order: what it had to send is on its way or here."""

    @abstractmethod
    def lost(self, peer: int) -> None:
        """A peer will not answer any more."""

    def away(self, peer: int) -> None:
        """A peer will not answer any more, and another process may come in its place."""
        self.lost(peer)


class EveryOut(End, Route):
    """The way out of a ring: sends each slot when it is committed, frees it when it was read."""

    def __init__(self, channel: int, spec: ChannelSpec, block: Block, peer: int, bell: Bell):
        super().__init__(spec, block)
        self._channel = channel
        self._peer = peer
        self._bell = bell
        self._sent = 0  # messages handed to the wire
        self._left: set[int] = set()  # numbers whose payload has left, beyond those before
        self._free = 0  # all before this have left
        self._read = 0  # all before this were freed by the target
        self._said_closed = False
        self.stands = False  # where one that was lost stood: the target has said so

    def look(self, wire: Wire) -> bool:
        """Sends what was committed since the last look, and the end after everything."""
        closed, written = self._control[CLOSED] == 1, self._control[WRITTEN]  # in this order
        moved = self._sent < written
        while self._sent < written:
            slot = self._sent % self._n_slots
            note = Note(Word.MESSAGE, self._channel, self._sent, self._versions[slot])
            wire.send(self._peer, note, self._blocks[slot])
            self._sent += 1
        if closed and not self._said_closed:
            wire.send(self._peer, Note(Word.CLOSED, self._channel, self._sent))
            self._said_closed = moved = True
        return moved

    def happened(self, wire: Wire, event: Event) -> None:
        """A slot is free when its payload has left and the target has freed its own."""
        note = event.note
        if event.what is Happening.SENT:
            self._left.add(note.number)
            while self._free in self._left:
                self._left.remove(self._free)
                self._free += 1
        elif note.word is Word.FREED:
            self._read = note.number
        elif note.word is Word.STANDS:
            self._sent = self._free = self._control[WRITTEN] = note.number
            self._read, self.stands = note.version, True
        elif note.word is Word.ABANDONED:
            self._control[ABANDONED] = 1
            self._bell.ring()
        freed = min(self._free, self._read)
        if freed > self._control[READ]:
            self._control[READ] = freed
            self._bell.ring()

    @property
    def owes(self) -> int | None:
        """The receiver, until every payload has left and the end was said, if there is one."""
        said = self._said_closed or self._control[CLOSED] == 0
        done = said and self._free == self._control[WRITTEN]
        return None if done or self._control[ABANDONED] == 1 else self._peer

    def left(self, peer: int) -> None:
        """Nobody will read what is sent."""
        self.lost(peer)

    def lost(self, peer: int) -> None:
        """Nobody will read what is sent."""
        if peer == self._peer:
            self._control[ABANDONED] = 1
            self._bell.ring()


class EveryIn(End, Route):
    """The way into a ring: receives into the slots in order, and says when they were freed."""

    def __init__(self, channel: int, spec: ChannelSpec, block: Block, peer: int, bell: Bell):
        super().__init__(spec, block)
        self._channel = channel
        self._peer = peer
        self._bell = bell
        self._arrived: set[int] = set()  # numbers that came before one that they follow
        self._said_freed = 0
        self._said_abandoned = False
        self._n_sent: int | None = None  # once the sender has closed
        self._greets = False  # a sender that does not know yet where the lost one stood

    def greet(self) -> None:
        """The sender is a new one: messages go on where those of the lost one end."""
        self._greets, self._said_freed = True, self._control[READ]

    def look(self, wire: Wire) -> bool:
        """Tells the sender what was freed, and that nothing more will be taken."""
        moved = False
        if self._greets:
            written = self._control[WRITTEN]
            wire.send(self._peer, Note(Word.STANDS, self._channel, written, self._said_freed))
            self._greets, moved = False, True
        if (read := self._control[READ]) > self._said_freed:
            wire.send(self._peer, Note(Word.FREED, self._channel, read))
            self._said_freed, moved = read, True
        if self._control[ABANDONED] == 1 and not self._said_abandoned:
            wire.send(self._peer, Note(Word.ABANDONED, self._channel))
            self._said_abandoned = moved = True
        return moved

    def happened(self, wire: Wire, event: Event) -> None:
        """A message becomes visible when it and all before it are whole."""
        note = event.note
        slot = note.number % self._n_slots
        if note.word is Word.CLOSED:
            self._n_sent = note.number
        elif event.what is Happening.NOTED:
            wire.receive(event.peer, note, self._blocks[slot])
            return
        else:
            self._versions[slot] = note.version
            self._arrived.add(note.number)
        self._commit()

    def _commit(self) -> None:
        written = self._control[WRITTEN]
        while written in self._arrived:
            self._arrived.remove(written)
            written += 1
        self._control[WRITTEN] = written
        if written == self._n_sent:
            self._control[CLOSED] = 1
        self._bell.ring()

    def lost(self, peer: int) -> None:
        """What has arrived can still be taken; nothing more will come."""
        if peer == self._peer:
            self._control[CLOSED] = 1
            self._bell.ring()

    def away(self, peer: int) -> None:
        """What has arrived can still be taken; for more, whoever waits must know of the loss."""
        if peer == self._peer and not self._control[CLOSED]:
            self._control[CLOSED] = AWAY
            self._bell.ring()


class LatestOut(Route):
    """The way of publications to one other machine, by the first of its readers that lives."""

    def __init__(self, channel: int, spec: ChannelSpec, block: Block, peers: Sequence[int]) -> None:
        self._channel = channel
        self._inbox = CellInbox(spec, block)
        self._peers = list(peers)
        self._version = 0
        self._on_its_way = 0  # payload that has not left, answer that has not come
        self._n_sent = 0
        self._owed = False  # whoever was to receive the last one has gone
        self._said_closed = False

    def look(self, wire: Wire) -> bool:
        """Sends the newest, unless the one before is still on its way; the end after everything."""
        if self._on_its_way or self._said_closed or not self._peers:
            return False
        closed = self._inbox.closed  # before the look for a newer one: the last is sent first
        if (newest := self._inbox.take()) is not None:
            self._version, self._owed = newest.version, True
        if self._owed:
            self._owed = False
            self._on_its_way = 2
            note = Note(Word.MESSAGE, self._channel, self._n_sent, self._version)
            wire.send(self._peers[0], note, self._inbox.copy)
            self._n_sent += 1
            return True
        if closed and not self._inbox.waiting:
            for peer in self._peers:  # all, because the first may go with the news
                wire.send(peer, Note(Word.CLOSED, self._channel, self._n_sent))
            self._said_closed = True
        return closed

    def happened(self, wire: Wire, event: Event) -> None:
        """It has left, or it has arrived."""
        if self._peers and event.peer == self._peers[0]:  # not of one that was given up
            self._on_its_way -= 1

    @property
    def owes(self) -> int | None:
        """The receiver, until the newest has arrived and the end was said, if there is one."""
        said = self._said_closed or not self._inbox.closed
        done = said and not (self._on_its_way or self._owed or self._inbox.waiting)
        return None if done or not self._peers else self._peers[0]

    def join(self, peer: int) -> None:
        """There is another reader on that machine, which gets the newest if it is the only one."""
        self._peers.append(peer)
        if len(self._peers) == 1:
            self._on_its_way, self._owed = 0, self._n_sent > 0

    def left(self, peer: int) -> None:
        """It receives for its machine no longer; others may still read there."""
        self.lost(peer)

    def lost(self, peer: int) -> None:
        """The next reader of that machine takes over, and gets what the last one may not have."""
        if peer not in self._peers:
            return
        was_first = self._peers[0] == peer
        self._peers.remove(peer)
        if was_first:
            self._on_its_way, self._owed = 0, self._n_sent > 0


class LatestIn(Route):
    """Puts what another machine published where the readers of this machine look."""

    def __init__(
        self, channel: int, spec: ChannelSpec, block: Block, peer: int, bells: Sequence[Bell]
    ) -> None:
        self._channel = channel
        self._outbox = CellOutbox(spec, block, bells)
        self._peer = peer

    def happened(self, wire: Wire, event: Event) -> None:
        """A publication begins to come, or has come, or there will be no more."""
        note = event.note
        if note.word is Word.CLOSED:
            self._outbox.close()
        elif event.what is Happening.NOTED:
            self._outbox.catch_up()  # another process may have received here before it died
            self._outbox.slot()
            wire.receive(event.peer, note, self._outbox.block)
        else:
            self._outbox.commit(note.version)
            wire.send(event.peer, Note(Word.FREED, self._channel, note.number + 1))

    def lost(self, peer: int) -> None:
        """A publisher that has died publishes nothing more."""
        if peer == self._peer:
            self._outbox.close()

    def away(self, peer: int) -> None:
        """What was published last holds until the next one publishes."""


class Beside(End, Route):
    """A channel within one machine: crosses no wire, but its ends close when a process dies."""

    def __init__(
        self,
        spec: ChannelSpec,
        block: Block,
        source: int,
        target: int | None,
        bells: Iterable[Bell],
    ) -> None:
        super().__init__(spec, block)
        self.source = source
        self._target = target  # None: it has readers, who are nothing to the source
        self._bells = list(bells)

    def happened(self, wire: Wire, event: Event) -> None:
        """Cannot be: nothing of it is on the wire."""
        raise AssertionError(f"{self.spec}: {event}")

    def lost(self, peer: int) -> None:
        """Closes the end of whoever died, in its stead."""
        if peer == self.source:
            self._control[CLOSED] = 1
        elif peer == self._target:
            self._control[ABANDONED] = 1
        else:
            return
        self._ring()

    def away(self, peer: int) -> None:
        """Says so, where it was the source."""
        if peer != self.source:
            self.lost(peer)
        elif not self._control[CLOSED]:
            self._control[CLOSED] = AWAY
            self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()
