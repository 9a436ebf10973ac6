"""Who does what when: the rows and blocks of the paper's Figure 1."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Doing(enum.Enum):
    """What a core does; the last four are ways of doing nothing."""

    INFER = "inference"
    SIMULATE = "simulation"
    UPDATE = "update"
    SEND = "send"
    RECEIVE = "receive and draw"
    PRIORITY = "priorities"
    WEIGHTS = "I: waits for weights"
    ACTION = "II: waits for an action or an observation"
    TRAJECTORIES = "III: waits for trajectories"
    ROOM = "held back: the learner has enough"

    @property
    def is_idle(self) -> bool:
        """Whether the core could do something else meanwhile."""
        return self in IDLE


IDLE = (Doing.WEIGHTS, Doing.ACTION, Doing.TRAJECTORIES, Doing.ROOM)
FINEST = 64  # blocks of inference and simulation that one trajectory is drawn with, at most


@dataclass(frozen=True)
class Block:
    """A stretch of time in which one core does one thing."""

    row: str
    doing: Doing
    start: float
    end: float


@dataclass
class Timeline:
    """Blocks in the order in which they ended."""

    blocks: list[Block] = field(default_factory=list)
    infer_share: float = 0.5  # of a step, for those who only know how long a trajectory took
    begun: dict[str, list[float]] = field(default_factory=dict)  # trajectories, by row

    def add(self, row: str, doing: Doing, start: float, end: float) -> None:
        """Notes a block; one of no length is left out."""
        if end > start:
            self.blocks.append(Block(row, doing, start, end))

    def begin(self, row: str, start: float) -> None:
        """Notes where a trajectory begins."""
        self.begun.setdefault(row, []).append(start)

    def add_rollout(self, row: str, start: float, end: float, steps: int) -> None:
        """Notes a trajectory as inference and simulation in turns."""
        self.begin(row, start)
        n = min(steps, FINEST)
        each = (end - start) / n
        for i in range(n):
            begun = start + i * each
            acted = begun + each * self.infer_share
            self.add(row, Doing.INFER, begun, acted)
            self.add(row, Doing.SIMULATE, acted, begun + each)

    def rows(self) -> list[str]:
        """Actors and workers first, then buffer and learner, each counted from 0."""
        found = {block.row for block in self.blocks}
        return sorted(found, key=lambda row: (row[0] not in "AW", _number(row), row))

    def shares(self, start: float, end: float) -> dict[str, dict[Doing, float]]:
        """For each row, the share of the time from start to end that went into each thing."""
        spent: dict[str, dict[Doing, float]] = {row: {} for row in self.rows()}
        for block in self.blocks:
            seconds = min(block.end, end) - max(block.start, start)
            if seconds > 0:
                of = spent[block.row]
                of[block.doing] = of.get(block.doing, 0.0) + seconds / (end - start)
        return spent


def _number(row: str) -> tuple[int, ...]:
    digits = "".join(c if c.isdecimal() else " " for c in row).split()
    return tuple(int(word) for word in digits)
