"""The doctor's round: every reading taken once, every check asked about it."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from datetime import datetime
from pathlib import Path

from tianji import __version__
from tianji.machine.resources import available_cores, free_bytes, quota
from tianji.tools.doctor import checks, packages, readings
from tianji.tools.doctor.finding import Finding, Section, ok


def examine(folder: Path = Path()) -> list[Section]:
    """Looks at everything; `folder` is where runs would be written. Takes a few seconds."""
    from tianji.tools.doctor.echo import talk  # here: the other process runs that module as its own

    echo = talk()
    return [
        Section("machine", _machine()),
        Section("processes", _processes(folder, echo)),
        Section("GPU and MPI", _gpu_and_mpi()),
        Section("packages", _needed()),
        Section("optional packages", _optional()),
    ]


def _machine() -> tuple[Finding, ...]:
    version = sys.version_info
    has_events = hasattr(os, "eventfd") and hasattr(os, "memfd_create")
    present = os.cpu_count() or 1
    n_cores = len(available_cores()) if has_events else present  # other systems have no affinity
    return (
        checks.python((version.major, version.minor, version.micro)),
        checks.platform(platform.system(), platform.machine(), has_events),
        checks.cores(n_cores, present, quota()),
        checks.threads(os.environ, n_cores),
        checks.memory(free_bytes(), readings.total_memory()),
    )


def _processes(folder: Path, echo: readings.Echo) -> tuple[Finding, ...]:
    locked = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    tick = time.get_clock_info("monotonic").resolution
    return (
        checks.channel(echo),
        checks.clock(tick, datetime.now().year, echo.shared_clock),
        checks.open_files(*resource.getrlimit(resource.RLIMIT_NOFILE)),
        checks.shared_memory(readings.size_of(Path("/dev/shm"))),
        checks.locked_memory(locked),
        checks.disk(readings.disk(folder.absolute())),
    )


def _gpu_and_mpi() -> tuple[Finding, ...]:
    binding, visible = readings.mpi_binding(), os.environ.get("CUDA_VISIBLE_DEVICES")
    gpu = checks.gpu(readings.torch_and_gpus(), readings.gpu_driver(), visible)
    starter = readings.mpi_starter()
    mpi = checks.mpi(binding, starter)
    if not binding.found or binding.error:
        return gpu, mpi
    return gpu, mpi, checks.ulfm(binding, readings.mpi_build(starter))


def _needed() -> tuple[Finding, ...]:
    least = packages.minimums()
    versions = {name: packages.version_of(name) for name in packages.NEEDED}
    found = (packages.check_needed(name, there, least) for name, there in versions.items())
    return (ok("tianji", __version__), *found)


def _optional() -> tuple[Finding, ...]:
    return tuple(
        packages.optional(name, packages.version_of(name), purpose)
        for name, purpose in packages.OPTIONAL.items()
    )
