"""Channels between the processes of several machines: rings at every end, a courier in between.

Processes of one machine share memory, as in the process engine. What crosses from one machine to
another is carried by a thread of each process, so that it moves while the roles compute.
"""

from __future__ import annotations

import os
import select
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Thread
from typing import Protocol

from tianji.core.channel import ChannelSpec, Delivery, Inbox, Outbox
from tianji.transports import ring
from tianji.transports.bell import Bell
from tianji.transports.courier import Courier
from tianji.transports.descriptors import DescriptorService, fetch, reserve
from tianji.transports.local import aligned
from tianji.transports.routes import Beside, EveryIn, EveryOut, LatestIn, LatestOut, Route
from tianji.transports.shm import ShmTransport
from tianji.transports.wire import Wire

SHORTEST_SECONDS = 0.0001  # from one look at the wire to the next, while something happens
LONGEST_SECONDS = 0.002  # the same when nothing does
PART = 8  # of the time in which nothing has happened, that the next look may wait for
ALONE_SECONDS = 0.02  # the same where nothing crosses the wire but signs of life
CHECK_SECONDS = 0.1  # from one check of the peers to the next
PATIENCE_SECONDS = 15.0  # with a peer of whom nothing is heard, when this process goes
SWITCH_SECONDS = 0.0005  # that a role keeps the interpreter for while its courier waits for it


class World(Protocol):
    """This process among the others, by number."""

    rank: int
    hosts: list[str]  # the machine of every rank
    meetings: list[str]  # where every rank hands out descriptors
    meeting: DescriptorService

    def wire(self, peers: Iterable[int]) -> Wire:
        """What carries bytes between this process and its peers."""


@dataclass(frozen=True)
class Map:
    """Who lives where, seen from one process."""

    homes: dict[str, str]  # of roles: the name of the process that each lives in
    ranks: dict[str, int]  # of processes
    hosts: list[str]  # of ranks
    home: str  # this process

    def rank(self, role: str) -> int:
        """The rank that a role lives in."""
        return self.ranks[self.homes[role]]

    def host(self, role: str) -> str:
        """The machine that a role lives on."""
        return self.hosts[self.rank(role)]

    @property
    def here(self) -> str:
        """This machine."""
        return self.hosts[self.ranks[self.home]]

    def mates(self) -> list[str]:
        """The processes on this machine, by rank."""
        by_rank = sorted(self.ranks, key=lambda home: self.ranks[home])
        return [home for home in by_rank if self.hosts[self.ranks[home]] == self.here]

    def roles_of(self, spec: ChannelSpec) -> tuple[str, ...]:
        """Everybody at either end of a channel."""
        return (spec.source, *spec.targets, *spec.readers)

    def is_shared(self, spec: ChannelSpec) -> bool:
        """Whether a channel has memory that the processes of this machine share."""
        hosts = {self.host(role) for role in self.roles_of(spec)}
        return self.here in hosts and (spec.delivery is Delivery.LATEST or hosts == {self.here})

    def is_mine(self, role: str) -> bool:
        """Whether a role lives in this process."""
        return self.homes[role] == self.home

    def readers_by_host(self, spec: ChannelSpec) -> dict[str, list[int]]:
        """The ranks that read a channel, by machine, each machine's in order."""
        by_host: dict[str, list[int]] = {}
        for rank in sorted({self.rank(role) for role in (*spec.targets, *spec.readers)}):
            by_host.setdefault(self.hosts[rank], []).append(rank)
        return by_host


class CourierAlarm(Bell):
    """Wakes the courier's thread, which shares the process with whoever rings."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.flag = self._asleep = [0]

    def wake(self) -> None:
        """Ends the courier's sleep."""
        self._asleep[0] = 0
        os.eventfd_write(self._event, 1)

    def arm(self) -> None:
        """Announces a sleep; look once more, then `wait`."""
        self._asleep[0] = 1

    def wait(self, seconds: float) -> None:
        """Sleeps until it rings or the time is over."""
        if select.select([self._event], [], [], seconds)[0]:
            os.eventfd_read(self._event)
        self._asleep[0] = 0

    def close(self) -> None:
        """Nobody sleeps here any more."""
        os.close(self._event)


