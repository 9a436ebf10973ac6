"""The child processes of the process engine: started early, briefed late, never left behind."""

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
from tianji.core.child import command_for
from tianji.core.errors import TianJiError
from tianji.core.signals import signal_group
from tianji.engines.lost_process import failure, is_spare, last_words, manner, survived
from tianji.machine import resources
from tianji.machine.resources import Share
from tianji.roles.role_specs import Kind, homes_of, kind_of, roles_of
from tianji.transports.descriptors import close_all, pipe, reserve

WORKER = "tianji.engines.worker"  # what the children execute
LOOK_SECONDS = 0.02  # from one look at the children to the next
LEFT_SECONDS = 2.0  # for what a child's environments have started to end after it


class Crew:
    """The child processes of one run, and what they inherit."""

    def __init__(self, config: Config, logs: Path) -> None:
        self.homes = list(dict.fromkeys(role.home for role in roles_of(config)))
        self.memory, self.events = reserve(tuple(dict.fromkeys(homes_of(config).values())))
        try:
            self._watched, self._held = pipe()  # which ends with this process, by whatever
        except OSError:
            close_all((self.memory, *self.events.values()))
            raise
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.beside: dict[str, subprocess.Popen[bytes]] = {}  # called when they are needed
        self._config = config
        self._told: set[str] = set()  # those whose loss was told
        self._hung: dict[str, str] = {}  # those that were killed for it, and in what way
        self.away: set[str] = set()  # lost, and to be replaced
        self.guarded: set[str] = set()  # whose end the supervisor sees first
        self._logs = logs
        self._description = b""
        self._shares: dict[str, Share] = {}
        self._begins: dict[str, int] = {}  # where in its log, which is never overwritten
        self._files: dict[str, IO[bytes]] = {}
        self._asked: dict[str, int] = {}  # for its stacks, and how long its log was then
        self._groups: dict[subprocess.Popen[bytes], float] = {}  # when what is left is killed

    def start(self, home: str, share: Share) -> None:
        """Starts one child, which loads its libraries and waits for its description."""
        self.processes[home] = self._spawn(home, share)

    def call(self, home: str) -> str | None:
        """Starts a child that training does not depend on; what went wrong, if it did."""
        try:
            self.beside[home] = self._spawn(home, Share(resources.available_cores(), 1))
        except OSError as error:
            return f"could not be started: {error}"
        _hand(self.beside[home], self._description)
        return None

    def replace(self, home: str, life: int, seen: int) -> None:
        """Starts another child in the place of one that is lost, in its `life`th life after that.

        It has `seen` orders up to this one. Raises OSError where none can be started.
        """
        self.processes[home] = self._spawn(home, self._shares[home])
        about = json.loads(self._description) | {"life": life, "seen": seen}
        _hand(self.processes[home], json.dumps(about).encode())
        self.away.discard(home)

    def _spawn(self, home: str, share: Share) -> subprocess.Popen[bytes]:
        if (before := self._files.get(home)) is not None:
            before.close()
        self._shares[home] = share
        log = self._files[home] = (self._logs / f"{home}.log").open("ab")
        self._begins[home] = log.tell()
        about = {"TIANJI_LAUNCHER": str(os.getpid()), "TIANJI_LAUNCHER_PIPE": str(self._watched)}
        process = subprocess.Popen(
            [*command_for(WORKER), home],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=(self.memory, *self.events.values(), self._watched),
            env=os.environ | share.environment() | about,
            process_group=0,  # with all that its environments start
        )
        self._groups[process] = 0.0
        return process

    def brief(self, description: dict[str, object]) -> None:
        """Hands every child what it was waiting for."""
        self._description = json.dumps(description).encode()
        for process in self.processes.values():
            _hand(process, self._description)

    def check(self, ended: Callable[[str], bool]) -> None:
        """Raises if a child has failed, or has gone although its stream has not `ended`.

        Those that training goes on without are for `lost` to tell.
        """
        self._clear()
        for name, process in self.processes.items():
            status = process.poll()
            if name in self.away | self.guarded or (status and is_spare(name, self._config)):
                continue
            if status or (status == 0 and not ended(name)):  # in this order: it ends before they go
                raise failure(name, status, self.last_words(name))

    def still_running(self) -> list[str]:
        """The children that have not ended."""
        return [name for name, process in self.processes.items() if process.poll() is None]

    def release(self, close: Callable[[str], None]) -> None:
        """Closes what learners that have ended, and those that were lost, may have left open.

        Not of those that are replaced.
        """
        ended = [name for name, process in self.processes.items() if process.poll() is not None]
        for name in ended:
            if name in self._told or (
                kind_of(name) is Kind.LEARNER and name not in self.away | self.guarded
            ):
                close(name)

    def leaders(self) -> list[int]:
        """The process groups of those that have not ended."""
        return [process.pid for process in self._groups if process.returncode is None]

    def lost(self) -> list[tuple[str, str]]:
        """Those that failed or were killed since the last look, and training goes on without."""
        everyone = self.processes | self.beside
        gone = {name: status for name, process in everyone.items() if (status := process.poll())}
        spare = [name for name in gone if is_spare(name, self._config)]
        new = [name for name in spare if name not in self._told]
        self._told |= set(new)
        hows = {name: self._hung.get(name) or manner(gone[name]) for name in new}
        return [(name, survived(name, how, self.last_words(name))) for name, how in hows.items()]

    def give_up(self, home: str, how: str) -> None:
        """Kills a child that training does not depend on, because it hangs."""
        self._hung[home] = how
        self.beside[home].kill()

    def ask_for_stacks(self) -> None:
        """Has each child write its stacks into its log."""
        self._asked = {}
        for name, process in self.processes.items():
            if process.poll() is None and _answers(process.pid):
                self._asked[name] = os.fstat(self._files[name].fileno()).st_size
                process.send_signal(signal.SIGUSR2)

    def stacks(self) -> dict[str, str]:
        """What each child has written since it was asked."""
        return {name: last_words(self._logs / f"{name}.log", n) for name, n in self._asked.items()}

    def last_words(self, name: str) -> str:
        """The end of what a child has written into its log."""
        return last_words(self._logs / f"{name}.log", self._begins[name])

    def dismiss(self, grace_seconds: float = 0.0) -> None:
        """Ends every child: waits for `grace_seconds`, then kills."""
        deadline = time.monotonic() + grace_seconds
        everyone = [*self.processes.values(), *self.beside.values()]
        for process in everyone:
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
        while self.still_running() and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        for process in everyone:
            process.kill()
            process.wait()
        self._clear()
        while self._groups:
            time.sleep(LOOK_SECONDS)
            self._clear()
        for log in self._files.values():
            log.close()
        close_all((self.memory, *self.events.values(), self._watched, self._held))

    def _clear(self) -> None:
        """Tells what children that have ended had started to end too; later it is killed."""
        now = time.monotonic()
        for process, due in list(self._groups.items()):
            if process.returncode is None:
                continue
            number = signal.SIGTERM if not due else signal.SIGKILL if now >= due else 0
            if not signal_group(process.pid, number) or number == signal.SIGKILL:
                del self._groups[process]
            elif not due:
                self._groups[process] = now + LEFT_SECONDS


def _answers(pid: int) -> bool:
    """Whether SIGUSR2 makes a process write its stacks; one that is only starting would die of it.

    Linux tells which signals are caught.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line for line in text.splitlines() if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (signal.SIGUSR2 - 1) & 1)


def _hand(process: subprocess.Popen[bytes], text: bytes) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(text)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has died: the next look says how


def refuse_platform(engine: str = "process") -> None:
    """Raises where processes cannot share memory the way an engine needs."""
    if not sys.platform.startswith("linux") or not hasattr(os, "eventfd"):
        raise TianJiError(f"the {engine} engine needs Linux: use --engine local here")
