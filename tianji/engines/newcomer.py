"""A process that MPI has started in the place of a rank that was lost."""

from __future__ import annotations

import os
import signal
import traceback
from typing import NoReturn

from tianji import __version__
from tianji.core.signals import NUMBERS
from tianji.machine import mpirun, resources


def main() -> NoReturn:
    """Its life; what it is to be, rank 0 tells."""
    for number in NUMBERS:  # sent to all: rank 0 decides what it means
        signal.signal(number, signal.SIG_IGN)
    for name in resources.THREAD_VARIABLES:
        os.environ[name] = "1"
    from tianji.engines.serve_rank import serve
    from tianji.transports.mpi import NewcomerWorld

    world, status = NewcomerWorld(), 0
    try:
        serve(world, {"version of tianji": __version__, "meeting": world.meeting.name})
    except BaseException:  # the top of the process: it is lost, and another one comes
        traceback.print_exc()
        status = 1
    mpirun.vanish(status)


if __name__ == "__main__":
    main()
