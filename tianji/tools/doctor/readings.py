"""What the doctor reads of the machine; judging it is left to `checks`.

Whatever could hang or crash (MPI, drivers, torch) is asked in a process of its own and has a
deadline.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tianji.core.errors import TianJiError
from tianji.machine import mpirun
from tianji.machine.resources import TORCH_SECONDS

SECONDS = 5.0  # for a command to answer

MPI_QUESTION = """
import json, mpi4py
mpi4py.rc.initialize = False  # its version can be had without joining anything
from mpi4py import MPI
library = MPI.Get_library_version().split(",")[0].strip(" \\0")
revoke = "Revoke" in dir(MPI.Comm)
print(json.dumps({"version": mpi4py.__version__, "library": library, "revoke": revoke}))
"""


@dataclass(frozen=True)
class Answer:
    """What a command or a library said."""

    found: bool  # it is there at all
    value: Any = None
    error: str = ""


@dataclass(frozen=True)
class Disk:
    """A folder's disk."""

    folder: str
    free: int = 0  # bytes
    fsync_seconds: float = 0.0  # to write and sync 1 MB
    error: str = ""


@dataclass(frozen=True)
class Echo:
    """What came of talking to another process over shared memory."""

    messages: int = 0
    round_trip_seconds: float = 0.0
    shared_clock: bool = True  # the other's clock showed a time between question and answer
    error: str = ""


def disk(folder: Path) -> Disk:
    """Writes and syncs a megabyte into a nameless file."""
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as file:
            began = time.monotonic()
            file.write(bytes(2**20))
            file.flush()
            os.fsync(file.fileno())
            return Disk(str(folder), free, time.monotonic() - began)
    except OSError as error:
        return Disk(str(folder), error=error.strerror or str(error))


def size_of(folder: Path) -> int | None:
    """Bytes of a file system; None if it is not there."""
    try:
        return shutil.disk_usage(folder).total
    except OSError:
        return None


def total_memory() -> int | None:
    """Bytes of memory that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def ask(command: Sequence[str], seconds: float = SECONDS) -> Answer:
    """The standard output of a command, or why there is none."""
    if shutil.which(command[0]) is None:
        return Answer(False)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return Answer(True, error=f"no answer within {seconds:g} s")
    except OSError as error:
        return Answer(True, error=error.strerror or str(error))
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines()
        return Answer(True, error=words[-1] if words else f"exit status {done.returncode}")
    return Answer(True, done.stdout)


def mpi_binding() -> Answer:
    """mpi4py's version and its library's, if it is installed."""
    if find_spec("mpi4py") is None:
        return Answer(False)
    return _json(ask([sys.executable, "-c", MPI_QUESTION]))


def mpi_starter() -> Answer:
    """The mpirun that belongs to mpi4py, or why there is none."""
    try:
        return Answer(True, mpirun.find())
    except TianJiError as error:
        return Answer(True, error=str(error))


def mpi_build(starter: Answer) -> Answer:
    """Whether Open MPI was built with fault tolerance."""
    beside = "ompi_info" if starter.error else str(starter.value.with_name("ompi_info"))
    answer = ask([beside, "--parsable"])
    if not answer.found or answer.error:
        return answer
    return Answer(True, {"ft": "options:ft_mpi_support:yes" in answer.value.splitlines()})


def torch_and_gpus() -> Answer:
    """What torch says about itself and the GPUs that it can use."""
    return _json(ask([sys.executable, "-m", "tianji.models.gpu"], TORCH_SECONDS))


def gpu_driver() -> Answer:
    """The GPUs that NVIDIA's driver knows, as text."""
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    answer = ask(["nvidia-smi", *query])
    if answer.error or not answer.found:
        return Answer(False, error=answer.error)
    lines = [line.split(", ") for line in answer.value.splitlines() if line.count(", ") == 2]
    return Answer(bool(lines), [f"{name}, {size}, driver {at}" for name, size, at in lines])


def _json(answer: Answer) -> Answer:
    if not answer.found or answer.error:
        return answer
    try:
        return Answer(True, json.loads(answer.value.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return Answer(True, error=f"it answered {answer.value.strip()!r:.60}")
