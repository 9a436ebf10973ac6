"""Which machine this is, as far as a plan depends on it."""

from __future__ import annotations

import platform
import time
from collections.abc import Collection
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

from tianji.config import Config
from tianji.machine.resources import devices_of, gpu_of, idle_seconds
from tianji.strategy.plan.profile import Machine


def this_machine(cores: int, config: Config) -> Machine:
    """This machine, with the cores that may be used, and the GPU of those who compute on one."""
    devices = devices_of(config)
    gpus = [gpu_of(devices[section]) for section in ("learner_cfg", "actor_cfg")]
    return Machine(cpu_name(), cores, *gpus)


def cpu_name() -> str:
    """The processor's own name for itself."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


class Others:
    """What is done on some cores from now on, but not by this process and those it has started."""

    def __init__(self, cores: Collection[int]) -> None:
        self._cores = cores
        self._began, self._idled, self._own = time.monotonic(), idle_seconds(cores), _own_seconds()

    def used(self) -> float:
        """Cores that others kept busy, on average; 0 where the system does not say.

        To be asked when the children have ended: what they used is not known before.
        """
        idled = idle_seconds(self._cores)
        seconds = time.monotonic() - self._began
        if idled is None or self._idled is None or seconds <= 0:
            return 0.0
        busy = len(self._cores) * seconds - (idled - self._idled)
        return max(0.0, (busy - (_own_seconds() - self._own)) / seconds)


def _own_seconds() -> float:
    """CPU time of this process and of its children that have ended."""
    used = getrusage(RUSAGE_SELF), getrusage(RUSAGE_CHILDREN)
    return sum(each.ru_utime + each.ru_stime for each in used)
