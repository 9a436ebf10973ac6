"""The ranks of an MPI job as rank 0 sees them: gathered, placed, briefed, and watched.

What a rank is told before there are channels are a few words of JSON. Afterwards the couriers tell
who lives: a rank says goodbye before it goes, so one that has gone without a word was lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tianji.config import Config
from tianji.core.errors import TianJiError
from tianji.engines.lost_process import RoleFailed, failure, is_spare, last_words, manner, survived
from tianji.machine import notices, resources
from tianji.machine.placement import Offer, name_of, place, refuse_wrong_number, shares, table
from tianji.machine.resources import Share
from tianji.roles.role_specs import LAUNCHER, Kind, group_of, is_first_learner, kind_of, roles_of

if TYPE_CHECKING:  # MPI is loaded by those who are in an MPI job
    from tianji.transports.cluster import ClusterTransport
    from tianji.transports.courier import Courier
    from tianji.transports.mpi import World

HELLO_SECONDS = 120.0  # for a rank to say what it is
MUSTER_SECONDS = 300.0  # for a rank to load its libraries
N_PINGS = 5  # of which the quickest tells how another machine's clock differs
ORPHAN_SECONDS = 4.0  # after mpirun has gone, until those who do not answer are named
QUIET_SECONDS = 2.5  # in which a rank that lives was heard of
OVERTAKE_SECONDS = 5.0  # from a rank's goodbye to the news, from another, that it was in order


class Ranks:
    """All other ranks of the job."""

    def __init__(self, world: World, config: Config) -> None:
        self._world = world
        self._config = config
        self._transport: ClusterTransport | None = None
        self._logs = Path()
        self._begins: dict[str, int] = {}  # where in each log this run begins
        self._parent = os.getppid()
        self._orphaned_at: float | None = None
        self._left_at: dict[str, float] = {}  # when each process was seen to have left
        self._told: set[str] = set()  # processes whose loss was told
        self._over = False  # nobody is waited for any more
        self.ranks: dict[str, int] = {}  # of processes
        self.hosts = dict(enumerate(world.host_names))  # of ranks
        self.guarded: set[str] = set()  # processes that somebody replaces if they are lost
        self.given_up: set[str] = set()  # of those: lost for good
        self.orders: dict[str, dict[str, Any]] = {}  # what each process was told to be
        self.description: dict[str, Any] = {}
        self._offers: dict[str, Offer] = {}  # of machines

    def gather(self, about: Mapping[str, Any]) -> None:
        """Hears what every rank has to say of itself, and refuses those of another run."""
        refuse_wrong_number(self._config, self._world.size)
        offers = self._heard(about)
        self.ranks = place(self._config, self._world.hosts)
        for host, offer in zip(self._world.hosts, offers, strict=True):
            first = self._offers.get(host, offer)
            self._offers[host] = replace(first, usable=min(first.usable, offer.usable))

    def _heard(self, about: Mapping[str, Any]) -> list[Offer]:
        """What each rank may use of its machine."""
        offers = [Offer(resources.unbound_cores(), resources.usable_here())]
        for rank in range(1, self._world.size):
            said = self._world.hear(rank, HELLO_SECONDS)
            where = f"rank {rank} on {self._world.host_names[rank]}"
            if said is None:
                raise TianJiError(f"{where} said nothing for {HELLO_SECONDS:.0f} s")
            for what, wanted in about.items():
                if (its := said.get(what)) != wanted:  # None: of a version that does not say it
                    raise TianJiError(
                        f"{where}: its {what} is {its}, that of rank 0 is {wanted}: start "
                        "the same command with the same files and packages on every machine"
                    )
            offers.append(Offer(tuple(said["cores"]), said["usable"]))
        return offers

    def shares(self, alternates: bool) -> dict[str, Share]:
        """What every process may use of its machine."""
        return shares(self._config, self.ranks, self._world.hosts, self._offers, alternates)

    def crowding(self, given: Mapping[str, Share], alternates: bool) -> list[str]:
        """Of every machine whose processes have fewer cores than they could use, that it is so."""
        found = {}
        for machine, offer in self._offers.items():
            here = [home for home, rank in self.ranks.items() if self._world.hosts[rank] == machine]
            there = {home: given[home] for home in here}
            found[machine] = notices.crowding(there, alternates, offer.usable)
        return [f"{name_of(machine)}: {text}" for machine, text in found.items() if text]

    def table(self, given: Mapping[str, Share]) -> str:
        """Who is where, for people."""
        places = {home: (rank, self.hosts[rank]) for home, rank in self.ranks.items()}
        return table(self._config, "rank", places, given)

    def assign(self, given: Mapping[str, Share], logs: Path) -> None:
        """Tells every rank what it will be, so that it can load its libraries."""
        self._logs = logs.resolve()
        for home, rank in self.ranks.items():
            if home == LAUNCHER:
                continue
            log = self._logs / f"{home}.log"
            self._begins[home] = log.stat().st_size if log.exists() else 0
            share = given[home]
            words = {"home": home, "log": str(log), "cores": share.cores, "threads": share.threads}
            self.orders[home] = words | {"clock": self._clock_of(rank)}
            self._world.say(rank, self.orders[home])

    def _clock_of(self, rank: int) -> float:
        """Seconds to add to a rank's clock to have ours; machines count from different moments."""
        if self._world.hosts[rank] == self._world.hosts[0]:
            return 0.0
        best, offset = float("inf"), 0.0
        for _ in range(N_PINGS):
            asked = time.monotonic()
            self._world.say(rank, {"clock": None})
            answer = self._world.hear(rank, HELLO_SECONDS)
            answered = time.monotonic()
            if answer is not None and answered - asked < best:
                best, offset = answered - asked, (asked + answered) / 2 - answer["clock"]
        return offset

    def brief(self, description: Mapping[str, Any]) -> None:
        """Tells every rank all that it must know, and hears whether it could begin."""
        others = {home: rank for home, rank in self.ranks.items() if home != LAUNCHER}
        self.description = dict(description)
        for rank in others.values():
            self._world.say(rank, {"brief": self.description | {"ranks": self.ranks}})
        for home, rank in others.items():
            answer = self._world.hear(rank, MUSTER_SECONDS)
            if answer is None or answer["trouble"]:
                words = "did not begin" if answer is None else answer["trouble"]
                raise TianJiError(f"{home} (rank {rank} on {self.hosts[rank]}): {words}")
        for rank in others.values():
            self._world.say(rank, {"begin": True})
        self._world.settle()
        self._world.begun()

    def watch(self, transport: ClusterTransport) -> None:
        """From now on the couriers tell who lives."""
        self._transport = transport

    def check(self, ended: Callable[[str], bool]) -> None:
        """Raises if the run cannot go on: a rank failed, or a machine or a link was lost."""
        self._check_courier()
        self._check_parent()
        self._check_silence()
        courier = self._courier
        for home, rank in self.ranks.items():
            if home in self.guarded:
                continue
            if rank in courier.left and not self._may_leave(home, courier.left[rank], ended):
                raise failure(self.named(home), courier.left[rank], self.last_words(home))
            if rank in courier.lost and not self._spare(home):
                self._over = is_first_learner(home)  # then there is nothing to wait for
                raise RoleFailed(self._loss(home))

    def _loss(self, home: str) -> str:
        """That a process was lost, and with it the run."""
        why = ", the last actor of its group," if kind_of(home) is Kind.ACTOR else ""
        words = self.last_words(home)
        last = f"; its last words:\n{words}" if words else ""
        return f"{self.named(home)}{why} was lost{last}"

    def _may_leave(self, home: str, status: int, ended: Callable[[str], bool]) -> bool:
        """Whether it is in order that a process has said goodbye.

        Its goodbye may overtake what a learner on another machine has to say: that it has closed.
        """
        if status:
            return is_spare(home, self._config) or (home in self.given_up and self._spare(home))
        since = time.monotonic() - self._left_at.setdefault(home, time.monotonic())
        return ended(home) or since < OVERTAKE_SECONDS

    def _check_courier(self) -> None:
        """Without one nothing is heard of anybody: they go when this rank does."""
        assert self._transport is not None
        if self._transport.failure is not None:
            self._over = True
            words = self._transport.failure.rstrip()
            raise RoleFailed(f"{self.named(LAUNCHER)} carries no messages any more:\n{words}")

    def _check_parent(self) -> None:
        """An mpirun that loses a machine ends, and leaves its ranks to themselves."""
        if os.getppid() == self._parent:
            return
        now = time.monotonic()
        self._orphaned_at = self._orphaned_at or now
        lost = self._on_lost_machines()
        if lost or now - self._orphaned_at > ORPHAN_SECONDS:
            gone = lost or self._on_quiet_hosts()
            whom = f"a machine was lost: {self._names(gone)}" if gone else "it was killed"
            self._give_up(gone)
            raise RoleFailed(f"mpirun has ended although the run had not: {whom}")

    def _on_quiet_hosts(self) -> list[str]:
        """The processes of hosts of which nobody is heard, while others are."""
        heard = [rank for rank in self.ranks.values() if not self._is_quiet(rank)]
        there = {self.hosts[rank] for rank in heard}
        gone = [home for home, rank in self.ranks.items() if self.hosts[rank] not in there]
        return gone if len(heard) > 1 else []  # rank 0 hears itself

    def _is_quiet(self, rank: int) -> bool:
        return rank != 0 and self._courier.silence(rank) > QUIET_SECONDS

    def _on_lost_machines(self) -> list[str]:
        """The processes of machines of which nobody is left."""
        lost = self._courier.lost
        there = {self.hosts[rank] for rank in self.ranks.values() if rank not in lost}
        return [home for home, rank in self.ranks.items() if self.hosts[rank] not in there]

    def _check_silence(self) -> None:
        limit = self._config.parallel.global_cfg.link_seconds
        if silent := self._present(lambda rank: self._courier.is_silent(rank, limit)):
            self._give_up(silent)
            raise RoleFailed(
                f"{self._names(silent)} did not answer for {limit:g} s: the link or the machine "
                "is lost, or the process hangs (global_cfg.link_seconds)"
            )

    def _present(self, which: Callable[[int], bool]) -> list[str]:
        """Those that have neither said goodbye nor been lost, of whose ranks this is true."""
        gone = self._courier.left.keys() | self._courier.lost | {0}
        return [home for home, rank in self.ranks.items() if rank not in gone and which(rank)]

    def _give_up(self, homes: list[str]) -> None:
        """They count as lost. Without a learner nobody else is waited for either."""
        for home in homes:
            self._courier.give_up(self.ranks[home])
            self._over = self._over or is_first_learner(home)

    def _names(self, homes: list[str]) -> str:
        return ", ".join(map(self.named, homes))

    def named(self, home: str) -> str:
        """A process with its rank and its machine."""
        rank = self.ranks[home]
        return f"{home} (rank {rank} on {self.hosts[rank]})"

    def _spare(self, home: str) -> bool:
        """Whether training goes on without a lost process: an actor with others beside it too."""
        if kind_of(home) is not Kind.ACTOR:
            return is_spare(home, self._config)
        actors = [name for name in self.ranks if kind_of(name) is Kind.ACTOR]
        beside = [name for name in actors if group_of(name) == group_of(home)]
        courier = self._courier
        lost = courier.lost | {rank for rank, status in courier.left.items() if status}
        return any(name in self.guarded or self.ranks[name] not in lost for name in beside)

    def lost(self) -> list[tuple[str, str]]:
        """Those that were lost or have failed since the last look; training goes on without."""
        found = [(home, self._without(home, rank)) for home, rank in self.ranks.items()]
        new = [(home, words) for home, words in found if words and home not in self._told]
        self._told |= {home for home, _ in new}
        return new

    def _without(self, home: str, rank: int) -> str:
        """What is to be said of a process that training goes on without, if it is one."""
        if home in self.guarded:
            return ""
        status = self._courier.left.get(rank)
        if rank not in self._courier.lost and not status:
            return ""
        how = manner(status) if status else "was lost"
        where = f"(rank {rank} on {self.hosts[rank]})"
        return survived(home, f"{where} {how}", self.last_words(home))

    def departure(self, home: str) -> tuple[int | None, str]:
        """How a process has gone if not in order, with its exit status, if it told one.

        No words: it is there, or its work was done.
        """
        rank = self.ranks[home]
        if status := self._courier.left.get(rank):
            return status, manner(status)
        return None, "was lost" if rank in self._courier.lost else ""

    def is_there(self, home: str) -> bool:
        """Whether a process has neither left nor been lost."""
        return self.ranks[home] not in self._courier.left.keys() | self._courier.lost

    def skip_log(self, home: str) -> None:
        """What a log holds by now are no words of the process that is about to be there."""
        with suppress(OSError):
            self._begins[home] = (self._logs / f"{home}.log").stat().st_size

    def follow(self, home: str, rank: int) -> None:
        """Process `rank` is there in the place of one that was lost, on the same machine."""
        self.hosts[rank] = self.hosts[self.ranks[home]]
        self.ranks = self.ranks | {home: rank}

    def still_running(self) -> list[str]:
        """The ranks that have neither said goodbye nor been lost."""
        gone = self._courier.left.keys() | self._courier.lost | {0}
        running = [home for home, rank in self.ranks.items() if rank not in gone]
        trains = {role.home for role in roles_of(self._config)}
        return [] if self._over else [home for home in running if home in trains]

    def release(self, close: Callable[[str], None]) -> None:
        """Nothing: the couriers have closed what the dead had open."""

    def ask_for_stacks(self) -> None:
        """Nothing: no signal reaches a process of another machine."""

    def stacks(self) -> dict[str, str]:
        """None."""
        return {}

    def call(self, home: str) -> str | None:
        """The evaluator is a rank like any other, and is there."""
        return None

    def dismiss(self) -> None:
        """Lets all ranks go, however far the run has come."""
        if self._transport is not None:
            self._transport.close(0, self._config.parallel.global_cfg.link_seconds)
        self._world.dismiss()

    @property
    def _courier(self) -> Courier:
        assert self._transport is not None
        return self._transport.courier

    def last_words(self, home: str) -> str:
        """The end of its log."""
        return last_words(self._logs / f"{home}.log", self._begins.get(home, 0))
