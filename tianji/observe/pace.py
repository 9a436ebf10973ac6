"""What a plan predicted beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tianji.core.wording import per_second

SETTLING_SECONDS = 1.0  # from the first update until rates are those of a run that goes on
SHORTEST_SECONDS = 1.0  # that a rate is taken over
EQUAL_SHARE = 0.01  # of a prediction: what is nearer to it is called the same


@dataclass(frozen=True)
class Pace:
    """How fast a run makes steps and learns from samples."""

    production_per_second: float
    consumption_per_second: float

    def to_json(self) -> dict[str, float]:
        """As `summary.json` has it."""
        return {name: round(rate, 4) for name, rate in asdict(self).items()}


class Steady:
    """Rates since a run has settled: neither starting, nor warming up, nor stopping."""

    def __init__(self) -> None:
        self._learning_since: float | None = None
        self._first: tuple[float, int, int] | None = None
        self._last = (0.0, 0, 0)

    def read(self, now: float, updates: int, produced: int, consumed: int) -> None:
        """Another look at the counters; `updates` are those of this process."""
        if updates and self._learning_since is None:
            self._learning_since = now
        self._last = now, produced, consumed
        since = self._learning_since
        if self._first is None and since is not None and now - since >= SETTLING_SECONDS:
            self._first = self._last

    def pace(self) -> Pace | None:
        """None of a run that was too short."""
        if self._first is None or self._last[0] - self._first[0] < SHORTEST_SECONDS:
            return None
        seconds, made, learned = (b - a for a, b in zip(self._first, self._last, strict=True))
        return Pace(made / seconds, learned / seconds)


@dataclass(frozen=True)
class PaceComparison:
    """Two paces of one split."""

    split: str
    predicted: Pace
    measured: Pace | None  # None: the run was too short

    def to_json(self) -> dict[str, Any]:
        """As `summary.json` has it; the errors are shares of what was measured."""
        return {
            "split": self.split,
            "predicted": self.predicted.to_json(),
            "measured": None if self.measured is None else self.measured.to_json(),
            "error": None if self.measured is None else self._errors(self.measured),
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> PaceComparison:
        """Reads what `to_json` wrote."""
        measured = plain["measured"]
        return cls(
            plain["split"],
            Pace(**plain["predicted"]),
            None if measured is None else Pace(**measured),
        )

    def sentence(self) -> str:
        """The same in a line; behind what was measured stands how much more or less that is."""
        predicted, measured = self.predicted, self.measured
        words = (
            f"{self.split}, predicted: produced {per_second(predicted.production_per_second)} steps"
            f"/s, consumed {per_second(predicted.consumption_per_second)} samples/s"
        )
        if measured is None:
            return f"{words}; the run was too short to compare"
        made = _beside(measured.production_per_second, predicted.production_per_second)
        learned = _beside(measured.consumption_per_second, predicted.consumption_per_second)
        return f"{words}; measured {made} and {learned}"

    def _errors(self, measured: Pace) -> dict[str, float | None]:
        predicted = asdict(self.predicted)
        return {
            name: round(predicted[name] / rate - 1.0, 4) if rate else None
            for name, rate in asdict(measured).items()
        }


def _beside(measured: float, predicted: float) -> str:
    """As in `14,456 (42 % less)`: what was measured, seen from what was predicted."""
    share = measured / predicted - 1.0 if predicted else math.inf
    if math.isinf(share):
        return f"{per_second(measured)}"
    if abs(share) < EQUAL_SHARE:
        return f"{per_second(measured)} (as predicted)"
    return f"{per_second(measured)} ({100 * abs(share):.0f} % {'more' if share > 0 else 'less'})"
