"""An engine whose roles live in other processes, on this machine (`process`) or several (`mpi`).

It only watches: it is on no path that data takes, and training goes on while it sleeps. The
processes are there before it is made, and load their libraries while sizes are worked out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tianji.core.algorithm import Saved
from tianji.core.channel import Carrier, Inbox, Outbox
from tianji.core.checkpoint import Checkpoint
from tianji.core.status import Status
from tianji.engines.accounts import missing_steps
from tianji.engines.evaluator_watch import EvaluatorWatch
from tianji.engines.live_counts import counts_channels
from tianji.engines.rank_supervisor import RankSupervisor, replaced_homes
from tianji.engines.stall import StallWatch
from tianji.engines.supervise import Supervisor
from tianji.engines.worker_loop import (
    ProcessPorts,
    description_of,
    shared_channels,
    transport_class,
)
from tianji.engines.worker_processes import LOOK_SECONDS, Crew
from tianji.job.advice import Advice, advise
from tianji.job.job import Job
from tianji.machine.resources import Share
from tianji.observe.limits import Limits
from tianji.observe.sinks import note
from tianji.observe.watch import Progress, Watch
from tianji.roles.role_specs import (
    LAUNCHER,
    Kind,
    evaluator_of,
    group_of,
    homes_of,
    kind_of,
    role_name,
    roles_of,
    weights_of,
)
from tianji.roles.saving import order, order_last
from tianji.transports.shm import ShmTransport

if TYPE_CHECKING:  # MPI is loaded by those who are in an MPI job
    from tianji.engines.ranks import Ranks
    from tianji.transports.mpi import World

GRACE_SECONDS = 7.0  # for the processes to end by themselves


class Processes(Protocol):
    """The processes that the roles live in."""

    def check(self, ended: Callable[[str], bool]) -> None:
        """Raises if one has failed, or has gone although its stream has not `ended`."""

    def lost(self) -> list[tuple[str, str]]:
        """Those that have failed since the last look without ending the run, and how."""

    def still_running(self) -> list[str]:
        """Those that have not ended."""

    def release(self, close: Callable[[str], None]) -> None:
        """Has what learners and lost ones had open closed, so that nobody waits for them."""

    def ask_for_stacks(self) -> None:
        """Has each write its stacks into its log."""

    def stacks(self) -> dict[str, str]:
        """What each has written since it was asked."""

    def call(self, home: str) -> str | None:
        """Sees to it that a process beside the training is there; what went wrong, if it did."""


class RemoteEngine:
    """Runs a job whose roles live in `processes`."""

    def __init__(
        self,
        name: str,
        job: Job,
        processes: Processes,
        transport: Carrier,
        shares: Mapping[str, Share],
    ) -> None:
        self.name = name
        self.shares = shares  # by process
        self._processes = processes
        self._job = job
        self.transport = transport
        ports = ProcessPorts(LAUNCHER, job, transport)
        self._control = ports.outbox("control")
        self._orders = ports.outbox("orders")
        self._advice = ports.outbox("advice")
        self._weights = [ports.inbox(weights_of(group)) for group in range(job.config.n_groups)]
        self.watch = Watch(job, ports)
        self.supervisor: Supervisor | RankSupervisor | None = (
            None  # where lost processes are replaced
        )
        self.evaluator_watch: EvaluatorWatch | None = None  # where it may be found to hang
        self.troubles: list[str] = []  # what training survived, for whoever looks on
        self.evaluations: Inbox | None = None
        self.evaluator_lost = False
        self._evaluate: Outbox | None = None
        if evaluator_of(job.config) is not None:
            self.evaluations, self._evaluate = ports.inbox("evaluations"), ports.outbox("evaluate")

    def train(
        self,
        limits: Limits,
        tick: Callable[[Progress], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> Status:
        """Watches until the stream ends or a limit is reached; returns the status of the run.

        `check` may raise at every look.
        """
        status, stall = None, StallWatch(self._processes)
        while self._processes.still_running() or self._awaits():
            check()
            self._look_after()
            progress = self.watch.poll()
            if (told := stall.look(progress)) is not None:
                self.troubles.append(told)
            tick(progress)
            status = limits.reached(progress)
            if status:
                break
            time.sleep(_pause(progress))
        self.stop()
        self._look_after()
        return status or limits.reached(self.watch.progress) or Status.FINISHED

    def _awaits(self) -> bool:
        return self.supervisor is not None and self.supervisor.awaits(self._ended)

    def _look_after(self) -> None:
        if self.supervisor is not None:
            self.troubles += self.supervisor.look(self._ended)
        if self.evaluator_watch is not None:
            self.evaluator_watch.look()
        self._processes.check(self._ended)
        lost = self._processes.lost()
        for home, words in lost:
            self.watch.lose(home)
            self.evaluator_lost |= kind_of(home) is Kind.EVALUATOR
            self.troubles.append(f"{home} {words}")
        if lost:
            self._processes.release(self._close_ends)

    def order(self, number: int, largest_store: int) -> None:
        """Asks every role to write its part of checkpoint `number`."""
        if self.supervisor is not None:
            self.supervisor.ordered = number
        order(self._orders, number, largest_store)

    def advise(self, advice: Advice) -> None:
        """Tells the roles what holds from now on."""
        advise(self._advice, roles_of(self._job.config), advice)

    def evaluate(self, number: int) -> None:
        """Asks the evaluator for an evaluation; it is called when it is asked first."""
        evaluator = evaluator_of(self._job.config)
        assert evaluator is not None and self._evaluate is not None
        self._evaluate.push({"number": np.asarray(number)}, 0)
        if number == 1 and (trouble := self._processes.call(evaluator.home)) is not None:
            self.troubles.append(f"{evaluator.home} {trouble}")

    def stop(self) -> None:
        """Ends the stream, and waits for the processes to follow it."""
        gone = [] if self.supervisor is None else self.supervisor.close()
        for outbox in (self._orders, self._control):  # the latter before the end that it tells of
            order_last(outbox, self._job.config)
        self._control.close()
        for home in gone:
            self._close_ends(home)
        self._processes.release(self._close_ends)
        deadline = time.monotonic() + GRACE_SECONDS
        while self._processes.still_running() and time.monotonic() < deadline:
            self.watch.poll()  # episodes keep coming; nobody must be held up by a full channel
            time.sleep(LOOK_SECONDS / 4)
        self._count(self.watch.poll())
        for home in self._processes.still_running():
            note(f"{home} did not end within {GRACE_SECONDS:.0f} s")  # if anybody listens still

    def _count(self, progress: Progress) -> None:
        """Compares what was sent with what was received; a resumed run began in between."""
        if progress.earlier_seconds or self._processes.still_running():
            return
        if isinstance(self.transport, ShmTransport):
            progress.missing_steps = missing_steps(self._job, self.transport)

    def _close_ends(self, home: str) -> None:
        """What a learner or a reducer that has died cannot do any more."""
        for spec in shared_channels(self._job):
            if spec.source == home:
                self.transport.outbox(spec.name).close()
            elif spec.targets == (home,):
                self.transport.inbox(spec.name).close()

    def abandon(self) -> None:
        """Ends the stream after an error of the launcher's own; the roles save what they have."""
        self.stop()

    def learned(self) -> Saved | None:
        """The weights that the first group published last, if it did."""
        newest = self._weights[0].take()
        if newest is None:
            return None
        return Saved(newest.arrays["weights"], newest.version, self.watch.progress.produced)

    def _ended(self, home: str) -> bool:
        """Whether the learner of a group has closed its stream, so that its roles may go."""
        if home == role_name(Kind.REDUCER):
            return all(weights.closed for weights in self._weights)
        return self._weights[group_of(home)].closed


