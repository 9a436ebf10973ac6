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

from tianji.engines.crew import LOOK_SECONDS, Crew
from tianji.engines.loop import ProcessPorts, transport_class
from tianji.resources import Share
from tianji.roster import LAUNCHER, Kind, homes_of, role_name
from tianji.topology import Job, channels_of, is_private
from tianji.watch import Limits, Progress, Watch
from tianji.weights import save_final

GRACE_SECONDS = 5.0  # for children to end by themselves once the stream was closed


class ProcessEngine:
    """Runs a job with a crew, over shared memory or a transport of the user's."""

    name = "process"

    def __init__(self, job: Job, crew: Crew, folder: Path, shares: dict[str, Share]) -> None:
        self._crew = crew
        self._job = job
        self._folder = folder
        homes = homes_of(job.config)
        specs = [
            spec
            for spec in channels_of(job)
            if not any(is_private(spec, homes, home) for home in crew.processes)
        ]
        self.transport = transport_class(job).create(specs, homes, (crew.memory, crew.events))
        ports = ProcessPorts(LAUNCHER, job, self.transport)
        self._control = ports.outbox("control")
        self._weights = ports.inbox("weights")
        self.watch = Watch(job, ports)
        about = {
            "transport": self.transport.describe(),
            "threads": {home: share.threads for home, share in shares.items()},
        }
        crew.brief(job.to_json() | about)

    def train(self, limits: Limits, tick: Callable[[Progress], None] = lambda _: None) -> str:
        """Watches until the stream ends or a limit is reached; returns the status of the run."""
        status = None
        while self._crew.still_running():
            self._crew.check(self._ended)
            progress = self.watch.poll()
            tick(progress)
            status = limits.reached(progress)
            if status:
                break
            time.sleep(LOOK_SECONDS)
        self.stop()
        self._crew.check(self._ended)
        return status or limits.reached(self.watch.progress) or "finished"

    def stop(self) -> None:
        """Ends the stream, waits for the children to follow it, and keeps what was learned."""
        self._control.close()
        if self._crew.gone(role_name(Kind.LEARNER)):  # it cannot close its ends any more
            self.transport.outbox("weights").close()
            if role_name(Kind.BUFFER) in self._crew.processes:
                self.transport.inbox("batches").close()
        deadline = time.monotonic() + GRACE_SECONDS
        while self._crew.still_running() and time.monotonic() < deadline:
            self.watch.poll()  # episodes keep coming; nobody must be held up by a full channel
            time.sleep(LOOK_SECONDS / 4)
        self.watch.poll()
        for home in self._crew.still_running():
            print(f"tianji: {home} did not end within {GRACE_SECONDS:.0f} s", file=sys.stderr)
        if (newest := self._weights.take()) is not None:
            weights = newest.arrays["weights"]
            save_final(self._folder, weights, newest.version, self._job.config.agent.type)

    def _ended(self) -> bool:
        """Whether the learner has closed the stream, so that roles may go."""
        return self._weights.closed
