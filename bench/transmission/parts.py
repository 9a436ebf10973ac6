"""A run of the benchmark: the four parts of Figure 5, those that are asked for and can be had."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from transmission import hosts
from transmission.carriers import available
from transmission.curves import part_b, part_c
from transmission.plan import Plan
from transmission.rows import Row
from transmission.sizes import part_a, part_d
from transmission.steps import Part, Skipped

LOOK_SECONDS = 0.5  # at what others use of this machine
MAKERS = {"a": part_a, "b": part_b, "c": part_c, "d": part_d}
FAR = ("c", "d")  # parts with several hosts


@dataclass
class Measured:
    """Everything that a run has found so far."""

    rows: list[Row]
    skipped: Skipped
    foreign_load: float = 0.0  # the share of this machine that others used when the run began
    done: list[str] = field(default_factory=list)  # parts that were measured to their end

    def measure(self, part: Part, say: Callable[[str], None]) -> None:
        """Takes the steps of a part; the rows of those that are over stay, whatever happens."""
        with part.hosts or nullcontext():
            for i, step in enumerate(part.steps, 1):
                say(f"{i}/{len(part.steps)}  {step.words}")
                self.rows += step.measure()
        self.done.append(part.name)


def prepare(plan: Plan) -> tuple[list[Part], Measured]:
    """The parts to measure, and where to; what cannot run here is named there, with the reason."""
    carriers, skipped = available((*plan.transports, *plan.peers))
    far = [carrier for carrier in carriers if carrier.across is not None]
    found = []
    for name in plan.parts:
        if name not in FAR:
            found.append(MAKERS[name](plan, carriers, skipped))
        elif reason := hosts.refusal() or (None if far else "nothing to carry: needs MPI"):
            skipped[f"part {name}"] = reason
        else:
            found.append(MAKERS[name](plan, far, skipped))
    return found, Measured([], skipped, foreign_load())


def foreign_load(seconds: float = LOOK_SECONDS) -> float:
    """The share of this process's cores that is in use while it sleeps."""
    before = _cpu_times()
    time.sleep(seconds)
    busy, total = (after - first for after, first in zip(_cpu_times(), before, strict=True))
    return busy / max(total, 1)


def _cpu_times() -> tuple[int, int]:
    """Busy and all ticks of these cores since the machine was started."""
    names, busy, total = {f"cpu{core}" for core in os.sched_getaffinity(0)}, 0, 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *words = line.split()
        if name in names:
            ticks = [int(word) for word in words[:8]]
            total += sum(ticks)
            busy += sum(ticks) - ticks[3] - ticks[4]
    return busy, total