def process_engine(
    job: Job, crew: Crew, folder: Path, shares: dict[str, Share], resumed: Checkpoint | None = None
) -> RemoteEngine:
    """Runs a job with a crew of children, over shared memory or a transport of the user's."""
    homes, reserved = homes_of(job.config), (crew.memory, crew.events)
    kind, specs = transport_class(job), shared_channels(job)
    survives = issubclass(kind, ShmTransport)  # what one that is lost had sent, and counted
    transport = kind.create(specs + counts_channels(job) * survives, homes, reserved)
    about = description_of(job, folder, shares, resumed)
    crew.brief(about | {"transport": transport.describe()})
    engine = RemoteEngine("process", job, crew, transport, shares)
    if not isinstance(transport, ShmTransport):
        return engine
    if job.config.parallel.global_cfg.restarts:
        engine.supervisor = Supervisor(job, crew, transport, engine.watch)
    if (evaluator := evaluator_of(job.config)) is not None:
        seconds = job.config.environment.step_seconds
        engine.evaluator_watch = EvaluatorWatch(evaluator, crew, transport, seconds)
    return engine


def mpi_engine(
    world: World,
    job: Job,
    ranks: Ranks,
    folder: Path,
    shares: dict[str, Share],
    resumed: Checkpoint | None = None,
) -> RemoteEngine:
    """Runs a job with the ranks of an MPI job that were gathered."""
    from tianji.transports.cluster import ClusterTransport

    ranks.brief(description_of(job, folder, shares, resumed))
    homes, away = homes_of(job.config), replaced_homes(job.config)
    transport = ClusterTransport(world, shared_channels(job), homes, ranks.ranks, LAUNCHER, away)
    transport.start()
    ranks.watch(transport)
    engine = RemoteEngine("mpi", job, ranks, transport, shares)
    engine.supervisor = RankSupervisor(world, job.config, ranks, transport, engine.watch)
    return engine


def _pause(progress: Progress) -> float:
    """Seconds until the next look: fewer while a run is young, which may be over in a second."""
    age = progress.elapsed(time.monotonic())
    return min(LOOK_SECONDS, max(LOOK_SECONDS / 2, age / 64))
