"""The doctor's round: whatever is to be known of this machine is read, and judged by `checks`.

Whatever could hang or crash (MPI, drivers, torch) is asked in a process of its own and has a
deadline.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from tianji import __version__
from tianji.core.child import command_for
from tianji.core.errors import TianJiError
from tianji.machine import mpirun
from tianji.machine.resources import TORCH_SECONDS, available_cores, free_bytes, quota
from tianji.tools.doctor import checks
from tianji.tools.doctor.checks import Answer, Finding
from tianji.tools.doctor.echo import Echo, talk

ANSWER_SECONDS = 5.0  # for a command to answer
MPI_QUESTION = """
import json, mpi4py
mpi4py.rc.initialize = False  # its version can be had without joining anything
from mpi4py import MPI
library = MPI.Get_library_version().split(",")[0].strip(" \\0")
revoke = "Revoke" in dir(MPI.Comm)
print(json.dumps({"version": mpi4py.__version__, "library": library, "revoke": revoke}))
"""


def examine(folder: Path = Path()) -> list[Finding]:
    """Looks at everything; `folder` is where runs would be written. Takes a few seconds."""
    sections = {
        "machine": _machine(),
        "processes": _processes(folder, talk()),
        "GPU and MPI": _gpu_and_mpi(),
        "packages": _packages(),
    }
    return [replace(each, section=name) for name, found in sections.items() for each in found]


def _machine() -> Iterator[Finding]:
    has_events = hasattr(os, "eventfd") and hasattr(os, "memfd_create")
    present = os.cpu_count() or 1
    n_cores = len(available_cores()) if has_events else present  # other systems have no affinity
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield Finding("Python", platform.python_version())
    yield checks.platform(platform.system(), platform.machine(), has_events)
    yield checks.cores(n_cores, present, quota())
    yield checks.threads(os.environ, n_cores)
    yield checks.memory(free_bytes(), total)


def _processes(folder: Path, echo: Echo) -> Iterator[Finding]:
    shm = Path("/dev/shm")
    size = checks.gib(shutil.disk_usage(shm).total) if shm.exists() else "none"
    yield checks.channel(echo)
    tick = time.get_clock_info("monotonic").resolution
    yield checks.clock(tick, datetime.now().year, echo.shared_clock)
    yield checks.open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))
    yield Finding("/dev/shm", f"{size}; not used: channels are anonymous memory, without its limit")
    yield disk(folder.absolute())


def _gpu_and_mpi() -> Iterator[Finding]:
    torch = _json(ask(command_for("tianji.models.gpu"), TORCH_SECONDS))
    yield checks.gpu(torch, gpu_driver(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    binding, starter = Answer(False), mpi_starter()
    if find_spec("mpi4py") is not None:
        binding = _json(ask([sys.executable, "-P", "-c", MPI_QUESTION]))
    yield checks.mpi(binding, starter)
    if binding.found and not binding.error:
        beside = "ompi_info" if starter.error else str(starter.value.with_name("ompi_info"))
        yield checks.ulfm(binding, ask([beside, "--parsable"]))


def _packages() -> Iterator[Finding]:
    yield Finding("tianji", __version__)
    least = minimums()
    for name in checks.NEEDED:
        yield checks.needed(name, version_of(name), least.get(name))
    for name in checks.OPTIONAL:
        yield checks.optional(name, version_of(name))


def disk(folder: Path) -> Finding:
    """Can runs be written here, and how long does a safe write take? Leaves no file behind."""
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as file:
            began = time.monotonic()
            file.write(bytes(2**20))
            file.flush()
            os.fsync(file.fileno())
            return checks.disk(free, time.monotonic() - began)
    except OSError as error:
        found = f"{folder} cannot be written ({error.strerror or error})"
        return Finding(
            "disk", found, checks.PROBLEM, "go to another folder, or name one with --run-dir"
        )


def version_of(name: str) -> str | None:
    """The version of a package, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def minimums() -> dict[str, str]:
    """The oldest version that will do, of what this package declares to need."""
    try:
        declared = metadata.requires("tianji") or []
    except metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w.-]+)\s*>=\s*([\d.]+)$", each) for each in declared)
    return {match[1]: match[2] for match in found if match}


def mpi_starter() -> Answer:
    """The mpirun that belongs to mpi4py, or why there is none."""
    try:
        return Answer(True, mpirun.find())
    except TianJiError as error:
        return Answer(True, error=str(error))


def gpu_driver() -> Answer:
    """The GPUs that NVIDIA's driver knows, as text."""
    query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    answer = ask(["nvidia-smi", *query])
    lines = [line.split(", ") for line in (answer.value or "").splitlines()]
    known = [", ".join([*line[:2], f"driver {line[2]}"]) for line in lines if len(line) == 3]
    return Answer(bool(known), known)


def ask(command: Sequence[str], seconds: float = ANSWER_SECONDS) -> Answer:
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


def _json(answer: Answer) -> Answer:
    if not answer.found or answer.error:
        return answer
    try:
        return Answer(True, json.loads(answer.value.strip().splitlines()[-1]))
    except (ValueError, IndexError):
        return Answer(True, error=f"it answered {answer.value.strip()!r:.60}")
