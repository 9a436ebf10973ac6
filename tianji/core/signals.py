"""What signals mean to a run: the first ends it in order, a later one at once."""

from __future__ import annotations

import _thread
import ctypes
import fcntl
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

DROPPED_SECONDS = 0.02  # from the loss of an exception to the next attempt
ECHO_SECONDS = 1.0  # in which a second signal is the same wish: `timeout` and Slurm send it twice
NUMBERS = (  # Ctrl-C, the scheduler's wish, its warning before, and a terminal that was closed
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGHUP,
)
PR_SET_PDEATHSIG = 1  # of prctl


def ending_with(parent: int, number: int) -> Callable[[], None]:
    """What a child calls to get a signal when its parent ends, also by SIGKILL."""
    libc = ctypes.CDLL(None)  # loaded here: a child of a fork had better load nothing

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)

    return ask


def group_ending_with(pipe: int) -> None:
    """Has the kernel send SIGTERM to the group that this process leads, when a pipe has no writer.

    That is whoever started it, and ends by SIGKILL too.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK
    own = os.open(f"/proc/self/fd/{pipe}", flags)  # another file: each tells one group
    os.close(pipe)
    fcntl.fcntl(own, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(own, fcntl.F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(own, fcntl.F_SETFL, flags | os.O_ASYNC)


def signal_group(leader: int, number: int) -> bool:
    """Signals everybody in a process group; whether there is anybody."""
    try:
        os.killpg(leader, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def overhear() -> None:
    """From now on the signals that end a run mean nothing here, and the usual to our children.

    What is ignored would be ignored by a program that is started, too; what is handled is not.
    """
    for number in NUMBERS:
        signal.signal(number, lambda *_: None)
        signal.siginterrupt(number, False)
    os.register_at_fork(after_in_child=_obey)


def _obey() -> None:
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def pausing(leaders: Callable[[], Iterable[int]]) -> Iterator[None]:
    """Has Ctrl-Z stop other process groups with ours, and go on with it."""
    main = threading.current_thread() is threading.main_thread()  # nobody else gets signals
    if not main or signal.getsignal(signal.SIGTSTP) is not signal.SIG_DFL:
        yield
        return

    def pause(number: int, frame: FrameType | None) -> None:
        stopped = [leader for leader in leaders() if signal_group(leader, signal.SIGSTOP)]
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)  # returns when somebody continues us
        signal.signal(number, pause)
        for leader in stopped:
            signal_group(leader, signal.SIGCONT)

    signal.signal(signal.SIGTSTP, pause)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)


class Interrupted(BaseException):
    """A signal asked the run to end; no user's `except Exception` may swallow it."""

    def __init__(self, number: int, words: str | None = None) -> None:
        """`words` are what a command has to say about it, if it has not been said yet."""
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.words = words

    @property
    def exit_status(self) -> int:
        """As a shell has it."""
        return 128 + self.number


class Signals:
    """Notes the first signal for whoever asks; a later one is left to whoever had it before.

    The first is only noted, and `check` raises it where that does no harm: an exception out of the
    blue could end in the middle of an import or of a lock. While the process engine is set up it is
    raised `at_once`, because trying out a user's environment may take for ever; and again if it is
    dropped on its way up, as Python's compiler, Cython's modules and some environments do.
    """

    def __init__(self, numbers: Sequence[int] = NUMBERS) -> None:
        self._numbers = numbers
        self.number: int | None = None
        self._noted_at = 0.0
        self.at_once = False
        self._raised: weakref.ref[Interrupted] | None = None
        self._dropped = False
        self._is_over = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # nobody else gets signals
            self._before = {number: signal.signal(number, self._note) for number in self._numbers}
        return self

    def __exit__(self, *_: object) -> None:
        self.at_once = False
        self.give_back()

    def give_back(self) -> None:
        """Signals mean again what they meant before."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is None:
            self.number, self._noted_at = number, time.monotonic()
            if self.at_once:
                raise self._interrupted(number)
        elif self._dropped:
            self._dropped = False
            if self.at_once:
                raise self._interrupted(number)
        elif not self._is_over and time.monotonic() - self._noted_at > ECHO_SECONDS:
            self.give_back()
            signal.raise_signal(number)

    def _interrupted(self, number: int) -> Interrupted:
        """What is raised; if it dies before it was caught, it is raised again."""
        stop = Interrupted(number)
        self._raised = weakref.ref(stop, lambda _: self._try_again(number))
        return stop  # and not raised here: its traceback would keep it alive

    def _try_again(self, number: int) -> None:
        if self.at_once:  # a thread, because this is called in the midst of what dropped it
            _thread.start_new_thread(self._send_again, (number,))

    def _send_again(self, number: int) -> None:
        time.sleep(DROPPED_SECONDS)
        if self.at_once:
            self._dropped = True
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    @contextmanager
    def raised_at_once(self) -> Iterator[None]:
        """Within, a signal is raised when it comes; one that came earlier, before."""
        self.at_once = True
        self.check()
        yield
        self.at_once = False
        self.check()

    def check(self) -> None:
        """Raises what has come."""
        if self.number is not None:
            raise Interrupted(self.number)

    def only_note(self) -> None:
        """The run is over: nothing may keep its end from being written down.

        A signal that ended it has been noted: the next one is no word about the run, but to go.
        """
        self._is_over = self.number is None
