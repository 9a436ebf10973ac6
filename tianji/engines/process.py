"""Every role in a process of its own, over shared memory: the engine for one machine.

The launcher starts the children first and works out sizes while they load their libraries; then it
hands each its description. From there on it only watches: it is on no path that data takes, and
training goes on while it sleeps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tianji import resources
from tianji.channel import Inbox, Outbox
from tianji.checkpoint import Checkpoint
from tianji.engines.crew import LOOK_SECONDS, Crew
from tianji.engines.loop import ProcessPorts, transport_class
from tianji.resources import Share
from tianji.roster import (
    LAUNCHER,
    Kind,
    evaluator_of,
    group_of,
    homes_of,
    role_name,
    roles_of,
    weights_of,
)
from tianji.saving import order, order_last
from tianji.status import Status
from tianji.topology import Job, channels_of, is_private
from tianji.watch import Limits, Progress, Watch
from tianji.weights import Saved

GRACE_SECONDS = 7.0  # for children to end by themselves


class ProcessEngine:
    """Runs a job with a crew, over shared memory or a transport of the user's."""

    name = "process"

    def __init__(
        self,
        job: Job,
        crew: Crew,
        folder: Path,
        shares: dict[str, Share],
        resumed: Checkpoint | None = None,
    ) -> None:
        self._crew = crew
        self._job = job
        homes = homes_of(job.config)
        specs = [
            spec
            for spec in channels_of(job)
            if not any(is_private(spec, homes, home) for home in homes.values())
        ]
        self._shared = specs
        self.transport = transport_class(job).create(specs, homes, (crew.memory, crew.events))
        ports = ProcessPorts(LAUNCHER, job, self.transport)
        self._control = ports.outbox("control")
        self._orders = ports.outbox("orders")
        self._weights = [ports.inbox(weights_of(group)) for group in range(job.config.n_groups)]
        self.watch = Watch(job, ports)
        self.troubles: list[str] = []  # what training survived, for whoever looks on
        self.evaluations: Inbox | None = None
        self._evaluate: Outbox | None = None
        if evaluator_of(job.config) is not None:
            self.evaluations, self._evaluate = ports.inbox("evaluations"), ports.outbox("evaluate")
        self._description = job.to_json() | {
            "transport": self.transport.describe(),
            "threads": {home: share.threads for home, share in shares.items()},
            "checkpoints": str((folder / "checkpoints").resolve()),
            "resumed": None if resumed is None else str(resumed.folder.resolve()),
        }
        crew.brief(self._description)

    def train(
        self,
        limits: Limits,
        tick: Callable[[Progress], None] = lambda _: None,
        check: Callable[[], None] = lambda: None,
    ) -> Status:
        """Watches until the stream ends or a limit is reached; returns the status of the run.

        `check` may raise at every look.
        """
        status = None
        while self._crew.still_running():
            check()
            self._crew.check(self._ended)
            self._look_beside()
            progress = self.watch.poll()
            tick(progress)
            status = limits.reached(progress)
            if status:
                break
            time.sleep(LOOK_SECONDS)
        self.stop()
        self._crew.check(self._ended)
        return status or limits.reached(self.watch.progress) or Status.FINISHED

    def _look_beside(self) -> None:
        for home, words in self._crew.lost():
            self.troubles.append(f"{home} has failed, and training goes on without it:\n{words}")

    def order(self, number: int, largest_store: int) -> None:
        """Asks every role to write its part of checkpoint `number`."""
        order(self._orders, number, largest_store)

    def evaluate(self, number: int) -> None:
        """Asks the evaluator for an evaluation; the first time it is started for it."""
        evaluator = evaluator_of(self._job.config)
        assert evaluator is not None and self._evaluate is not None
        self._evaluate.push({"number": np.asarray(number)}, 0)
        if number == 1:
            share = Share(resources.available_cores(), 1)
            try:
                self._crew.start_beside(evaluator.home, share, self._description)
            except OSError as error:
                self.troubles.append(f"{evaluator.home} could not be started: {error}")

    def stop(self) -> None:
        """Ends the stream, and waits for the children to follow it."""
        order_last(self._orders, self._job.config)
        self._control.close()
        for role in roles_of(self._job.config):
            if role.kind is Kind.LEARNER and self._crew.gone(role.home):
                self._close_ends(role.name)
        deadline = time.monotonic() + GRACE_SECONDS
        while self._crew.still_running() and time.monotonic() < deadline:
            self.watch.poll()  # episodes keep coming; nobody must be held up by a full channel
            time.sleep(LOOK_SECONDS / 4)
        self.watch.poll()
        for home in self._crew.still_running():
            print(f"tianji: {home} did not end within {GRACE_SECONDS:.0f} s", file=sys.stderr)

    def _close_ends(self, learner: str) -> None:
        """What a learner that has died cannot do any more, so that nobody waits for it."""
        for spec in self._shared:
            if spec.source == learner:
                self.transport.outbox(spec.name).close()
            elif spec.targets == (learner,):
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
