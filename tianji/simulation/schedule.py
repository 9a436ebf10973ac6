"""The rows of one style, and how actors and a learner that wait for each other fill them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tianji.simulation.layout import Costs
from tianji.simulation.spread import Spread
from tianji.simulation.timeline import Doing, Timeline
from tianji.wording import count_of

CYCLES = 16  # rollouts with their updates that are scheduled
UNCOUNTED = 4  # of them, in which a style settles


@dataclass
class Schedule:
    """What one style did, and when."""

    style: str
    learner_cores: int  # of each row of a learner; any other has one
    timeline: Timeline
    start: float  # of what is counted
    end: float
    made: list[tuple[float, int]] = field(default_factory=list)  # when, and units
    learned: list[tuple[float, int]] = field(default_factory=list)

    @property
    def cores(self) -> int:
        """Of all rows."""
        return sum(map(self._cores_of, self.timeline.rows()))

    @property
    def heading(self) -> str:
        """As in `ours: 8 cores (4 of each learner), idle 18.1 % of their time`."""
        n, idle = self.learner_cores, 100 * sum(self.idle().values())
        learner = f" ({n} of each learner)" if n > 1 else ""
        cores = count_of(self.cores, "core") + learner
        return f"{self.style}: {cores}, idle {idle:.1f} % of their time"

    def _cores_of(self, row: str) -> int:
        return self.learner_cores if row.endswith("L") else 1

    @property
    def production(self) -> float:
        """Units per second."""
        return self._rate(self.made)

    @property
    def consumption(self) -> float:
        """Units per second."""
        return self._rate(self.learned)

    def _rate(self, counted: list[tuple[float, int]]) -> float:
        inside = sum(units for at, units in counted if self.start < at <= self.end)
        return inside / (self.end - self.start)

    def idle(self) -> dict[Doing, float]:
        """The share of all cores' time that was spent on each way of doing nothing."""
        shares = self.timeline.shares(self.start, self.end)
        n = max(1, self.cores)
        return {
            doing: sum(self._cores_of(row) * of.get(doing, 0.0) for row, of in shares.items()) / n
            for doing in Doing
            if doing.is_idle
        }


@dataclass(frozen=True)
class Case:
    """What all styles have in common."""

    costs: Costs
    learner_cores: int  # of all learners of a group
    infer: float  # seconds: of one actor's environments
    simulate: float
    infer_all: Callable[[int], float]  # of so many actors' environments at once
    spread: Spread
    horizon: float

    def schedule(self, style: str) -> Schedule:
        """An empty one."""
        share = self.infer / (self.infer + self.simulate)
        start = UNCOUNTED / CYCLES * self.horizon
        return Schedule(style, self.learner_cores, Timeline([], share), start, self.horizon)


class InStep:
    """Actors and a learner that wait for each other, on rows of a schedule."""

    def __init__(self, case: Case, schedule: Schedule, actors: list[str], learner: str) -> None:
        self.case = case
        self.schedule = schedule
        self.line = schedule.timeline
        self.actors = actors
        self.learner = learner
        self.now = 0.0  # when the last cycle was over
        self._owed = 0.0
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
        self.schedule.made.append((end, self.case.costs.units))
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
            self.schedule.learned.append((at, costs.batch))
        return at

    def wait(self, ready: list[float], until: float) -> None:
        """Everybody has to have the new weights before the next cycle."""
        for row, since in zip(self.actors, ready, strict=True):
            self.line.add(row, Doing.WEIGHTS, since, until)
        self.now = until
        self._ends.append(until)

    def finished(self) -> Schedule:
        """The schedule, counted from the end of one cycle to the end of another."""
        self.schedule.start = next(end for end in self._ends if end >= self.schedule.start)
        self.schedule.end = self._ends[-1]
        return self.schedule
