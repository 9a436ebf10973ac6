"""Groups of the simulator that note who does what when; one has priorities, as ApeX has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from systems.timeline import Doing, Timeline
from tianji.strategy.simulate.core_layout import Costs
from tianji.strategy.simulate.events import Level, Routine
from tianji.strategy.simulate.simulated_group import Group, Roles


class Recorded(Group):
    """A group whose processes are rows of a timeline."""

    def __init__(self, costs: Costs, seed: int, spread: float, timeline: Timeline) -> None:
        self._timeline = timeline
        self._waits: dict[str, tuple[Doing, float]] = {}  # who waits for what, since when
        super().__init__(costs, seed, spread)

    def close(self) -> None:
        """Notes how long those who wait have waited by now."""
        for row in list(self._waits):
            self._waited(row)

    def _waited(self, row: str) -> None:
        why, since = self._waits.pop(row)
        self._timeline.add(row, why, since, self.agenda.now)

    def _act(self, i: int, rollout: float) -> None:
        acted = self.agenda.now + rollout
        self._timeline.add_rollout(f"A{i}", self.agenda.now, acted, self.costs.steps)
        self._timeline.add(f"A{i}", Doing.SEND, acted, acted + self.costs.send_seconds)
        super()._act(i, rollout)

    def _block(self, i: int, waits: Level) -> None:
        why = Doing.WEIGHTS if waits is self.for_weights else Doing.ROOM
        self._waits[f"A{i}"] = why, self.agenda.now
        super()._block(i, waits)

    def _unblock(self, i: int) -> None:
        if i in self._blocked:
            self._waited(f"A{i}")
        super()._unblock(i)

    def _asleep(self, roles: Roles) -> Routine:
        row = "B" if roles == (self._buffer_steps,) else "L"
        full = row == "B" and not self._may_receive()
        self._waits[row] = Doing.ROOM if full else Doing.TRAJECTORIES, self.agenda.now
        yield from super()._asleep(roles)
        self._waited(row)

    def _busy(self, level: Level, seconds: float) -> Iterator[float]:
        doing = Doing.UPDATE if level is self.updating else Doing.RECEIVE
        return self._doing(doing, level, seconds)

    def _doing(self, doing: Doing, level: Level, seconds: float) -> Iterator[float]:
        """One piece of work, noted."""
        row = "B" if self.costs.is_alone and doing is not Doing.UPDATE else "L"
        self._timeline.add(row, doing, self.agenda.now, self.agenda.now + seconds)
        return super()._busy(level, seconds)


@dataclass(frozen=True)
class PrioritisedCosts(Costs):
    """The same with new priorities, which must be back before the next batch is drawn."""

    priority_seconds: float = 0.0  # of a batch

    @property
    def batches_ahead(self) -> int:
        return 1


class Prioritised(Recorded):
    """A group whose buffer notes the new priorities of every batch that was learned from."""

    costs: PrioritisedCosts
    _unweighed = 0  # batches whose priorities it has yet to note

    def _learned(self) -> None:
        self._unweighed += 1
        self._wake(self._buffer)

    def _freed_batch(self) -> None:
        """Its slot is free when its priorities were noted."""

    def _buffer_steps(self) -> Iterator[float]:
        while self._unweighed:
            yield from self._doing(Doing.PRIORITY, self.drawing, self.costs.priority_seconds)
            self._unweighed -= 1
            self._in_flight -= 1
        yield from super()._buffer_steps()
