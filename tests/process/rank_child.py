"""A rank that trains nothing: `rank_child.py FOLDER WHAT`, where WHAT is what rank 0 does."""

import os
import signal
import sys
import time
from pathlib import Path

from tianji.core.signals import Interrupted, Signals
from tianji.machine import mpirun

MOST_SECONDS = 60.0
PARENT = (
    os.getppid()
)  # an mpirun that ends may leave its ranks to themselves, as those of a run know


def follow(folder):
    """What the others do: nothing, until rank 0 has gone."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    (folder / f"pid{mpirun.inside()[0]}").write_text(str(os.getpid()))
    deadline = time.monotonic() + MOST_SECONDS
    while not (folder / "over").exists() and time.monotonic() < deadline and os.getppid() == PARENT:
        time.sleep(0.01)


def lead(folder, what):
    with Signals() as signals:
        mpirun.arrive()
        (folder / "pid0").write_text(str(os.getpid()))
        print("rank 0 is here", file=sys.stderr, flush=True)
        status = 7
        try:
            deadline = time.monotonic() + MOST_SECONDS
            while what == "wait" and time.monotonic() < deadline and os.getppid() == PARENT:
                signals.check()
                time.sleep(0.01)
        except Interrupted as stop:
            status = stop.exit_status
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        mpirun.leave_status(status)
        if what != "leave others":
            (folder / "over").touch()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if mpirun.inside()[0]:
        follow(folder)
    else:
        lead(folder, sys.argv[2])
    os._exit(0)
