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

LOST = (
    "what follows would be lost; lower hyp.lr, clip the gradient (hyp.clip_grad_norm or "
    "hyp.max_grad_norm), or look at the rewards"
)

HISTOGRAMS = ("staleness", "age", "new")


class SampleStats:
    """Histograms and counters of everything that was learned from, and the last scalars."""

    def __init__(
        self,
        counts: Vector,
        scalars: tuple[str, ...],
        clock: Callable[[], float] = time.monotonic,
        n_left_out: Callable[[], int | None] = lambda: None,  # steps of the optimiser
    ) -> None:
        self._counts = counts
        self._names = scalars
        self._scalars = np.zeros(len(scalars))  # the last finite ones
        self._last: Scalars | None = None  # of the newest update, not looked at yet
        self._version = 0  # before that update
        self._n_left_out, self._left_out = n_left_out, n_left_out() or 0
        self._unread = 0  # updates since the last look
        self.bad_in_a_row = 0  # updates, up to the last look, that could not be made
        self.trouble = ""  # of the last of them
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
        # After a resume samples may be newer than a learner that was saved before their buffer.
        self._staleness.add(np.maximum(version - batch["version"], 0))
        self._age.add(batch["age"])
        if scalars.keys() != set(self._names):
            raise TianJiError(f"learn must return {self._names}, not {tuple(scalars)}")
        self._last, self._version = scalars, version
        self._unread += 1
        if not any(getattr(value, "is_cuda", False) for value in scalars.values()):
            self.read()

    def read(self) -> None:
        """Looks at the last scalars; those on a GPU, which is waited for here, only when asked."""
        if self._last is None:
            return
        scalars, self._last = self._last, None
        values = np.array([float(scalars[name]) for name in self._names])
        finite = np.isfinite(values)
        self._scalars[finite] = values[finite]
        unsound = [i for i, sound in enumerate(finite.tolist()) if not sound]
        trouble = "its gradient has NaN or Inf"
        if unsound:
            trouble = f"{self._names[unsound[0]]} is {values[unsound[0]]}"
        self._judge(trouble, bool(unsound))

    def _judge(self, trouble: str, unsound: bool) -> None:
        """Counts the updates since the last look that were skipped, in whole or in part."""
        n, left_out = self._unread, self._n_left_out()
        self._unread = 0
        if left_out is None:  # nobody kept the weights from it
            if unsound:
                raise TianJiError(f"{trouble} at update {self._version + 1}: {LOST}")
            return
        bad = min(n, max(left_out - self._left_out, int(unsound)))
        self._left_out = left_out
        if not bad:
            self.bad_in_a_row = 0
            return
        self._counts[Count.SKIPPED] += bad
        self.bad_in_a_row = self.bad_in_a_row + bad if bad == n else bad
        self.trouble = f"{trouble} at update {self._version + 1}"

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
        """Everything but the counters, which are the role's; scalars by their names."""
        report = self.report()
        scalars = dict(zip(self._names, self._scalars.tolist(), strict=True))
        return {**{name: report[name] for name in HISTOGRAMS}, "scalars": scalars}

    def restore(self, state: State) -> None:
        """Goes on counting where another stood; the counters are left to the role.

        A scalar that is new since is 0 until the next update, and so are all that were saved
        without their names (by version 0.2).
        """
        report = self.report()
        for name in HISTOGRAMS:
            report[name][...] = state[name]
        known = state["scalars"] if isinstance(state["scalars"], dict) else {}
        self._scalars[:] = [known.get(name, 0.0) for name in self._names]
