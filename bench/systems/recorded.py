"""Groups of the simulator that note who does what when; one has priorities, as ApeX has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from systems.timeline import Doing, Timeline
from tianji.strategy.simulate.core_layout import Costs
from tianji.strategy.simulate.simulated_group import ACT, Group


class Recorded(Group):
    """A group whose processes are rows of a timeline."""

    def __init__(self, costs: Costs, seed: int, spread: float, timeline: Timeline) -> None:
        self._timeline = timeline
        super().__init__(costs, seed, spread)

    def note(self, row: str, doing: str, start: float, end: float) -> None:
        if doing == ACT:
            self._timeline.add_rollout(row, start, end, self.costs.steps)
        else:
            self._timeline.add(row, Doing[doing.upper()], start, end)


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
            yield from self._busy(self.drawing, "priority", self.costs.priority_seconds)
            self._unweighed -= 1
            self._in_flight -= 1
        yield from super()._buffer_steps()
