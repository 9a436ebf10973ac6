"""Which machine this is, as far as a plan depends on it."""

from __future__ import annotations

import platform
from pathlib import Path

from tianji.planning.profile import Machine
from tianji.resources import gpu_of


def this_machine(cores: int, device: str) -> Machine:
    """This machine, with the cores that may be used, and where a learner computes on `device`."""
    return Machine(cpu_name(), cores, gpu_of(device))


def cpu_name() -> str:
    """The processor's own name for itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
