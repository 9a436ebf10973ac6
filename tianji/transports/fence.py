"""A fence between processes that costs the one who is about to sleep, and nobody else.

A sender stores a message and then reads the sleeper's flag; a sleeper raises its flag and then
looks for messages. x86 may let both read before their stores are seen, and a wake-up would be lost:
there must be a full fence on both sides. Senders are in a hurry and sleepers are not, so the
sleeper asks the kernel (`membarrier`) to have every running sender pass a fence now. Where the
kernel does not know how, or is not allowed to, each side takes its own.
"""

from __future__ import annotations

import ctypes
import platform
import threading
from functools import cache

_NUMBERS = {"x86_64": 324, "aarch64": 283}  # of the system call
_GLOBAL, _REGISTER = 1 << 1, 1 << 2  # expedited: running processes that have registered
_LOCK = threading.Lock()


@cache
def _system_call() -> tuple[ctypes._NamedFuncPointer, int] | None:
    number = _NUMBERS.get(platform.machine())
    call = getattr(ctypes.CDLL(None), "syscall", None)
    return None if number is None or call is None else (call, number)


@cache
def is_fenced_from_afar() -> bool:
    """Whether a sleeper can fence this process, which must ask before it sends without one."""
    found = _system_call()
    return found is not None and found[0](found[1], _REGISTER, 0, 0) == 0


def fence() -> None:
    """Orders this process's stores before it with its loads after it.

    Taking a lock that nobody contends for is a locked instruction, which is a full fence.
    """
    with _LOCK:  # not acquire() and release(): a signal may raise between the two
        pass


def fence_all() -> None:
    """The same, and in every process that sends without a fence of its own."""
    fence()
    if (found := _system_call()) is not None and is_fenced_from_afar():
        found[0](found[1], _GLOBAL, 0, 0)
