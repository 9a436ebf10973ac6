"""Supervision in the process engine: a process that is lost is replaced while the others go on.

Channels lie in memory that the lost one leaves behind, and so do its counters: the next one goes on
after the last whole message, and counts on. It is the next life of the same role, with seeds of its
own. Nobody waits for it meanwhile. The launcher looks at its children fifty times a second anyway;
one that hangs is found by its reports, which come twenty times a second.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tianji.config import Config
from tianji.core.alarm import hangs_after
from tianji.core.counts import Count, Vector
from tianji.core.errors import SAYS_MISTAKE, SAYS_SPENT
from tianji.engines.live_counts import live_counts
from tianji.engines.lost_process import RoleFailed, manner
from tianji.engines.restart_budget import LONGEST_PAUSE, RestartBudget
from tianji.engines.worker_processes import Crew
from tianji.job.job import Job
from tianji.observe.sinks import note
from tianji.observe.watch import ProcessFault, Watch
from tianji.roles.role_specs import Kind, kind_of, roles_of
from tianji.transports import ring
from tianji.transports.shm import ShmTransport

DUMP_SECONDS = 0.5  # from asking one that hangs for its stack to killing it
LOOK_SECONDS = 0.5  # of silence that one look counts at most: the launcher may have been stopped


@dataclass
class Charge:
    """A process that is looked after."""

    home: str
    counts: dict[str, Vector]  # of its roles, as they are at this moment
    budget: RestartBudget
    life: int = 0  # how often it was replaced
    first_words: str = ""  # that any life of it left in its log
    fault: ProcessFault | None = None  # while it is away
    due: float = 0.0  # when it is replaced, if it is away
    seen: int = 0  # the last order that was given while it was there
    begun: bool = False  # this life has reported
    done: float = 0.0  # by the beginning of this life
    n_heard: int = 0  # reports
    silence: float = 0.0  # seconds since the last one
    asked_at: float | None = None  # for its stack, by its silence

    @property
    def is_actor(self) -> bool:
        """Whether an actor lives there."""
        return kind_of(self.home) is Kind.ACTOR

    @property
    def n_done(self) -> float:
        """What it is there for, in all lives: samples learned from, or messages sent."""
        count = Count.CONSUMED if kind_of(self.home) is Kind.LEARNER else Count.PUSHED
        return float(self.counts[self.home][count])  # a process is named after its first role


class Supervisor:
    """Replaces processes that are lost, as long as there is a budget for it."""

    def __init__(self, job: Job, crew: Crew, transport: ShmTransport, watch: Watch) -> None:
        self._crew, self._transport, self._watch = crew, transport, watch
        self._budget = job.config.parallel.global_cfg.restarts
        self._step_seconds = job.config.environment.step_seconds
        homes: dict[str, dict[str, Vector]] = {}
        for role in roles_of(job.config):
            homes.setdefault(role.home, {})[role.name] = live_counts(transport, role.name)
        kinds = replaced_kinds(job.config)
        charged = [(home, counts) for home, counts in homes.items() if kind_of(home) in kinds]
        self._charges = [Charge(*each, RestartBudget(self._budget)) for each in charged]
        self._longest = 0.0  # seconds of silence that ended by themselves
        self._looked_at = time.monotonic()
        self._closed = False
        self.ordered = 0  # the newest checkpoint that was asked for

    def look(self, ended: Callable[[str], bool]) -> list[str]:
        """Sees who is lost, who hangs and who is back; what is to be told of it.

        Raises where a budget is spent. Who fails at once is left to `Crew.check`, and so is
        whoever goes when its stream has `ended`.
        """
        if self._closed:
            return []
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, LOOK_SECONDS), now
        told = []
        for charge in self._charges:
            home = charge.home
            if home in self._crew.away:
                if now >= charge.due and not ended(home):
                    self._replace(charge, now)
                continue
            status = self._crew.processes[home].poll()
            if status is None:
                self._crew.guarded.add(home)  # if it dies before `Crew.check` looks, it waits
                self._listen(charge, passed)
                continue
            self._crew.guarded.discard(home)
            if not ended(home) and not _is_mistake(charge, status):
                told.append(self._lose(charge, status, now))
        return told

    def awaits(self, ended: Callable[[str], bool]) -> bool:
        """Whether somebody is to come back, if every process is gone."""
        return not self._closed and not all(ended(charge.home) for charge in self._charges)

    def close(self) -> list[str]:
        """The stream ends: nobody is replaced any more. Those that had to be, and are not there.

        An actor that is not ready is not waited for, nor is who acts for it; a learner is, to save
        what it goes on from.
        """
        self._closed = True
        self._crew.guarded.clear()
        for charge in self._charges:
            saves = kind_of(charge.home) in (Kind.LEARNER, Kind.BUFFER)
            if charge.life and not charge.begun and not saves:
                self._crew.away.add(charge.home)
                self._crew.processes[charge.home].kill()
        return sorted(self._crew.away)

    def _lose(self, charge: Charge, status: int, now: float) -> str:
        home, words = charge.home, self._crew.last_words(charge.home)
        how = manner(status)
        if charge.asked_at is not None:
            how = hung(charge.begun, charge.asked_at)
        said = "" if charge.first_words or not words else f"; its last words:\n{words}"
        charge.first_words = charge.first_words or words
        if not charge.budget.spend(now, charge.n_done > charge.done):
            left = charge.first_words or "it left no word in its log"
            raise RoleFailed(
                f"{home} {how}, and was replaced {self._budget} times within an hour before "
                f"(global_cfg.restarts):\n{left}"
            )
        charge.due = now + charge.budget.pause
        charge.seen = self.ordered
        progress = self._watch.progress
        charge.fault = ProcessFault(home, how, words, round(progress.elapsed(now), 3))
        counts = {name: vector.copy() for name, vector in charge.counts.items()}
        self._watch.replace(home, counts, charge.fault)
        charge.n_heard = self._n_heard(charge)
        self._crew.away.add(home)
        if charge.is_actor:
            ring.leave(self._transport.block(f"trajectories {home}"))
        charge.life += 1
        return f"{home} {how}; it is replaced{said}"

    def _replace(self, charge: Charge, now: float) -> None:
        charge.done, charge.begun = charge.n_done, False
        charge.silence, charge.asked_at = 0.0, None
        try:
            self._crew.replace(charge.home, charge.life, charge.seen)
        except OSError as error:  # no more processes, no more memory: perhaps later
            charge.due = now + LONGEST_PAUSE
            note(f"{charge.home} could not be started: {error.strerror or error}")

    def _listen(self, charge: Charge, passed: float) -> None:
        """Notes that it is back, and whether it hangs."""
        if (heard := self._n_heard(charge)) != charge.n_heard:
            charge.n_heard = heard
            if charge.begun:
                self._longest = max(self._longest, charge.silence)
            charge.begun, charge.silence, charge.asked_at = True, 0.0, None
            if charge.fault is not None:
                self._tell_back(charge, charge.fault)
            return
        if not charge.is_actor:
            return  # an update may take long
        charge.silence += passed
        if charge.asked_at is None:
            if charge.silence > (limit := self._limit(charge)):
                charge.asked_at = limit
                self._crew.processes[charge.home].send_signal(signal.SIGUSR2)  # for its stack
        elif charge.silence > charge.asked_at + DUMP_SECONDS:
            self._crew.processes[charge.home].kill()

    def _n_heard(self, charge: Charge) -> int:
        return sum(self._watch.heard[name] for name in charge.counts)

    def _tell_back(self, charge: Charge, fault: ProcessFault) -> None:
        seconds = self._watch.progress.elapsed(time.monotonic()) - fault.seconds
        fault.away_seconds, charge.fault = round(seconds, 3), None
        note(f"{charge.home} is back after {seconds:.1f} s")

    def _limit(self, charge: Charge) -> float:
        """Seconds without a word after which it hangs."""
        has_begun = charge.life > 0 or charge.n_done > 0
        return hangs_after(self._step_seconds, self._longest, has_begun, charge.begun)


def replaced_kinds(config: Config) -> set[Kind]:
    """Whose processes are replaced.

    Learners that share a batch are one, and what is recorded can be repeated only up to a loss:
    there an actor may be lost, and whoever acts for it, and nobody else.
    """
    acting = {Kind.ACTOR, Kind.INFERENCE}
    if config.n_learners > 1 or config.exp.record:
        return acting
    return {*acting, Kind.BUFFER, Kind.LEARNER}


def hung(is_ready: bool, seconds: float) -> str:
    """How a process was lost that said nothing for so long."""
    what = "a step took more" if is_ready else "it was not ready after more"
    return f"hung: {what} than {seconds:.0f} s (environment.step_seconds)"


def _is_mistake(charge: Charge, status: int) -> bool:
    """Whether the next one would fare no better.

    It failed at once, has mended enough, or says itself that it is a mistake.
    """
    at_once = status > 0 and not charge.life and not charge.n_done
    return at_once or status in (SAYS_SPENT, SAYS_MISTAKE)
