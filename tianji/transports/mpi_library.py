"""mpi4py's MPI, loaded with our settings: all other modules of the package take it from here."""

from __future__ import annotations

import mpi4py

from tianji.machine import mpirun

mpi4py.rc.initialize = False  # `World` does it, once the settings below are made
mpi4py.rc.finalize = False
mpirun.settle()
from mpi4py import MPI  # noqa: E402  # after its settings

__all__ = ["MPI", "library"]


def library() -> str:
    """The MPI that mpi4py was made for, as in `Open MPI v5.0.11`."""
    return MPI.Get_library_version().partition(",")[0].partition("\n")[0]
