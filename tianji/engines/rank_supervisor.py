"""Supervision in the MPI engine: an actor that is lost is replaced, while the others go on.

Rank 0 has MPI start another process on the same machine. That one loads its libraries, and then
all who had talked to the lost one let it in: their channels stay open meanwhile. What the lost one
had sent is there; its counts are those of its last report. Where MPI cannot, training goes on
without it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tianji import __version__
from tianji.config import Config
from tianji.core.child import command_for
from tianji.core.counts import Count
from tianji.core.errors import SAYS_MISTAKE, SAYS_SPENT, TianJiError
from tianji.engines.restart_budget import RestartBudget
from tianji.machine import mpirun
from tianji.observe.sinks import note
from tianji.observe.watch import ProcessFault, Watch
from tianji.roles.role_specs import LAUNCHER, Kind, roles_of
from tianji.transports.wire import Note, Word

if TYPE_CHECKING:  # MPI is loaded by those who are in an MPI job
    from tianji.engines.ranks import Ranks
    from tianji.transports.cluster import ClusterTransport
    from tianji.transports.mpi import Newcomer, World

HELLO_SECONDS = 60.0  # for a new process to come up
LOAD_SECONDS = 300.0  # for it to load its libraries
MOST_SECONDS = 600.0  # for all of it: MPI itself knows no limit
KNOWN_SECONDS = 5.0  # for the courier to know it
LOOK_SECONDS = 0.002
ENTRY = "tianji.engines.newcomer"


def replaced_homes(config: Config) -> list[str]:
    """The processes that are replaced: those of actors, unless another role acts for them."""
    parallel = config.parallel
    if not parallel.global_cfg.restarts or parallel.actor_cfg.inference:
        return []
    return [role.home for role in roles_of(config) if role.kind is Kind.ACTOR]


@dataclass
class RankCharge:
    """An actor that is looked after."""

    home: str
    budget: RestartBudget
    life: int = 0  # how often it was replaced
    first_words: str = ""  # that any life of it left in its log
    fault: ProcessFault | None = None  # from its loss until its next life has reported
    due: float = 0.0  # when it is replaced
    seen: int = 0  # the last order that was given while it was there
    done: float = 0.0  # messages sent, by the beginning of this life
    n_heard: int = 0  # reports
    replacing: Replacing | None = None


class RankSupervisor:
    """Replaces actors that are lost, as long as there is a budget for it."""

    def __init__(
        self, world: World, config: Config, ranks: Ranks, transport: ClusterTransport, watch: Watch
    ) -> None:
        self._world, self._ranks = world, ranks
        self._transport, self._watch = transport, watch
        most = config.parallel.global_cfg.restarts
        homes = [home for home in replaced_homes(config) if transport.bridge_of(home)]
        self._charges = [RankCharge(home, RestartBudget(most)) for home in homes]
        ranks.guarded |= set(homes)
        self._first = dict(ranks.ranks)  # which MPI started, and knows the machines of
        self._newest = max(ranks.ranks.values())  # number of a process
        self._meetings: dict[str, str] = {}  # where those who came later hand out memory
        self._one_at_a_time = threading.Lock()  # MPI lets one in after the other
        self._closed = False
        self.ordered = 0  # the newest checkpoint that was asked for

    def look(self, ended: Callable[[str], bool]) -> list[str]:
        """Sees who is lost and who is back; what is to be told of it."""
        if self._closed:
            return []
        now, told = time.monotonic(), []
        for charge in self._charges:
            if charge.replacing is not None:
                told += self._follow(charge, charge.replacing, now)
            elif charge.due:
                if now >= charge.due and not ended(charge.home) and self._is_next(charge):
                    charge.replacing = self._newcomer(charge)
            elif charge.home in self._ranks.guarded:
                told += self._see(charge, now, ended)
        return told

    def awaits(self, ended: Callable[[str], bool]) -> bool:
        """Whether somebody is to come back, if every process is gone."""
        away = [charge.home for charge in self._charges if charge.due]
        return not self._closed and any(not ended(home) for home in away)

    def close(self) -> list[str]:
        """The stream ends: nobody is replaced any more, and nobody waits for those who are away.

        Their channels are closed here, so nobody is left for whoever asks.
        """
        self._closed = True
        for charge in self._charges:
            self._close(charge.home)
        return []

    def _is_next(self, charge: RankCharge) -> bool:
        """Whether nobody else is on the way to its machine, who could have that one's memory."""
        on_the_way = [other.home for other in self._charges if other.replacing is not None]
        return self._machine(charge.home) not in map(self._machine, on_the_way)

    def _machine(self, home: str) -> str:
        return self._transport.machine(self._first[home])

    def _see(self, charge: RankCharge, now: float, ended: Callable[[str], bool]) -> list[str]:
        """Whether it is lost, or back."""
        status, how = self._ranks.departure(charge.home)
        if not how:
            self._listen(charge)
            return []
        if ended(charge.home):
            return []
        at_once = bool(status) and not charge.life and not self._n_sent(charge)
        if at_once or status in (SAYS_SPENT, SAYS_MISTAKE):  # the next one would fare no better
            self._ranks.guarded.discard(charge.home)
            return []
        return self._lose(charge, how, now)

    def _listen(self, charge: RankCharge) -> None:
        heard = self._watch.heard[charge.home]
        if heard == charge.n_heard:
            return
        charge.n_heard = heard
        if charge.fault is not None:
            seconds = self._watch.progress.elapsed(time.monotonic()) - charge.fault.seconds
            charge.fault.away_seconds, charge.fault = round(seconds, 3), None
            note(f"{self._ranks.named(charge.home)} is back after {seconds:.1f} s")

    def _lose(self, charge: RankCharge, how: str, now: float) -> list[str]:
        home, words = charge.home, self._ranks.last_words(charge.home)
        if not charge.budget.spend(now, self._n_sent(charge) > charge.done):
            self._give_up(charge)  # what else there is to say, `Ranks.lost` says
            return [f"{home} was replaced as often as global_cfg.restarts allows within an hour"]
        said = "" if charge.first_words or not words else f"; its last words:\n{words}"
        charge.first_words = charge.first_words or words
        charge.due, charge.seen = now + charge.budget.pause, self.ordered
        progress = self._watch.poll()
        charge.fault = ProcessFault(home, how, words, round(progress.elapsed(now), 3))
        self._watch.replace(home, {home: progress.counts[home]}, charge.fault)
        charge.life += 1
        return [f"{self._ranks.named(home)} {how}; it is replaced{said}"]

    def _newcomer(self, charge: RankCharge) -> Replacing:
        """Begins to replace it."""
        home, ranks = charge.home, self._ranks
        charge.done = self._n_sent(charge)
        self._newest += 1
        old, number = ranks.ranks[home], self._newest
        mate = self._mate(home)
        about = {
            "number": number,
            "bridge": self._transport.bridge_of(home),
            "host": mate,  # which has the memory that the processes of its machine share
            "hosts": {rank: self._transport.machine(rank) for rank in ranks.ranks.values()}
            | {number: self._transport.machine(old)},
            "meetings": {ranks.ranks[mate]: self._meeting(mate)} if mate != home else {},
        }
        brief = self._ranks.description | {
            "ranks": ranks.ranks | {home: number},
            "newcomer": about,
            "life": charge.life,
            "seen": charge.seen,
            "counts": {home: self._watch.progress.counts[home].tolist()},
        }
        found = Replacing(self, self._world, charge, brief)
        found.start()
        return found

    def _mate(self, home: str) -> str:
        """Who has the memory that the processes of a machine share: itself if it is alone there."""
        ranks, machine = self._ranks, self._machine(home)
        there = [name for name in ranks.ranks if self._machine(name) == machine]
        return next((name for name in there if name != home and ranks.is_there(name)), home)

    def _meeting(self, mate: str) -> str:
        return self._meetings.get(mate) or self._world.meetings[self._ranks.ranks[mate]]

    def _follow(self, charge: RankCharge, replacing: Replacing, now: float) -> list[str]:
        """Sees whether a new process is there, or could not be had."""
        if replacing.is_alive() and now < replacing.due:
            return []
        charge.replacing = None
        if replacing.problem:
            return self._again(charge, replacing, now)
        charge.due, charge.n_heard = 0.0, self._watch.heard[charge.home]
        self._meetings[charge.home] = replacing.meeting
        self._ranks.follow(charge.home, replacing.number)
        return []

    def _again(self, charge: RankCharge, replacing: Replacing, now: float) -> list[str]:
        """Whoever was to replace it was lost too, or MPI cannot, and never will."""
        if replacing.is_final or not charge.budget.spend(now, False):
            self._give_up(charge)
            return [f"{charge.home} could not be replaced: {replacing.problem}"]
        charge.due = now + charge.budget.pause
        note(f"{charge.home} is not replaced yet: {replacing.problem}")
        return []

    def _give_up(self, charge: RankCharge) -> None:
        """From now on it is lost for good, and so is told."""
        charge.due = 0.0
        if charge.fault is not None:
            self._watch.give_up(charge.fault)
        self._ranks.guarded.discard(charge.home)
        self._ranks.given_up.add(charge.home)
        self._close(charge.home)

    def _close(self, home: str) -> None:
        """Ends the channels of one that is lost, or will be, here and with all who talk to it."""
        old, courier = self._ranks.ranks[home], self._transport.courier
        courier.run(lambda: courier.close_for_good(old))
        for rank in self._transport.bridge_of(home):
            if rank:
                courier.say(rank, Note(Word.GONE, number=old))

    def _n_sent(self, charge: RankCharge) -> float:
        return float(self._watch.progress.counts[charge.home][Count.PUSHED])

    def enlist(self, replacing: Replacing) -> None:
        """Has a new process come, and all let it in; the thread of `replacing` calls this."""
        ranks = self._ranks
        with self._one_at_a_time:
            ranks.skip_log(replacing.home)
            newcomer = self._world.start_newcomer(
                command(ranks.description), self._first[replacing.home]
            )
        replacing.is_final = False  # whatever goes wrong now need not do so again
        try:
            self._prepare(newcomer, replacing)
            with self._one_at_a_time:
                self._let_in(newcomer, replacing)
        except Exception:
            newcomer.say(1, {"leave": True})  # if it is there
            raise
        replacing.problem = ""

    def _prepare(self, newcomer: Newcomer, replacing: Replacing) -> None:
        """Has it load what it needs."""
        hello = newcomer.hear(1, HELLO_SECONDS)
        if hello is None or hello.get("version of tianji") != __version__:
            raise TianJiError("the new process did not come up")
        replacing.meeting = hello["meeting"]
        newcomer.say(1, self._ranks.orders[replacing.home])
        newcomer.say(1, {"brief": replacing.brief})
        answer = newcomer.hear(1, LOAD_SECONDS)
        if answer is None or answer["trouble"]:
            raise TianJiError("it did not begin" if answer is None else answer["trouble"])

    def _let_in(self, newcomer: Newcomer, replacing: Replacing) -> None:
        if self._closed:
            raise TianJiError("the run is over")
        self._invite(replacing)
        newcomer.say(1, {"begin": True})
        self._transport.let_in(replacing.home, replacing.number, newcomer)
        newcomer.settle()
        deadline = time.monotonic() + KNOWN_SECONDS
        while replacing.number not in self._transport.courier.heard_at:
            if time.monotonic() > deadline:
                raise TianJiError("the courier does not know it")
            time.sleep(LOOK_SECONDS)

    def _invite(self, replacing: Replacing) -> None:
        """Tells those who are to let it in, and whoever has the memory of its machine."""
        mate = replacing.brief["newcomer"]["host"]
        if mate == LAUNCHER:
            self._transport.hand_out()
        elif mate != replacing.home:
            self._transport.courier.say(self._ranks.ranks[mate], Note(Word.GUEST))
        self._transport.invite(replacing.home, replacing.number)


