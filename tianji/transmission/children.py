"""Child processes of the benchmark: what they are given, and that none outlives its parent."""

from __future__ import annotations

import os
import signal

from tianji.core.signals import ending_with

PARENT = "TIANJI_PARENT"  # in the environment of a child


def child_environment() -> dict[str, str]:
    """Of a child that says `die_with_parent`: one thread for numpy, and who its parent is."""
    return os.environ | {"OMP_NUM_THREADS": "1", PARENT: str(os.getpid())}


def die_with_parent() -> None:
    """A child that waits for a word must not wait for ever: it goes with whoever would say it."""
    ending_with(int(os.environ.get(PARENT, os.getppid())), signal.SIGKILL)()
