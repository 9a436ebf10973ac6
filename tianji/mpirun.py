"""Temporary."""

from __future__ import annotations

import os


def inside() -> tuple[int, int] | None:
    """(rank, size) of this process in an MPI job, if it is in one."""
    if "OMPI_COMM_WORLD_RANK" not in os.environ:
        return None
    return int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