class Naps:
    """How long to sleep between two looks at the wire: the longer, the longer nothing has happened.

    What comes is late by a part of the time that it was waited for. A look takes some 40 us of a
    core, and processes that share one would keep each other from computing.
    """

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._since = time.monotonic()

    def begin_again(self) -> None:
        """Something has happened."""
        self._since = time.monotonic()

    def next(self) -> float:
        """Seconds."""
        waited = time.monotonic() - self._since
        return min(max(waited / PART, SHORTEST_SECONDS), self._longest)


class ClusterTransport:
    """Carries messages between ranks: shared memory within a machine, a wire between machines."""

    def __init__(
        self,
        world: World,
        specs: list[ChannelSpec],
        homes: dict[str, str],
        ranks: dict[str, int],
        home: str,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._map = Map(homes, ranks, world.hosts, home)
        self._shared = _shared_memory(world, specs, self._map)
        self._alarm = CourierAlarm()
        self._blocks: dict[str, ring.Block] = {}  # of rings whose other end is elsewhere
        self._routes: dict[tuple[int, int], Route] = {}
        self._beside: list[Route] = []
        peers: set[int] = set()
        for number, spec in enumerate(specs):
            peers |= self._add(number, spec)
        self._wire = world.wire(sorted(peers))
        self.courier = Courier(self._wire, self._routes, peers, self._beside)
        self._stopping = False
        self._thread: Thread | None = None
        self.failure: str | None = None  # of the courier's thread: nothing is carried any more

    def start(
        self,
        check: Callable[[Courier], None] = lambda _: None,
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """Lets the courier run beside the roles.

        It calls `check` now and then, and `failed` if it cannot go on, both in its thread.
        """
        if self._routes:
            sys.setswitchinterval(SWITCH_SECONDS)
        told = (check, failed)
        self._thread = Thread(target=self._serve, args=told, name="courier", daemon=True)
        self._thread.start()

    def outbox(self, name: str) -> Outbox:
        """The sending end of the channel called `name`."""
        spec = self._specs[name]
        bells: list[Bell] = list(self._shared.bells(spec.targets))
        if any(self._map.host(r) != self._map.here for r in (*spec.targets, *spec.readers)):
            bells.append(self._alarm)
        return ring.sender(spec, self._block(name), bells)

    def inbox(self, name: str) -> Inbox:
        """A receiving end of the channel called `name`."""
        spec = self._specs[name]
        near = self._shared.bells([spec.source])
        return ring.receiver(spec, self._block(name), near[0] if near else self._alarm)

    def arm(self) -> None:
        """Announces that this process is about to wait."""
        self._shared.arm()

    def disarm(self) -> None:
        """Takes the announcement back."""
        self._shared.disarm()

    def wait(self, timeout_seconds: float) -> None:
        """Sleeps until something may have come, from this machine or by the courier."""
        self._shared.wait(timeout_seconds)

    def close(self, status: int = 0, patience_seconds: float = PATIENCE_SECONDS) -> None:
        """Sends what is left, says goodbye, and goes when all who still answer have heard it."""
        self._stopping = True
        if self._thread is not None:
            self._alarm.ring()
            self._thread.join()
        if self.failure is None:
            self._carry_until(lambda: self.courier.has_sent(patience_seconds))
            self.courier.leave(status)
            self._carry_until(lambda: self.courier.was_heard(patience_seconds))
            self._wire.close()
        self._shared.close()
        self._alarm.close()

    def _carry_until(self, reached: Callable[[], bool]) -> None:
        naps = Naps(LONGEST_SECONDS)
        while not reached():
            if self.courier.turn():
                naps.begin_again()
            else:
                time.sleep(naps.next())

    def _block(self, name: str) -> ring.Block:
        return self._blocks[name] if name in self._blocks else self._shared.block(name)

    def _add(self, number: int, spec: ChannelSpec) -> set[int]:
        """Makes the routes that this process has in a channel; returns its peers there."""
        where = self._map
        if not any(where.is_mine(role) for role in where.roles_of(spec)):
            return set()
        me = where.ranks[where.home]
        if spec.delivery is Delivery.EVERY and not where.is_shared(spec):
            self._add_crossing(number, spec)
        elif spec.delivery is Delivery.LATEST and where.is_mine(spec.source):
            self._add_publications(number, spec)
        elif spec.delivery is Delivery.LATEST and where.host(spec.source) != where.here:
            bells, source = self._shared.bells(spec.targets), where.rank(spec.source)
            self._routes[number, source] = LatestIn(
                number, spec, self._shared.block(spec.name), source, bells
            )
        else:
            self._add_beside(spec)
        if where.is_mine(spec.source):
            return {where.rank(role) for role in where.roles_of(spec)} - {me}
        return {where.rank(spec.source)}

    def _add_crossing(self, number: int, spec: ChannelSpec) -> None:
        block = self._blocks[spec.name] = aligned(ring.n_bytes(spec))
        [mine] = self._shared.bells([r for r in self._map.roles_of(spec) if self._map.is_mine(r)])
        if self._map.is_mine(spec.source):
            peer = self._map.rank(spec.targets[0])
            self._routes[number, peer] = EveryOut(number, spec, block, peer, mine)
        else:
            peer = self._map.rank(spec.source)
            self._routes[number, peer] = EveryIn(number, spec, block, peer, mine)

    def _add_publications(self, number: int, spec: ChannelSpec) -> None:
        for host, readers in self._map.readers_by_host(spec).items():
            if host != self._map.here:
                route = LatestOut(number, spec, self._shared.block(spec.name), readers)
                self._routes |= {(number, reader): route for reader in readers}

    def _add_beside(self, spec: ChannelSpec) -> None:
        """A channel between processes of this machine, or published on it."""
        is_every, me = spec.delivery is Delivery.EVERY, self._map.ranks[self._map.home]
        source = self._map.rank(spec.source)
        target = self._map.rank(spec.targets[0]) if is_every else None
        if source == target == me:
            return
        bells = self._shared.bells(r for r in self._map.roles_of(spec) if self._map.is_mine(r))
        block = self._shared.block(spec.name)
        self._beside.append(Beside(spec, block, source, target, bells))

    def _serve(self, check: Callable[[Courier], None], failed: Callable[[], None]) -> None:
        """The courier's thread. A role would go on to push, and nobody would carry it."""
        try:
            self._carry(check)
        except BaseException:  # the top of the thread: `failure` is for whoever waits here
            self.failure = traceback.format_exc()
            print(self.failure, end="", file=sys.stderr, flush=True)
            failed()

    def _carry(self, check: Callable[[Courier], None]) -> None:
        naps = Naps(LONGEST_SECONDS if self._routes else ALONE_SECONDS)
        due = 0.0
        while not self._stopping:
            if (now := time.monotonic()) > due:
                check(self.courier)
                due = now + CHECK_SECONDS
            self._alarm.arm()  # before the look: what is committed after it rings
            if self.courier.turn():
                naps.begin_again()
            else:
                self._alarm.wait(naps.next())


def _shared_memory(world: World, specs: list[ChannelSpec], where: Map) -> ShmTransport:
    """Memory that all processes of this machine map; the first of them makes it."""
    here, mates = [spec for spec in specs if where.is_shared(spec)], where.mates()
    if mates[0] == where.home:
        memory, events = reserve(mates)
        made = ShmTransport.create(here, where.homes, (memory, events), where.home)
        world.meeting.hand_out([memory, *events.values()], len(mates) - 1)
        return made
    memory, *others = fetch(world.meetings[where.ranks[mates[0]]], 1 + len(mates))
    events = dict(zip(mates, others, strict=True))
    return ShmTransport(here, where.homes, memory, events, where.home)
