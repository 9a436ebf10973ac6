"""The rows of one style, and how actors and a learner that wait for each other fill them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from systems.timeline import Doing, Timeline
from tianji.core.wording import count_of
from tianji.strategy.simulate.core_layout import Costs
from tianji.strategy.simulate.spread import Spread

CYCLES = 16  # rollouts with their updates that are scheduled, at least
UNCOUNTED = 0.25  # of them, in which a style settles
MOST_TRAJECTORIES = 2_048  # that are scheduled so that there are as many updates

Counted = list[tuple[float, int]]
"""When, and units."""


@dataclass(frozen=True)
class Record:
    """What a style has done so far."""

    timeline: Timeline
    made: Counted = field(default_factory=list)
    learned: Counted = field(default_factory=list)


@dataclass(frozen=True)
class Schedule:
    """What one style did, and when; of several groups that are alike, one."""

    style: str
    record: Record
    start: float  # of what is counted
    end: float
    cycle_seconds: float  # about: a rollout with its updates
    learners: int = 1  # that a row of learners stands for
    learner_cores: int = 1  # of each of them; any other row has one
    groups: int = 1

    @property
    def timeline(self) -> Timeline:
        """Who does what when."""
        return self.record.timeline

    @property
    def cores(self) -> int:
        """Of all rows, in all groups."""
        return self.groups * sum(map(self._cores_of, self.timeline.rows()))

    @property
    def split(self) -> str:
        """As in `L1A4`: learners and actors in all, `+B` for buffers with cores of their own."""
        rows = self.timeline.rows()
        learning = sum(self.learners for row in rows if row.endswith("L"))
        acting = sum(1 for row in rows if row.startswith("A") or row.endswith("A"))
        return f"L{self.groups * learning}A{self.groups * acting}" + "+B" * ("B" in rows)

    @property
    def heading(self) -> str:
        """As in `ours: 8 cores (4 to learn), idle 18.1 % of their time`."""
        idle = 100 * sum(self.idle().values())
        cores, said = count_of(self.cores, "core"), "; ".join(self._about_cores())
        return f"{self.style}: {cores}{said and f' ({said})'}, idle {idle:.1f} % of their time"

    def _about_cores(self) -> Iterator[str]:
        if self.groups > 1:
            yield f"{self.groups} groups, one is drawn"
        if (own := self.learners * self.learner_cores) > 1:
            n_rows = sum(row.endswith("L") for row in self.timeline.rows())
            each = " in each group" if self.groups > 1 else " in each worker" if n_rows > 1 else ""
            yield f"{own} to learn{each}"

    def _cores_of(self, row: str) -> int:
        return self.learners * self.learner_cores if row.endswith("L") else 1

    @property
    def production(self) -> float:
        """Units per second of all groups."""
        return self._rate(self.record.made)

    @property
    def consumption(self) -> float:
        """Units per second of all groups."""
        return self._rate(self.record.learned)

    def _rate(self, counted: Counted) -> float:
        inside = sum(units for at, units in counted if self.start < at <= self.end)
        return self.groups * inside / (self.end - self.start)

    def busy(self) -> dict[str, float]:
        """For each row, the share of the counted time in which it does something."""
        shares = self.timeline.shares(self.start, self.end)
        return {
            row: sum(share for doing, share in of.items() if not doing.is_idle)
            for row, of in shares.items()
        }

    def idle(self) -> dict[Doing, float]:
        """The share of all cores' time that was spent on each way of doing nothing."""
        shares = self.timeline.shares(self.start, self.end)
        n = max(1, self.cores // self.groups)
        return {
            doing: sum(self._cores_of(row) * of.get(doing, 0.0) for row, of in shares.items()) / n
            for doing in Doing
            if doing.is_idle
        }


@dataclass(frozen=True)
class Case:
    """What a style is scheduled with."""

    costs: Costs
    learners: int  # of a group
    learner_cores: int  # of each
    groups: int
    step: float  # seconds: inference and simulation of one actor's environments
    inference: float  # the part of it that was measured or is supposed
    infer_all: Callable[[int], float]  # of so many actors' environments at once
    spread: Spread

    @property
    def infer(self) -> float:
        """Seconds of a step; beyond what was measured its line may cross that of the step."""
        return min(self.inference, self.step)

    @property
    def simulate(self) -> float:
        """Seconds of a step."""
        return self.step - self.infer

    @property
    def learning_cores(self) -> int:
        """Of one group."""
        return self.learners * self.learner_cores

    @property
    def owed(self) -> float:
        """Updates that one trajectory of every actor earns."""
        return self.costs.ratio * self.costs.actors * self.costs.units / self.costs.batch

    @property
    def cycles(self) -> int:
        """Rollouts of every actor: as many as earn `CYCLES` updates, if that is no endless work."""
        wanted = CYCLES * max(1, math.ceil(1.0 / self.owed))
        return max(CYCLES, min(wanted, MOST_TRAJECTORIES // self.costs.actors))

    @property
    def cycle_seconds(self) -> float:
        """About what a rollout of every actor and its updates take one after the other."""
        costs = self.costs
        acting = costs.rollout_seconds + costs.send_seconds + costs.actors * costs.receive_seconds
        learning = self.owed * (costs.draw_seconds + costs.update_seconds)
        return acting + max(learning, costs.update_seconds)

    def record(self) -> Record:
        """An empty one."""
        return Record(Timeline([], self.infer / self.step))

    def settled(self, style: str, record: Record, end: float) -> Schedule:
        """What was recorded until then, counted from the end of one update to that of another."""
        start = UNCOUNTED * end
        updates = sorted(at for at, _ in record.learned if start <= at <= end)
        if len(updates) > 1:
            start, end = updates[0], updates[-1]
        return self.counted(style, record, start, end)

    def counted(self, style: str, record: Record, start: float, end: float) -> Schedule:
        """What was recorded, counted from one moment to another."""
        return Schedule(
            style,
            record,
            start,
            end,
            self.cycle_seconds,
            self.learners,
            self.learner_cores,
            self.groups,
        )


class InStep:
    """Actors and a learner that wait for each other, on rows of a record.

    `owed` is the part of an update that had been earned when it began.
    """

    def __init__(
        self, case: Case, record: Record, actors: list[str], learner: str, owed: float = 0.0
    ) -> None:
        self.case = case
        self.record = record
        self.line = record.timeline
        self.actors = actors
        self.learner = learner
        self.now = 0.0  # when the last cycle was over
        self._owed = owed
        self._ends: list[float] = []

    def roll_out(self) -> list[float]:
        """Everybody acts and sends; when each was ready."""
        costs, ready = self.case.costs, []
        for row in self.actors:
            acted = self.now + self.case.spread.of(costs.rollout_seconds)
            self.line.add_rollout(row, self.now, acted, costs.steps)
            ready.append(acted + costs.send_seconds)
            self.line.add(row, Doing.SEND, acted, ready[-1])
        return ready

    def receive(self, ready: list[float]) -> float:
        """The learner takes all trajectories in the order in which they come."""
        at = self.now
        for when in sorted(ready):
            self.line.add(self.learner, Doing.TRAJECTORIES, at, when)
            at = self.stored(max(at, when))
        return at

    def stored(self, at: float) -> float:
        """One trajectory is in the store."""
        end = at + self.case.costs.receive_seconds
        self.line.add(self.learner, Doing.RECEIVE, at, end)
        self.record.made.append((end, self.case.costs.units))
        return end

    def update(self, at: float) -> float:
        """The learner makes the updates that are owed by now."""
        costs = self.case.costs
        self._owed += costs.ratio * len(self.actors) * costs.units / costs.batch
        while self._owed >= 1.0:
            self._owed -= 1.0
            drawn = at + costs.draw_seconds
            self.line.add(self.learner, Doing.RECEIVE, at, drawn)
            at = drawn + self.case.spread.of(costs.update_seconds)
            self.line.add(self.learner, Doing.UPDATE, drawn, at)
            self.record.learned.append((at, costs.batch))
        return at

    def wait(self, ready: list[float], until: float) -> None:
        """Everybody has to have the new weights before the next cycle."""
        for row, since in zip(self.actors, ready, strict=True):
            self.line.add(row, Doing.WEIGHTS, since, until)
        self.now = until
        self._ends.append(until)

    def counted(self, style: str) -> Schedule:
        """All cycles but the first ones."""
        start = self._ends[math.ceil(UNCOUNTED * len(self._ends)) - 1]
        return self.case.counted(style, self.record, start, self._ends[-1])
