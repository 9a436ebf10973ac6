"""A wire within one process, for tests: what is sent arrives when somebody polls."""

from collections import deque

from tianji.transports.meeting import Meeting
from tianji.transports.wire import Event, Happening


class MemoryWire:
    """The end of one peer; payloads are copied when both ends have named their memory."""

    def __init__(self, net, rank, peers):
        self._net, self._rank, self._peers = net, rank, list(peers)
        self._news = deque()
        self._outgoing = {}  # by peer: payloads in the order in which they were sent
        self._wanted = {}  # by peer: memory in the order in which it was offered
        self._lost = set()
        net[rank] = self

    def send(self, peer, note, payload=None):
        if peer in self._lost:
            return
        other = self._net[peer]
        other._news.append(Event(Happening.NOTED, self._rank, note))
        if payload is not None:
            self._outgoing.setdefault(peer, deque()).append((note, payload))
            self._match(peer)

    def receive(self, peer, note, payload):
        self._wanted.setdefault(peer, deque()).append((note, payload))
        self._net[peer]._match(self._rank)

    def _match(self, peer):
        mine, theirs = self._outgoing.get(peer), self._net[peer]._wanted.get(self._rank)
        while mine and theirs:
            (sent, payload), (wanted, memory) = mine.popleft(), theirs.popleft()
            assert sent == wanted
            memory[:] = payload
            self._news.append(Event(Happening.SENT, peer, sent))
            self._net[peer]._news.append(Event(Happening.RECEIVED, self._rank, wanted))

    def die(self):
        """What the others see of a process that was killed."""
        for rank, other in self._net.items():
            if rank != self._rank and self._rank in other._peers:
                other._lost.add(self._rank)
                other._news = deque(e for e in other._news if e.peer != self._rank)
                other._news.append(Event(Happening.LOST, self._rank, None))

    def poll(self):
        news, self._news = list(self._news), deque()
        return news

    @property
    def busy(self):
        return any(self._outgoing.values()) or any(self._wanted.values())

    @property
    def pending(self):
        return any(self._outgoing.values())


class MemoryWorld:
    """One of several ranks in this process; every rank is a machine of its own unless told."""

    def __init__(self, net, rank, hosts):
        self.rank, self.hosts, self._net = rank, hosts, net
        self.meeting = Meeting(len(hosts))
        self.meetings = [""] * len(hosts)

    def wire(self, peers):
        return MemoryWire(self._net, self.rank, peers)


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
