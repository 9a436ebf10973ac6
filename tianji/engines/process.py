"""Every role in a process of its own, over shared memory: the engine for one machine.

The launcher starts the children first and works out sizes while they load their libraries; then it
hands each its description. From there on it only watches: it is on no path that data takes, and
training goes on while it sleeps.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from tianji.config import Config
from tianji.engines.loop import Ports, transport_class
from tianji.errors import TianJiError
from tianji.resources import Share
from tianji.topology import LAUNCHER, Job, channels_of, homes_of, is_private, roles_of
from tianji.transports.shm import ShmTransport
from tianji.watch import Limits, Progress, Watch
from tianji.worker import USER_MISTAKE

LOOK_SECONDS = 0.02  # from one look at the children to the next
GRACE_SECONDS = 5.0  # for children to end by themselves once the stream was closed
LAST_LINES = 40  # of a failed role's log that are shown


class RoleFailed(Exception):
    """A role ended before the run did; the text holds its name and its own last words."""

    def __init__(self, home: str, status: int, words: str) -> None:
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else "failed"
        super().__init__(f"{home} {how}" + (f":\n{words}" if words else ""))
        self.users_mistake = status == USER_MISTAKE
        self.words = words


class Crew:
    """The child processes of one run."""

    def __init__(self, config: Config, shares: dict[str, Share], logs: Path) -> None:
        homes = homes_of(config)
        names = dict.fromkeys(role.home for role in roles_of(config))
        self.reserved = ShmTransport.reserve([LAUNCHER, *names])
        memory, events = self.reserved
        self._logs = logs
        self._files: list[IO[bytes]] = []
        self.processes = {
            name: self._start(name, shares[name], (memory, *events.values())) for name in names
        }
        self.homes = homes

    def _start(
        self, name: str, share: Share, descriptors: tuple[int, ...]
    ) -> subprocess.Popen[bytes]:
        log = (self._logs / f"{name}.log").open("wb")
        self._files.append(log)
        return subprocess.Popen(
            [sys.executable, "-m", "tianji.worker", name, name.partition("-")[0]],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=descriptors,
            env=os.environ | share.environment() | {"TIANJI_LAUNCHER": str(os.getpid())},
        )

    def brief(self, description: dict[str, object]) -> None:
        """Hands every child what it was waiting for."""
        text = json.dumps(description).encode()
        for process in self.processes.values():
            assert process.stdin is not None
            try:
                process.stdin.write(text)
                process.stdin.close()
            except BrokenPipeError:
                pass  # it has died: the next look says how

    def check(self) -> None:
        """Raises if a child has failed."""
        for name, process in self.processes.items():
            status = process.poll()
            if status:
                raise RoleFailed(name, status, self._last_words(name))

    def running(self) -> bool:
        """Whether any child is still there."""
        return any(process.poll() is None for process in self.processes.values())

    def _last_words(self, name: str) -> str:
        lines = (self._logs / f"{name}.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])

    def dismiss(self, grace_seconds: float = 0.0) -> None:
        """Ends every child: waits for `grace_seconds`, then kills."""
        deadline = time.monotonic() + grace_seconds
        for process in self.processes.values():
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
        while self.running() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        for process in self.processes.values():
            process.kill()
            process.wait()
        for log in self._files:
            log.close()


class ProcessEngine:
    """Runs a job with a crew, over shared memory or a transport of the user's."""

    name = "process"

    def __init__(self, job: Job, crew: Crew, folder: Path) -> None:
        self._crew = crew
        homes = homes_of(job.config)
        specs = [
            spec
            for spec in channels_of(job)
            if not any(is_private(spec, homes, home) for home in crew.processes)
        ]
        self.transport = transport_class(job).create(specs, homes, crew.reserved)
        ports = Ports(LAUNCHER, job, self.transport)
        self._control = ports.outbox("control")
        self.watch = Watch(job, ports)
        about = {"transport": self.transport.describe(), "folder": str(folder.resolve())}
        crew.brief(job.to_json() | about)

    def train(self, limits: Limits, tick: Callable[[Progress], None] = lambda _: None) -> str:
        """Watches until the stream ends or a limit is reached; returns the status of the run."""
        status = None
        while self._crew.running():
            self._crew.check()
            progress = self.watch.poll()
            tick(progress)
            status = limits.reached(progress)
            if status:
                break
            time.sleep(LOOK_SECONDS)
        self.stop()
        self._crew.check()
        self.watch.poll()
        return status or limits.reached(self.watch.progress) or "finished"

    def stop(self) -> None:
        """Ends the stream and waits for the children to follow it to its end."""
        self._control.close()
        deadline = time.monotonic() + GRACE_SECONDS
        while self._crew.running() and time.monotonic() < deadline:
            self.watch.poll()  # episodes keep coming; nobody must be held up by a full channel
            time.sleep(LOOK_SECONDS / 4)


def refuse_platform() -> None:
    """Raises where processes cannot share memory the way this engine needs."""
    if not sys.platform.startswith("linux") or not hasattr(os, "eventfd"):
        raise TianJiError("the process engine needs Linux: use --engine local here")
