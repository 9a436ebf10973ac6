"""What a plan predicted beside what was measured."""

from __future__ import annotations

from typing import Any

from tianji.planning.planfile import Plan

SETTLING_SECONDS = 1.0  # from the first update until rates are those of a run that goes on
SHORTEST_SECONDS = 1.0  # that a rate is taken over


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

    def rates(self) -> tuple[float, float] | None:
        """Steps made and samples learned from per second; None of a run that was too short."""
        if self._first is None or self._last[0] - self._first[0] < SHORTEST_SECONDS:
            return None
        seconds, made, learned = (b - a for a, b in zip(self._first, self._last, strict=True))
        return made / seconds, learned / seconds


def compared(plan: Plan, measured: tuple[float, float] | None) -> dict[str, Any]:
    """As `summary.json` has it; the errors are shares of what was measured."""
    expected = plan.prediction.production, plan.prediction.consumption
    return {
        "split": plan.split.name,
        "predicted": _named(expected),
        "measured": None if measured is None else _named(measured),
        "error": None
        if measured is None
        else _named(
            tuple(
                round(p / m - 1.0, 4) if m else None
                for p, m in zip(expected, measured, strict=True)
            )
        ),
    }


def _named(rates: tuple[float | None, ...]) -> dict[str, float | None]:
    made, learned = (None if rate is None else round(rate, 4) for rate in rates)
    return {"production_per_second": made, "consumption_per_second": learned}


def said(compared: dict[str, Any]) -> str:
    """The same in a line."""
    made, learned = compared["predicted"].values()
    words = f"{compared['split']}, predicted {made:,.0f} steps/s made, {learned:,.0f} samples/s"
    if compared["measured"] is None:
        return f"{words}; the run was too short to compare"
    was_made, was_learned = compared["measured"].values()
    error = compared["error"]["production_per_second"]
    off = "" if error is None else f" ({100 * error:+.0f} %)"
    return f"{words}; measured {was_made:,.0f} and {was_learned:,.0f}{off}"
