"""Starts mpirun and stays with it: signals in, the true exit status out, no process left behind.

mpirun kills its ranks half a second after SIGTERM, and hangs when a link is cut. So it gets a
session of its own, signals go straight to rank 0, and the status comes back in a file.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

from tianji.core.errors import USER_MISTAKE, TianJiError
from tianji.core.signals import ECHO_SECONDS, NUMBERS, ending_with
from tianji.machine.hostfile import check
from tianji.machine.mpirun import (
    LINK_SECONDS,
    RANK_0,
    SAID,
    SCRATCH,
    SETTINGS,
    SSH,
    STATUS,
    TERMINAL,
    command,
    is_spread,
)
from tianji.machine.mpirun_output import Banners, last_words, reason

LINGER_SECONDS = 5.0  # for mpirun to end once rank 0 has
ORPHAN_SECONDS = 30.0  # for rank 0 to write things down once mpirun has ended
STOP_SECONDS = 20.0  # for rank 0 on another host to end in order
KILL_SECONDS = 5.0  # for everything to go after a second signal, or after SIGTERM
READ_SECONDS = 1.0  # for the last words to arrive
POLL_SECONDS = 0.05
INTERRUPTED = (None, *(128 + number for number in NUMBERS))  # the status after a signal
CLEAR = b"\r\x1b[2K"  # the line that the cursor is on


def start(
    n: int,
    arguments: Sequence[str],
    hostfile: Path | None = None,
    hosts: Sequence[str] | None = None,
    link_seconds: float = LINK_SECONDS,
    quiet: bool = False,
) -> int:
    """Runs `arguments` as `n` ranks to their end; returns the exit status that rank 0 left."""
    names = hosts if hostfile is None else check(hostfile, n)
    with tempfile.TemporaryDirectory(prefix="tianji-mpi-") as folder:
        environment = _environment(Path(folder) / "status")
        job = MpirunJob(Path(folder), n, is_spread(hostfile, hosts))
        before = {number: signal.signal(number, job.note) for number in NUMBERS}
        try:
            words = command(n, arguments, hostfile, hosts, environment, link_seconds)
            job.begin(words, environment)
            if sys.stdout.isatty() and not quiet:
                job.announce(starting(n, names))
            return job.watch()
        finally:
            job.end()
            for number, handler in before.items():
                signal.signal(number, handler)


def _environment(status: Path) -> dict[str, str]:
    """This process's own, and what rank 0 must know."""
    environment = {**SETTINGS, **os.environ, STATUS: str(status), TERMINAL: "0"}
    environment.setdefault(SCRATCH, str(status.parent))  # one that is killed leaves nothing behind
    if not any("plm_ssh" in name for name in os.environ):  # an agent of one's own is no ssh
        environment |= SSH
    if sys.stdout.isatty():
        size = shutil.get_terminal_size()
        drawn = {TERMINAL: "1", "COLUMNS": str(size.columns), "LINES": str(size.lines)}
        environment |= drawn
    return environment


def starting(
    n: int, hosts: Sequence[str] | None, environment: Mapping[str, str] = os.environ
) -> str:
    """What is told until rank 0 says something: one line, whatever the width of the terminal."""
    where = environment.get("SLURM_JOB_NODELIST", "this machine")
    text = f"starting {n} ranks on {where if hosts is None else ', '.join(hosts)} ..."
    width = shutil.get_terminal_size().columns - 1
    return text if len(text) <= width else f"{text[: width - 4]} ..."


