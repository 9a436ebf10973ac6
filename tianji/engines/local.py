"""All roles in one process, taking turns: for the debugger, for tests, and the same every time."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tianji.core.alarm import Alarm, alarmed
from tianji.core.algorithm import Saved
from tianji.core.channel import Inbox
from tianji.core.checkpoint import Checkpoint
from tianji.core.counts import Count
from tianji.core.signals import Interrupted
from tianji.core.state import State
from tianji.core.status import Status
from tianji.engines.lost_process import survived
from tianji.job.advice import Advice
from tianji.job.factory import build
from tianji.job.job import Job
from tianji.job.wiring import channels_of
from tianji.machine.resources import Share
from tianji.observe.limits import Limits
from tianji.observe.watch import Progress, Watch
from tianji.roles import Learner
from tianji.roles.role import Role
from tianji.roles.role_specs import evaluator_of, roles_of
from tianji.roles.saving import Saver, order, order_last, recall
from tianji.transports.local import LocalTransport

if TYPE_CHECKING:
    from tianji.observe.trace.recording import TraceRecording

ROUNDS_PER_LOOK = 64  # turns of every role from one look at the episodes to the next
CHANNELS = "channels"  # the part of a checkpoint that holds what is in flight


class LocalEngine:
    """Gives every role one step after the other.

    Nothing depends on the clock except `max_seconds`, so the same seed gives the same weights. A
    checkpoint is taken between two rounds and holds the channels too: resumed from it, a run goes
    on as if it had never stopped.
    """

    name = "local"

    def __init__(
        self, job: Job, folder: Path | None = None, resumed: Checkpoint | None = None
    ) -> None:
        self._config = job.config
        self._stopped = False
        self._alarm = Alarm()
        self.transport = LocalTransport(channels_of(job))
        specs = roles_of(job.config)
        with alarmed():  # every actor begins its first episodes
            self._training = [build(role, job, self.transport) for role in specs]
        self._recording: TraceRecording | None = None
        if folder is not None and job.config.exp.trace_seconds is not None:
            from tianji.observe.trace.recording import record

            self._recording = record(self._training, job.config, folder, self.name)
        self.roles: list[Role] = self._training.copy()
        self._learners = [role for role in self._training if isinstance(role, Learner)]
        evaluator = evaluator_of(job.config)
        if evaluator is not None:
            self.roles.append(build(evaluator, job, self.transport))
        self._reports = [self.transport.outbox(f"report {role.name}") for role in self.roles]
        self._orders = self.transport.outbox("orders")
        self.watch = Watch(job, self.transport)
        self.shares: dict[str, Share] = {}  # all roles share what this process has
        self.troubles: list[str] = []  # what training survived, for whoever looks on
        self.evaluations: Inbox | None = None
        self.evaluator_lost = False
        if evaluator is not None:
            self._evaluate = self.transport.outbox("evaluate")
            self.evaluations = self.transport.inbox("evaluations")
        self._rounds = 0  # since the last look
        self._saver: Saver | None = None
        if folder is not None:
            inbox = self.transport.inbox("orders")
            self._saver = Saver(self._training, inbox, folder / "checkpoints")
        if resumed is not None:
            self._resume(resumed)
            if self._recording is not None:
                self._recording.resumed(self._training)
        for role in self.roles:
            role.counts[Count.READY_AT] = time.monotonic()

    @property
    def learner(self) -> Learner:
        """The first learner of the first group, whose weights are kept."""
        return next(role for role in self.roles if isinstance(role, Learner))

    def train(
        self,
        limits: Limits,
        tick: Callable[[Progress], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> Status:
        """Runs until the stream ends or a limit is reached; returns the status of the run.

        `check` may raise between any two rounds, and the run can go on from there another day.
        """
        try:
            status = self._train(limits, tick, check)
        except Interrupted:  # between two rounds; whatever else may come, comes out of a step
            self._save_last(self._in_flight)
            raise
        finally:
            self._alarm.cancel()
            for role in self.roles:
                role.close()
            if self._recording is not None:
                self._recording.close()
        self._look()
        self.stop()
        return status or limits.reached(self.watch.progress) or Status.FINISHED

    def _train(
        self, limits: Limits, tick: Callable[[Progress], None], check: Callable[[], None]
    ) -> Status | None:
        while not all(role.done for role in self.roles):
            self._alarm.put_off()
            moved = False
            while self._rounds < ROUNDS_PER_LOOK:
                check()
                moved |= self._round()
                self._rounds += 1
            self._rounds = 0
            progress = self._look()
            tick(progress)
            if self._saver is not None:
                self._saver.look(self._in_flight)
            if status := limits.reached(progress):
                self._save_last(self._in_flight)
                return status
            assert moved, "no role has anything to do, and none is done"
        self._save_last(dict)  # the stream has ended: nothing is in flight
        return None

    def advise(self, advice: Advice) -> None:
        """Nothing: all roles share one process and one core."""

    def order(self, number: int, largest_store: int) -> None:
        """Asks every role to write its part of checkpoint `number`."""
        order(self._orders, number, largest_store)

    def evaluate(self, number: int) -> None:
        """Asks the evaluator for an evaluation."""
        self._evaluate.push({"number": np.asarray(number)}, 0)

    def stop(self) -> None:
        """Nothing runs beside this process; what was learned is whole."""
        self._stopped = True

    def abandon(self) -> None:
        """After an error out of the middle of a step there is nothing to keep."""

    def learned(self) -> Saved | None:
        """The learner's weights, unless it may have failed in the middle of an update."""
        if not self._stopped:
            return None
        learner, steps = self.learner, self.watch.progress.produced
        return Saved(learner.algorithm.weights(), learner.version, steps)

    def _save_last(self, more: Callable[[], dict[str, State]]) -> None:
        if self._saver is not None:
            order_last(self._orders, self._config)
            self._saver.finish(more)

    def _in_flight(self) -> dict[str, State]:
        return {CHANNELS: self.transport.state() | {"rounds": self._rounds}}

    def _resume(self, saved: Checkpoint) -> None:
        channels = saved.part(CHANNELS)
        if channels is not None and not self.transport.fits(channels):
            channels = None  # of a version whose messages were others
            self.troubles.append("what was in flight between the roles is lost: of another version")
        if self._config.parallel.buffer_cfg.device != "cpu":
            channels = None  # batches in flight were tickets for what is gone
        if channels is not None:
            self.transport.restore(channels)
            self._rounds = channels["rounds"]
        for role in self._training:
            recall(role, saved, in_flight=channels is not None)

    def _round(self) -> bool:
        """One step of every role, and then more until no update is in the middle.

        So learners finish a batch in the round in which they began it, and between two rounds
        everything can be saved.
        """
        moved = self._step(self.roles)
        while unsettled := [role for role in self._learners if not role.settled]:
            moved = self._step(unsettled)
            assert moved, "learners wait for each other's gradients"
        return moved

    def _step(self, roles: Sequence[Role]) -> bool:
        moved = False
        for role in roles:
            if role.done:
                continue
            began = time.perf_counter()
            try:
                did = role.step()
            except Exception as error:
                if role not in self._training:
                    self._do_without(role)
                    continue
                error.add_note(f"in {role.name}")
                raise
            if did:
                role.counts[Count.BUSY_SECONDS] += time.perf_counter() - began
            else:
                role.tracer.idle()
                role.waited(time.perf_counter() - began, role.waits_for())
            moved |= did
        return moved

    def _do_without(self, role: Role) -> None:
        """An evaluator that fails is no reason to end a run."""
        role.done = self.evaluator_lost = True
        words = traceback.format_exc().rstrip()
        self.troubles.append(f"{role.name} {survived(role.name, 'failed', words)}")

    def _look(self) -> Progress:
        for role, outbox in zip(self.roles, self._reports, strict=True):
            outbox.push(role.report(), 0)
        return self.watch.poll()
