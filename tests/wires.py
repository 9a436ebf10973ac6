"""A wire within one process, for tests: what is sent arrives when somebody polls."""

from collections import deque

from tianji.transports.descriptors import DescriptorService
from tianji.transports.wire import Event, Happening, Note, Word


class Flight:
    """A payload on its way: it completes for both ends, for either of them first."""

    def __init__(self, note, payload):
        self.note, self._payload = note, payload
        self._memory = self._bytes = None
        self.sent = self.received = False

    @property
    def matched(self):
        return self._memory is not None

    def match(self, note, memory):
        assert note == self.note, "payloads are received in the order in which they were sent"
        self._memory = memory

    def leave(self):
        """The sender may use its memory again: what it holds now is what was sent."""
        self.sent = True
        if self._bytes is None:
            self._bytes = self._payload.copy()

    def arrive(self):
        self.received = True
        self._memory[:] = self._payload if self._bytes is None else self._bytes


class MemoryWire:
    """The end of one peer; what happens is what MPI allows to happen.

    Notes of one peer come in their order. Payloads of one peer are matched in their order, but they
    leave and arrive in any. `choose` picks the next of the things that could be told now, or None
    to tell them another time; everything is told at once unless a test chooses.
    """

    def __init__(self, net, rank, peers, choose=lambda options: options[0]):
        self._net, self._rank, self._peers = net, rank, list(peers)
        self._notes = {}  # by peer: those that were sent to us and not told yet
        self._outgoing = {}  # by peer: payloads in the order in which they were sent
        self._incoming = {}  # by peer: the same ones at the other end, once they are matched
        self._lost, self._dying = set(), []
        self.choose = choose
        self.crossed = []  # announcements of payloads that were sent, by peer and note
        net[rank] = self

    def send(self, peer, note, payload=None):
        if peer in self._lost:
            return
        self._net[peer]._notes.setdefault(self._rank, deque()).append(note)
        if payload is not None:
            self._outgoing.setdefault(peer, []).append(Flight(note, payload))
            self.crossed.append((peer, note))

    def receive(self, peer, note, payload):
        theirs = self._net[peer]._outgoing[self._rank]
        flight = next(flight for flight in theirs if not flight.matched)
        flight.match(note, payload)
        self._incoming.setdefault(peer, []).append(flight)

    def options(self):
        """What could be told now."""
        heard = [(Happening.NOTED, peer, notes) for peer, notes in self._notes.items() if notes]
        out = [(peer, f) for peer, all_out in self._outgoing.items() for f in all_out]
        into = [(peer, f) for peer, all_in in self._incoming.items() for f in all_in]
        return [
            *heard,
            *((Happening.RECEIVED, peer, f) for peer, f in into if not f.received),
            *((Happening.SENT, peer, f) for peer, f in out if not f.sent),
        ]

    def poll(self):
        news = []
        while (options := self.options()) and (chosen := self.choose(options)) is not None:
            news.append(self._told(*chosen))
        lost, self._dying = self._dying, []
        return [*news, *(Event(Happening.LOST, peer, Note(Word.BEAT)) for peer in lost)]

    def _told(self, what, peer, about):
        if what is Happening.NOTED:
            return Event(what, peer, about.popleft())
        about.leave() if what is Happening.SENT else about.arrive()
        return Event(what, peer, about.note)

    def forget(self, peer):
        if peer not in self._lost:
            self._lost.add(peer)
            self._dying.append(peer)
            for of in (self._notes, self._outgoing, self._incoming):
                of.pop(peer, None)

    def die(self):
        """What the others see of a process that was killed."""
        for rank, other in self._net.items():
            if rank != self._rank and self._rank in other._peers:
                other.forget(self._rank)

    def close(self):
        """Nothing is offered to anybody outside."""

    @property
    def busy(self):
        return any(what is not Happening.NOTED for what, _, _ in self.options())


class MemoryWorld:
    """One of several ranks in this process; every rank is a machine of its own unless told."""

    def __init__(self, net, rank, hosts):
        self.rank, self.hosts, self._net = rank, hosts, net
        self.meeting = DescriptorService(len(hosts))
        self.meetings = [""] * len(hosts)
        self.replaces = True

    def wire(self, peers):
        self._wire = MemoryWire(self._net, self.rank, peers)
        return self._wire

    def bridge(self, number, ranks):
        return MemoryBridge(self._wire)


class MemoryBridge:
    """Who lets a new peer in has it on the wire that it has already."""

    def __init__(self, wire):
        self._wire = wire

    def join(self, number, newcomer):
        self._wire._peers.append(number)
        return self._wire


class Pumped:
    """An end of a channel that lets the couriers carry everything before and after each use."""

    def __init__(self, end, pump):
        object.__setattr__(self, "_end", end)
        object.__setattr__(self, "_pump", pump)

    def __getattr__(self, name):
        self._pump()
        value = getattr(self._end, name)
        if not callable(value):
            return value

        def call(*arguments):
            result = value(*arguments)
            self._pump()
            return result

        return call