class MpirunJob:
    """One mpirun from its start to the last of its processes."""

    def __init__(self, folder: Path, n: int, spread: bool) -> None:
        self._folder = folder
        self._n = n
        self._spread = spread
        self._banners = Banners()
        self._process: subprocess.Popen[bytes] | None = None
        self._readers: list[threading.Thread] = []
        self._signals: list[int] = []  # noted, not yet passed on
        self._first: tuple[int, float] | None = None  # the first signal, and when it came
        self._kill_at = float("inf")
        self._announced = False  # a line that the first words take the place of
        self._speaking = threading.Lock()

    def begin(self, words: list[str], environment: dict[str, str]) -> None:
        """Starts mpirun in a session of its own: Ctrl-C is for this process alone."""
        self._process = process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            restore_signals=False,  # SIGPIPE stays ignored: mpirun outlives whoever listens
            preexec_fn=ending_with(os.getpid(), signal.SIGTERM),
        )
        sys.stdout.flush()
        for stream, fd in ((process.stdout, 1), (process.stderr, 2)):
            shown = (stream, partial(self._show, fd))
            reader = threading.Thread(target=self._banners.passing, args=shown, daemon=True)
            reader.start()
            self._readers.append(reader)

    def announce(self, line: str) -> None:
        """Shows a line until there is something else to show."""
        with self._speaking:
            _show(1, line.encode())
            self._announced = True

    def _show(self, fd: int, words: bytes) -> None:
        with self._speaking:
            if words and self._announced:
                self._announced = False
                _show(1, CLEAR)
            _show(fd, words)

    def note(self, number: int, frame: FrameType | None) -> None:
        """A signal came: `watch` passes it on. One that comes twice at once is one wish."""
        now = time.monotonic()
        if self._first is None:
            self._first = (number, now)
            self._signals.append(number)
        elif now - self._first[1] > ECHO_SECONDS:
            self._signals.append(number)
            self._kill_at = min(self._kill_at, now + KILL_SECONDS)

    def watch(self) -> int:
        """Waits for the end of mpirun and of rank 0; returns the true exit status."""
        process = self._process
        assert process is not None
        while process.poll() is None and time.monotonic() < self._kill_at:
            if self._status() is not None or self._rank_0_has_gone():
                self._kill_at = min(self._kill_at, time.monotonic() + LINGER_SECONDS)
            while self._signals:
                self._pass_on(self._signals.pop(0))
            time.sleep(POLL_SECONDS)
        self._wait_for_rank_0()
        return self._outcome()

    def _pass_on(self, number: int) -> None:
        """To rank 0 if it is here. mpirun passes SIGUSR1 to all ranks, and 0 alone heeds it."""
        assert self._process is not None
        if (rank_0 := self._rank_0()) is not None:
            _send(rank_0, number)
        else:  # it is on another host, or has not begun and has nothing to tidy up
            self._process.send_signal(signal.SIGUSR1 if self._spread else signal.SIGTERM)
            seconds = STOP_SECONDS if self._spread else KILL_SECONDS
            self._kill_at = min(self._kill_at, time.monotonic() + seconds)

    def _rank_0(self) -> int | None:
        """Its process on this host, once it has arrived."""
        try:
            host, pid = (self._folder / RANK_0).read_text().split()
        except OSError:
            return None
        return int(pid) if host == socket.gethostname() else None

    def _rank_0_has_gone(self) -> bool:
        rank_0 = self._rank_0()
        return rank_0 is not None and not _is_alive(rank_0)

    def _status(self) -> int | None:
        try:
            return int((self._folder / "status").read_text())
        except OSError:
            return None

    def _wait_for_rank_0(self) -> None:
        """When mpirun loses a host it ends at once, and rank 0 still writes down how far it got."""
        deadline = time.monotonic() + ORPHAN_SECONDS
        while (
            (rank_0 := self._rank_0()) is not None
            and _is_alive(rank_0)
            and time.monotonic() < min(deadline, self._kill_at)
        ):
            if self._status() is not None:
                deadline = min(deadline, time.monotonic() + LINGER_SECONDS)
            while self._signals:
                _send(rank_0, self._signals.pop(0))
            time.sleep(POLL_SECONDS)

    def _outcome(self) -> int:
        """The status that rank 0 left, or what can be said without it."""
        assert self._process is not None
        self._read_all()
        why, code = reason(self._banners, self._n, self._rank_0() is not None), self._process.poll()
        if (status := self._status()) is not None:
            self._tell_last_words(None if why is None or not status else why.words)
        if self._first is not None and status in INTERRUPTED:
            if status is None and not self._spread and self._rank_0() is None:
                self._show(2, b"Interrupted before the run began.\n")
            return 128 + self._first[0]  # what came here; mpirun passes on others
        if status is not None:
            return status
        if why is not None and why.users_mistake:
            raise TianJiError(why.words)
        if why is None and not code and self._rank_0() is None:
            return 0  # rank 0 was on another host, and all went well
        words = f"rank 0 ended without a word (mpirun's exit status: {code})"
        self._tell(f"{words}\n{last_words(self._banners)}" if why is None else why.words)
        return code if why is None and code == USER_MISTAKE else 1

    def _tell_last_words(self, otherwise: str | None) -> None:
        """What rank 0 said when mpirun had gone; if it could say nothing, what mpirun said."""
        said = [(fd, self._folder / f"{SAID}{fd}") for fd in (1, 2)]
        words = [(fd, path.read_bytes()) for fd, path in said if path.exists()]
        for fd, text in words:
            self._show(fd, text)
        if otherwise is not None and not any(text for _, text in words):
            self._tell(otherwise)

    def _tell(self, words: str) -> None:
        self._show(2, f"tianji: {words.rstrip()}\n".encode())

    def end(self) -> None:
        """Leaves no process of this host behind; daemons elsewhere end when mpirun has."""
        if self._process is None:
            return
        deadline = time.monotonic() + KILL_SECONDS
        while (left := in_session(self._process.pid)) and time.monotonic() < deadline:
            for pid in left:
                _send(pid, signal.SIGKILL)
            self._process.poll()
            time.sleep(0.01)
        self._process.wait()
        self._read_all()
        streams = (self._process.stdout, self._process.stderr)
        for stream, reader in zip(streams, self._readers, strict=True):
            if stream is not None and not reader.is_alive():
                stream.close()
        if self._announced:
            _show(1, CLEAR)

    def _read_all(self) -> None:
        """Whatever was said is shown or kept; a daemon elsewhere may hold the streams open."""
        for reader in self._readers:
            reader.join(timeout=READ_SECONDS)


def _show(fd: int, words: bytes) -> None:
    """Past Python's own buffers; if nobody listens any more, the run goes on all the same."""
    with suppress(OSError):
        while words:
            words = words[os.write(fd, words) :]


def in_session(session: int) -> list[int]:
    """The processes of a session on this host: a rank has a process group of its own."""
    return [pid for pid in _processes() if _session_of(pid) == session]


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _session_of(pid: int) -> int | None:
    """None for one that has gone, or is about to."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[3])


def _is_alive(pid: int) -> bool:
    return _session_of(pid) is not None


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):  # it has gone by itself
        os.kill(pid, number)
