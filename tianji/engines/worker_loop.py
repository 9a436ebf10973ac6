"""The inside of a worker process: turns for its roles, and sleep when none has anything to do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tianji.core.channel import Carrier, ChannelSpec, Inbox, Outbox, Transport
from tianji.core.checkpoint import Checkpoint
from tianji.core.counts import Count, whole_of
from tianji.core.imports import load_class
from tianji.engines import role_thread
from tianji.engines.role_thread import Apart
from tianji.job.advice import Listener
from tianji.job.job import Job
from tianji.job.wiring import channels_of, is_private
from tianji.machine.resources import Share
from tianji.roles.episodes import Clock
from tianji.roles.role import Role
from tianji.roles.role_specs import Kind, homes_of, kind_of
from tianji.roles.saving import Saver
from tianji.transports.local import LocalTransport
from tianji.transports.shm import ShmTransport

if TYPE_CHECKING:
    from tianji.core.alarm import HangAlarm
    from tianji.observe.replay_record import ReplayRecording

PULSE_SECONDS = 0.05  # between two reports
NAP_SECONDS = 0.02  # longest sleep of a role that nobody woke: insurance, and for first weights
REST_SECONDS = 0.05  # from one look of a paused role to the next; nobody rings for it meanwhile


class ProcessPorts:
    """The channel ends of one process: shared with other processes, or private to this one."""

    def __init__(self, home: str, job: Job, shared: Carrier) -> None:
        homes = homes_of(job.config)
        private = [spec for spec in channels_of(job) if is_private(spec, homes, home)]
        self._names = {spec.name for spec in private}
        self._private = LocalTransport(private)
        self.shared = shared

    def outbox(self, name: str) -> Outbox:
        """The sending end of a channel."""
        return (self._private if name in self._names else self.shared).outbox(name)

    def inbox(self, name: str) -> Inbox:
        """A receiving end of a channel."""
        return (self._private if name in self._names else self.shared).inbox(name)


def transport_class(job: Job) -> type[Transport]:
    """What carries messages between processes: shared memory, or a class of the user's."""
    name = job.config.parallel.global_cfg.transport
    return load_class(name, job.config.folder) if name else ShmTransport


def shared_channels(job: Job) -> list[ChannelSpec]:
    """The channels whose ends are in different processes."""
    homes = homes_of(job.config)
    places = set(homes.values())
    specs = channels_of(job)
    return [spec for spec in specs if not any(is_private(spec, homes, home) for home in places)]


def description_of(
    job: Job, folder: Path, shares: Mapping[str, Share], resumed: Checkpoint | None
) -> dict[str, Any]:
    """What every worker must know of a run."""
    return job.to_json() | {
        "threads": {home: share.threads for home, share in shares.items()},
        "checkpoints": str((folder / "checkpoints").resolve()),
        "resumed": None if resumed is None else str(resumed.folder.resolve()),
    }


def attach(job: Job, description: dict[str, Any], home: str) -> ProcessPorts:
    """The channel ends of a worker process."""
    return ProcessPorts(home, job, transport_class(job).attach(description, home))


