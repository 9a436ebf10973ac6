"""What a learner measures of the samples it consumes: staleness, age and freshness."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tianji.core.algorithm import Scalars
from tianji.core.counts import Count, Histogram, Vector
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.core.state import State


class Consumption:
    """Histograms and counters of everything that was learned from, and the last scalars."""

    def __init__(
        self,
        counts: Vector,
        scalars: tuple[str, ...],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._counts = counts
        self._names = scalars
        self._scalars = np.zeros(len(scalars))
        self._last: Scalars | None = None  # of the newest update, not looked at yet
        self._version = 0  # before that update
        self._staleness = Histogram()
        self._age = Histogram()
        self._new = Histogram()  # per batch, in percent
        self._clock = clock

    def add(self, batch: Arrays, version: int, scalars: Scalars) -> None:
        """Counts a batch that a learner of this `version` has just learned from."""
        consumed = batch["valid"].sum() if "valid" in batch else batch["version"].size
        if not self._counts[Count.CONSUMED]:
            self._counts[Count.FIRST_CONSUMED_AT] = self._clock()
        self._counts[Count.CONSUMED] += consumed
        new = batch["new"].mean()
        self._counts[Count.NEW] += consumed * new
        self._new.add(np.array([round(100 * new)]))
        self._staleness.add(version - batch["version"])
        self._age.add(batch["age"])
        if scalars.keys() != set(self._names):
            raise TianJiError(f"learn must return {self._names}, not {tuple(scalars)}")
        self._last, self._version = scalars, version
        if not any(getattr(value, "is_cuda", False) for value in scalars.values()):
            self.read()

    def read(self) -> None:
        """Looks at the last scalars; those on a GPU, which is waited for here, only when asked."""
        if self._last is None:
            return
        scalars, version, self._last = self._last, self._version, None
        for i, name in enumerate(self._names):
            self._scalars[i] = float(scalars[name])
        if not np.isfinite(self._scalars).all():
            name = self._names[int(np.flatnonzero(~np.isfinite(self._scalars))[0])]
            raise TianJiError(
                f"{name} is {float(scalars[name])} at update {version + 1}: what follows would be "
                "lost; lower hyp.lr, clip the gradient, or look at the rewards"
            )

    def report(self) -> Arrays:
        """As `counts.learner_report_schema` lays it out."""
        self.read()
        return {
            "counts": self._counts,
            "staleness": self._staleness.bins,
            "age": self._age.bins,
            "new": self._new.bins,
            "scalars": self._scalars,
        }

    def state(self) -> State:
        """Everything but the counters, which are the role's."""
        report = self.report()
        return {name: array for name, array in report.items() if name != "counts"}

    def restore(self, state: State) -> None:
        """Goes on counting where another stood; the counters are left to the role."""
        for name, array in self.report().items():
            if name != "counts":
                array[...] = state[name]