class Replacing(threading.Thread):
    """Replaces one process, beside the run."""

    def __init__(
        self, supervisor: RankSupervisor, world: World, charge: RankCharge, brief: Mapping[str, Any]
    ) -> None:
        super().__init__(name=f"replacing {charge.home}", daemon=True)
        self._supervisor = supervisor
        self.home, self.brief = charge.home, dict(brief)
        self.number: int = brief["newcomer"]["number"]
        self.meeting = ""
        self.problem = "the attempt broke off"  # what is wrong, until nothing is
        self.is_final = True  # what went wrong would go wrong again
        self.due = time.monotonic() + MOST_SECONDS

    def run(self) -> None:
        """Notes what went wrong, if something did."""
        try:
            self._supervisor.enlist(self)
        except Exception as error:  # the top of the thread: `problem` is told
            self.problem = str(error) or repr(error)


def command(description: Mapping[str, Any]) -> list[str]:
    """What a new process runs: MPI hands this one's environment on to the ranks alone."""
    known = {name: value for name, value in mpirun.forwarded().items() if name != mpirun.STATUS}
    words = [f"{name}={value}" for name, value in known.items()]
    folder = os.path.dirname(description["checkpoints"])  # for who looks at a list of processes
    return ["env", "-u", mpirun.STATUS, *words, *command_for(ENTRY), folder]
