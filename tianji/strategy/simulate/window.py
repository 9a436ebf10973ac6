"""What both drawings of Figure 1 show of each style: which stretch of time, and which rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tianji.core.wording import unit_of
from tianji.observe.svg import round_step
from tianji.strategy.simulate.schedule import Schedule

SHOWN = 1.5  # rollouts with their updates
MOST_ROWS = 6  # of actors or workers in one picture; the others look the same


@dataclass(frozen=True)
class Window:
    """A stretch of simulated time."""

    start: float
    seconds: float

    @property
    def end(self) -> float:
        """Where it is over."""
        return self.start + self.seconds

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round times since its start, with words; the first says the unit."""
        size, unit = unit_of(self.seconds)
        step = round_step(self.seconds / size / max(1, most))
        times = [i * step for i in range(math.ceil(self.seconds / size / step))]
        words = [f"{time:g}" if time else f"0 {unit}" for time in times]
        return [(time * size, word) for time, word in zip(times, words, strict=True)]


def windows(all_: Sequence[Schedule]) -> list[Window]:
    """Of each style one, all as long; each begins with a trajectory of the first actor."""
    longest = SHOWN * max(schedule.cycle_seconds for schedule in all_)
    seconds = min(longest, *((schedule.end - schedule.start) / 2 for schedule in all_))
    return [Window(_begin(schedule, schedule.end - seconds), seconds) for schedule in all_]


def _begin(schedule: Schedule, latest: float) -> float:
    """The last beginning of a trajectory that leaves room for the whole window."""
    begun = schedule.timeline.begun.get(schedule.timeline.rows()[0], [])
    return max((at for at in begun if at <= latest), default=latest)


def drawn_rows(schedule: Schedule) -> list[str]:
    """The first actors or workers, and all else."""
    rows = schedule.timeline.rows()
    many = [row for row in rows if row[0] in "AW"]
    return many[:MOST_ROWS] + [row for row in rows if row[0] not in "AW"]


def busy_shares(schedule: Schedule) -> dict[str, float]:
    """For each row, the share of the counted time in which it does something."""
    shares = schedule.timeline.shares(schedule.start, schedule.end)
    return {
        row: sum(share for doing, share in of.items() if not doing.is_idle)
        for row, of in shares.items()
    }