class Loop:
    """Gives the roles of one process their turns, and sleeps when none has anything to do."""

    def __init__(
        self,
        roles: list[Role],
        ports: ProcessPorts,
        saver: Saver | None = None,
        clock: Clock = time.monotonic,
        listener: Listener | None = None,
        recording: ReplayRecording | None = None,
        alarm: HangAlarm | None = None,  # where nobody else can see a step that hangs
    ) -> None:
        self._roles = roles
        self._turns = roles  # those that are taken here, one after the other
        self._rider = _rider(roles)
        self._apart: Apart | None = None  # the rider's turns, when they are taken elsewhere
        self._ports = ports
        self._saver = saver
        self._listener = listener
        self._recording = recording
        self._alarm = alarm
        self._clock = clock
        self._reports = [ports.outbox(f"report {role.name}") for role in roles]
        self._next_pulse = 0.0
        self._began = 0.0  # so that all that was spent since then adds up
        self._sent_before = 0.0  # messages, by earlier lives

    def run(self) -> None:
        """Returns when all roles are done."""
        now = self._clock()
        for role in self._roles:
            role.counts[Count.READY_AT] = now
        self._began = time.monotonic() - whole_of([role.counts for role in self._roles])
        self._sent_before = self._n_sent()
        transport = self._ports.shared
        try:
            while not all(role.done for role in self._roles):
                if self._rider is not None and self._rider.apart is (self._apart is None):
                    self._move(self._rider)
                if self._turn():
                    continue
                if all(role.paused for role in self._roles):
                    self._rest()
                    continue
                transport.arm()
                if self._turn():  # what came before the bell was armed
                    transport.disarm()
                    continue
                began, why = time.monotonic(), [role.waits_for() for role in self._turns]
                transport.wait(NAP_SECONDS if self._apart is None else role_thread.NAP_SECONDS)
                self._idle(time.monotonic() - began, why)
            if self._saver is not None:
                self._saver.finish()
        finally:
            self._call_back()
            self._pulse()
            if self._recording is not None:
                self._recording.close()
            for role in self._roles:
                role.close()

    def _turn(self) -> bool:
        moved = False
        for role in self._turns:
            if role.done:
                continue
            began = time.monotonic()
            if role.step():
                moved = True
                now = time.monotonic()
                role.counts[Count.BUSY_SECONDS] += now - began
                if now > self._next_pulse:
                    self._pulse()
            else:
                role.tracer.idle()
        if self._apart is not None:
            self._apart.check()
            if moved:
                self._apart.tell()
        return moved

    def _move(self, rider: Role) -> None:
        """Gives the rider a thread of its own, or takes it back among the others."""
        if rider.apart:
            self._turns = [role for role in self._roles if role is not rider]
            self._apart = Apart(rider)
        elif (beside := self._apart) is not None:
            self._call_back()
            beside.check()  # the step that it was at is the last that could fail there

    def _call_back(self) -> None:
        """All turns are taken here again."""
        if self._apart is not None:
            self._apart.back()
        self._turns, self._apart = self._roles, None

    def _rest(self) -> None:
        """Sleeps without having been announced: weights that come wake nobody, and cost nobody."""
        began = time.monotonic()
        time.sleep(REST_SECONDS)
        for role in self._roles:
            role.counts[Count.PAUSED_SECONDS] += time.monotonic() - began
        self._pulse()

    def _idle(self, seconds: float, why: Sequence[Count]) -> None:
        for role, what in zip(self._turns, why, strict=True):  # a rider apart has its own time
            role.waited(seconds, what)
        if self._apart is not None:
            self._apart.tell()  # what woke this thread may be for the rider
        if time.monotonic() > self._next_pulse:
            self._pulse()

    def _pulse(self) -> None:
        if self._alarm is not None:
            self._alarm.put_off(self._n_sent() > self._sent_before)
        if self._apart is None:
            self._report()
        elif not all(role.settled for role in self._roles):
            self._next_pulse = 0.0  # in the middle of an update nobody waits for the rider
        else:
            began = time.monotonic()
            with self._apart.held():
                waited = time.monotonic() - began
                self._report()
            for role in self._turns:
                role.waited(waited, role.waits_for())

    def _n_sent(self) -> float:
        return sum(float(role.counts[Count.PUSHED]) for role in self._roles)

    def _account(self) -> None:
        """Time that is nobody's work, nor waiting, is overhead of all."""
        counted = whole_of([role.counts for role in self._roles])
        missing = time.monotonic() - self._began - counted
        for role in self._roles:
            role.counts[Count.OVERHEAD_SECONDS] += max(0.0, missing)

    def _report(self) -> None:
        if not all(role.done for role in self._roles):  # what follows is the end
            self._account()
        for role, outbox in zip(self._roles, self._reports, strict=True):
            outbox.push(role.report(), 0)
        self._next_pulse = time.monotonic() + PULSE_SECONDS
        if self._recording is not None:
            self._recording.flush()
        if self._saver is not None and not any(role.done for role in self._roles):
            self._saver.look()
            if not all(role.settled for role in self._roles):
                self._next_pulse = 0.0  # it could not look: again after the next step
            elif self._listener is not None:
                self._listener.look()


def _rider(roles: list[Role]) -> Role | None:
    """The buffer that shares a process with its learner, if this is that process."""
    kinds = [kind_of(role.name) for role in roles]
    return roles[kinds.index(Kind.BUFFER)] if {Kind.BUFFER, Kind.LEARNER} <= {*kinds} else None
