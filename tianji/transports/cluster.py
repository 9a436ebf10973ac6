"""Channels between the processes of several machines: rings at every end, a courier in between.

Processes of one machine share memory, as in the process engine. What crosses from one machine to
another is carried by a thread of each process, so that it moves while the roles compute.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple, Protocol

from tianji.core.channel import ChannelSpec, Delivery, Inbox, Outbox
from tianji.core.errors import TianJiError
from tianji.transports import ring
from tianji.transports.bell import Bell
from tianji.transports.cluster_map import Map
from tianji.transports.courier import Courier
from tianji.transports.courier_naps import CourierAlarm, Naps
from tianji.transports.descriptors import DescriptorService, fetch, reserve
from tianji.transports.local import aligned
from tianji.transports.routes import Beside, EveryIn, EveryOut, LatestIn, LatestOut, Route
from tianji.transports.shm import ShmTransport
from tianji.transports.wire import Note, Wire, Wires, Word

LONGEST_SECONDS = 0.002  # from one look at the wire to the next, when nothing happens
ALONE_SECONDS = 0.02  # the same where nothing crosses the wire but signs of life
CHECK_SECONDS = 0.1  # from one check of the peers to the next
PATIENCE_SECONDS = 15.0  # with a peer of whom nothing is heard, when this process goes
SWITCH_SECONDS = 0.0005  # that a role keeps the interpreter for while its courier waits for it


class Numbered(Protocol):
    """Words about every rank."""

    def __getitem__(self, rank: int, /) -> str:
        """Of this one."""


class Bridge(Protocol):
    """Processes that are tied together, so that another one can join them."""

    def join(self, number: int, newcomer: Any) -> Wire:
        """Lets it in, and answers with the wire to it; waits until all do so."""


class Tied(NamedTuple):
    """Those who talk to a process that may be replaced."""

    ranks: list[int]
    bridge: Bridge | None


class World(Protocol):
    """This process among the others, by number."""

    rank: int

    @property
    def hosts(self) -> Numbered:
        """The machine of every rank."""

    @property
    def meetings(self) -> Numbered:
        """Where every rank hands out descriptors."""

    @property
    def meeting(self) -> DescriptorService:
        """Where this one does."""

    @property
    def replaces(self) -> bool:
        """Whether another process may come in the place of one that is lost."""

    def wire(self, peers: Iterable[int]) -> Wire:
        """What carries bytes between this process and its peers."""

    def bridge(self, number: int, ranks: list[int]) -> Bridge | None:
        """Ties `ranks` together, so that another process can join them; None: it cannot."""


class ClusterTransport:
    """Carries messages between ranks: shared memory within a machine, a wire between machines."""

    def __init__(
        self,
        world: World,
        specs: list[ChannelSpec],
        homes: dict[str, str],
        ranks: dict[str, int],
        home: str,
        replaced: Iterable[str] = (),
        host: str | None = None,
    ) -> None:
        """Of processes in `replaced` the ends stay open when they are lost.

        `host` is the process of this machine that has its memory, if not the first one.
        """
        self._specs = {spec.name: spec for spec in specs}
        hosts = {rank: world.hosts[rank] for rank in ranks.values()}
        self._map = Map(homes, ranks, hosts, home)
        self._shared = _shared_memory(world, specs, self._map, host)
        self._alarm = CourierAlarm()
        self._blocks: dict[str, ring.Block] = {}  # of rings whose other end is elsewhere
        self._routes: dict[tuple[int, int], Route] = {}
        self._beside: list[Beside] = []
        peers: set[int] = set()
        for number, spec in enumerate(specs):
            self._add(number, spec)
            peers |= self._map.peers_of(home, spec)
        self._wire = Wires(world.wire(sorted(peers)), peers)
        away = sorted(replaced) if world.replaces else []
        self._bridges = _bridges(world, specs, self._map, away)
        self.courier = Courier(
            self._wire,
            self._routes,
            peers,
            self._beside,
            replaceable=[ranks[each] for each in away],
            on_newcomer=self._on_newcomer,
        )
        self._meeting = world.meeting
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
        return ring.sender(spec, self.block(name), bells)

    def inbox(self, name: str) -> Inbox:
        """A receiving end of the channel called `name`."""
        spec = self._specs[name]
        near = self._shared.bells([spec.source])
        return ring.receiver(spec, self.block(name), near[0] if near else self._alarm)

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

    def block(self, name: str) -> ring.Block:
        """The memory of the channel called `name`, if this process has an end of it."""
        return self._blocks[name] if name in self._blocks else self._shared.block(name)

    def bridge_of(self, home: str) -> list[int]:
        """The ranks that let another process in where `home` was lost; none: it cannot be."""
        return self._bridges[home].ranks if home in self._bridges else []

    def machine(self, rank: int) -> str:
        """The one that a process is on."""
        return self._map.hosts[rank]

    def invite(self, home: str, number: int) -> None:
        """Asks all others who talk to `home` to let process `number` in, in its place."""
        note = Note(Word.JOIN, number=number, version=sorted(self._map.ranks).index(home))
        for rank in self.bridge_of(home):
            if rank != self._map.ranks[self._map.home]:
                self.courier.say(rank, note)

    def hand_out(self) -> None:
        """Gives the memory of this machine to a process that is new here; any thread may call."""
        Thread(target=self._hand_out, name="memory", daemon=True).start()

    def _hand_out(self) -> None:
        with suppress(TianJiError, OSError):  # whoever was to come for it has gone
            self._meeting.hand_out(self._shared.descriptors, 1)

    def let_in(self, home: str, number: int, newcomer: Any = None) -> None:
        """Lets process `number` in, in the place of `home`; waits for all who talk to it."""
        tied = self._bridges[home]
        assert tied.bridge is not None
        wire = tied.bridge.join(number, newcomer)
        self.courier.run(lambda: self._welcome(home, number, wire))

    def _welcome(self, home: str, number: int, wire: Wire) -> None:
        """Routes to the new process in the place of those to the old one; an errand."""
        old = self._map.ranks[home]
        self._wire.add(number, wire)
        self._map = self._map.moved(home, number)
        self._beside = [route for route in self._beside if route.source != old]
        for channel, spec in enumerate(self._specs.values()):
            route = self._routes.pop((channel, old), None)
            if isinstance(route, LatestOut):
                route.join(number)
                self._routes[channel, number] = route
            elif self._map.homes[spec.source] == home and self._has_end(spec):
                self._add(channel, spec)
                ring.take_over(self.block(spec.name))
        self.courier.welcome(number, self._routes, self._beside)

    def _on_newcomer(self, note: Note) -> None:
        """Somebody comes: into this machine, or in the place of a peer."""
        if note.word is Word.GUEST:
            self.hand_out()
            return
        home = sorted(self._map.ranks)[note.version]
        self.courier.give_up(self._map.ranks[home])  # if nobody has told it yet
        Thread(target=self._let_in, args=(home, note.number), name="join", daemon=True).start()

    def _let_in(self, home: str, number: int) -> None:
        try:
            self.let_in(home, number)
        except TianJiError as error:  # rank 0 knows, and does without
            print(f"{home}: {error}", file=sys.stderr, flush=True)

    def stand(self, seconds: float) -> bool:
        """Waits until everybody has said where the process stood that this one replaces."""
        ways = [route for route in self._routes.values() if isinstance(route, EveryOut)]
        deadline = time.monotonic() + seconds
        while not all(route.stands for route in ways) and time.monotonic() < deadline:
            time.sleep(LONGEST_SECONDS)
        return all(route.stands for route in ways)

    def _has_end(self, spec: ChannelSpec) -> bool:
        return any(self._map.is_mine(role) for role in self._map.roles_of(spec))

    def _add(self, number: int, spec: ChannelSpec) -> None:
        """Makes the routes that this process has in a channel."""
        where = self._map
        if not self._has_end(spec):
            return
        if spec.delivery is Delivery.EVERY and not where.is_shared(spec):
            self._add_crossing(number, spec)
        elif spec.delivery is Delivery.LATEST and where.is_mine(spec.source):
            self._add_publications(number, spec)
        elif spec.delivery is Delivery.LATEST and where.host(spec.source) != where.here:
            bells, source = self._shared.bells(spec.targets), where.rank(spec.source)
            self._routes[number, source] = LatestIn(
                number, spec, self.block(spec.name), source, bells
            )
        else:
            self._add_beside(spec)

    def _add_crossing(self, number: int, spec: ChannelSpec) -> None:
        greets = spec.name in self._blocks  # messages of a sender that was lost lie there
        block = self._blocks.setdefault(spec.name, aligned(ring.n_bytes(spec)))
        [mine] = self._shared.bells([r for r in self._map.roles_of(spec) if self._map.is_mine(r)])
        if self._map.is_mine(spec.source):
            peer = self._map.rank(spec.targets[0])
            self._routes[number, peer] = EveryOut(number, spec, block, peer, mine)
        else:
            peer = self._map.rank(spec.source)
            self._routes[number, peer] = way = EveryIn(number, spec, block, peer, mine)
            if greets:
                way.greet()

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


def _bridges(
    world: World, specs: list[ChannelSpec], where: Map, away: Iterable[str]
) -> dict[str, Tied]:
    """By the process that they may let another one in for: those who talk to it, and only those.

    Everybody goes through them in the same order, so that nobody waits for each other.
    """
    talk_to = {
        home: tuple(sorted(set[int]().union(*(where.peers_of(home, spec) for spec in specs))))
        for home in away
    }
    me, made = where.ranks[where.home], {}
    for number, ranks in enumerate(sorted(set(talk_to.values()))):
        if me in ranks:
            made[ranks] = Tied(list(ranks), world.bridge(number, list(ranks)))
    tied = {home: made[ranks] for home, ranks in talk_to.items() if ranks in made}
    return {home: each for home, each in tied.items() if each.bridge is not None}


def _shared_memory(
    world: World, specs: list[ChannelSpec], where: Map, host: str | None
) -> ShmTransport:
    """Memory that all processes of this machine map; the first of them makes it.

    One that comes later gets it from `host`, and makes it where it is that itself.
    """
    here, mates = [spec for spec in specs if where.is_shared(spec)], where.mates()
    first = mates[0] if host is None else host
    mates.sort()  # the ranks of those who come later are others
    if first == where.home:
        memory, events = reserve(mates)
        made = ShmTransport.create(here, where.homes, (memory, events), where.home)
        if host is None:
            world.meeting.hand_out(made.descriptors, len(mates) - 1)
        return made
    memory, *others = fetch(world.meetings[where.ranks[first]], 1 + len(mates))
    events = dict(zip(mates, others, strict=True))
    return ShmTransport(here, where.homes, memory, events, where.home)
