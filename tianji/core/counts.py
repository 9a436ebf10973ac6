"""What every role counts: one fixed vector per role, read by whoever watches the run."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tianji.core.schema import Field, Schema

Vector = npt.NDArray[np.float64]


class Count(enum.IntEnum):
    """Places in a role's vector of counters."""

    READY_AT = 0  # clock at which the role had everything it needs
    BUSY_SECONDS = enum.auto()  # spent in steps that did something
    IDLE_SECONDS = enum.auto()  # spent waiting
    PRODUCED = enum.auto()  # valid environment steps in pushed trajectories (actor)
    RECEIVED = enum.auto()  # valid environment steps taken (buffer)
    CONSUMED = enum.auto()  # valid samples learned from (learner)
    FIRST_CONSUMED_AT = enum.auto()  # clock of the first update (learner)
    VERSION = enum.auto()  # updates behind the weights in use
    PUSHED = enum.auto()  # messages sent: trajectories, batches or weights
    REFUSED = enum.auto()  # times that a full channel said no
    DROPPED = enum.auto()  # valid environment steps refused for their age (buffer)
    NEW = enum.auto()  # samples learned from for the first time (learner)
    FRESHNESS = enum.auto()  # sum over batches of batch size / samples in the store (buffer)
    QUEUE = enum.auto()  # messages waiting for this role
    UNITS_RECEIVED = enum.auto()  # as the balance counts, without what was dropped (buffer)
    UNITS_CONSUMED = enum.auto()  # as the balance counts (buffer)
    WEIGHTS_TAKEN = enum.auto()  # times that newer weights were loaded (actor)
    SAVED = enum.auto()  # number of the last checkpoint that the role has written its part of
    SAVE_ERROR = enum.auto()  # why that failed, as an errno; 0: it did not
    FUSIONS = enum.auto()  # means that were made (reducer) or taken (learner)
    DISTANCE = enum.auto()  # between groups before the last fusion, see `reducer` (reducer)
    FUSION_KL = enum.auto()  # how far the last one moved the policy; 0: not measured (learner)
    PAUSED_SECONDS = enum.auto()  # spent at rest, as it was told (actor)
    THREADS = enum.auto()  # of its numerical library (learner)
    FREE_CORES = enum.auto()  # where it may run, unused in the last second (learner)
    APART_SECONDS = enum.auto()  # of the busy ones, beside the others of its process (buffer)
    LATE_PRIORITIES = enum.auto()  # priorities of samples that were gone (buffer), or not sent
    ENV_RESTARTS = enum.auto()  # environments that raised and were made anew (actor)
    NOT_FINITE = enum.auto()  # episodes discarded for NaN or Inf (actor)
    SKIPPED = enum.auto()  # updates whose loss or gradient was not finite (learner)
    GONE_BACK = enum.auto()  # times that an algorithm was taken from a checkpoint (learner)
    LOST_EPISODES = enum.auto()  # that a game of several agents broke by itself (actor)
    OVERHEAD_SECONDS = enum.auto()  # of its process: looks in vain, reports, copies for checkpoints
    WAITED_WEIGHTS = enum.auto()  # of the idle seconds: for the first ones, or newer (actor)
    WAITED_TRAJECTORIES = enum.auto()  # the same for them (buffer)
    WAITED_BATCH = enum.auto()  # (learner)
    WAITED_GRADIENTS = enum.auto()  # of the other learners of its group (learner)
    WAITED_PARAMETERS = enum.auto()  # of the groups (reducer)
    WAITED_ACTIONS = enum.auto()  # of an inference role (actor)
    WAITED_STEPS = enum.auto()  # of the actors' environments (inference)
    WAITED_ORDER = enum.auto()  # to be told what to do (evaluator)
    WAITED_ROOM = enum.auto()  # for others to take, or learn from, what was sent (actor, buffer)
    MESSAGES = enum.auto()  # that its channel has carried, of all its lives (actor)


WORDS_BYTES = 4_096  # of an actor's words about the newest mishap of its environments


SPENT = [  # where the time of a role went
    Count.BUSY_SECONDS,
    Count.IDLE_SECONDS,
    Count.PAUSED_SECONDS,
    Count.OVERHEAD_SECONDS,
]

WAITS = [count for count in Count if count.name.startswith("WAITED_")]  # the idle seconds, by why

OF_THIS_PROCESS = (
    Count.READY_AT,
    Count.QUEUE,
    Count.SAVED,
    Count.SAVE_ERROR,
    Count.THREADS,
    Count.FREE_CORES,
)
"""Counters that mean nothing to a process that goes on with another's work."""


class Histogram:
    """Counts of whole numbers >= 0: exact below 64, then eight bins to each doubling."""

    EXACT = 64
    PER_DOUBLING = 8
    N_BINS = EXACT + 26 * PER_DOUBLING  # up to 2 ** 32
    _EDGES = np.concatenate(
        [np.arange(EXACT), np.ceil(2.0 ** (6 + np.arange(26 * PER_DOUBLING) / PER_DOUBLING))]
    )

    def __init__(self, bins: Vector | None = None) -> None:
        self.bins = np.zeros(self.N_BINS) if bins is None else bins

    def add(self, values: npt.NDArray[np.int64]) -> None:
        """Counts every value once."""
        if values.size and values.max() < self.EXACT:
            places = values
        else:
            places = np.searchsorted(self._EDGES, values, side="right") - 1
        np.add.at(self.bins, places, 1.0)

    @property
    def total(self) -> float:
        """How many values were counted."""
        return float(self.bins.sum())

    @property
    def mean(self) -> float:
        """Mean value; each bin counts with its lower edge."""
        return float(self.bins @ self._EDGES / self.total) if self.total else 0.0

    @property
    def maximum(self) -> float:
        """Lower edge of the highest bin with a value in it."""
        filled = np.flatnonzero(self.bins)
        return float(self._EDGES[filled[-1]]) if filled.size else 0.0

    def percentile(self, share: float) -> float:
        """The value below or at which `share` (0 to 1) of all values lie."""
        if not self.total:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self.bins), share * self.total))
        return float(self._EDGES[min(place, self.N_BINS - 1)])

    def rows(self) -> list[tuple[int, int]]:
        """(lower edge, count) of every bin that has a value in it."""
        filled = np.flatnonzero(self.bins)
        return [(int(self._EDGES[i]), int(self.bins[i])) for i in filled]

    def summary(self) -> dict[str, float]:
        """Mean, median, 95th percentile and maximum."""
        return {
            "mean": round(self.mean, 3),
            "p50": self.percentile(0.5),
            "p95": self.percentile(0.95),
            "max": self.maximum,
        }


def whole_of(together: Sequence[Vector]) -> float:
    """Seconds of a process, by what its roles have counted: they take turns, or sleep together."""
    beside = sum(float(counts[Count.APART_SECONDS]) for counts in together)  # in turns with nobody
    busy, *shared = zip(*(counts[SPENT].tolist() for counts in together), strict=True)
    return float(sum(busy) - beside + sum(max(times) for times in shared))


def counts_state(counts: Vector) -> dict[str, float]:
    """The counters by name, for a checkpoint."""
    return {c.name.lower(): float(counts[c]) for c in Count if c not in OF_THIS_PROCESS}


def restore_counts(counts: Vector, state: dict[str, float]) -> None:
    """Goes on from counters that `counts_state` named; one that it did not know stays."""
    for count in Count:
        counts[count] = state.get(count.name.lower(), counts[count])


def report_schema() -> Schema:
    """What every role publishes about itself."""
    return Schema((Field("counts", "float64", (len(Count),)),))


def actor_report_schema() -> Schema:
    """What an actor publishes: what broke in its environments, too."""
    return Schema((*report_schema().fields, Field("mishap", "uint8", (WORDS_BYTES,))))


def learner_report_schema(scalars: tuple[str, ...]) -> Schema:
    """What a learner publishes; `scalars` names what its algorithm's `learn` returns."""
    return Schema(
        (
            *report_schema().fields,
            Field("staleness", "float64", (Histogram.N_BINS,)),
            Field("age", "float64", (Histogram.N_BINS,)),
            Field("new", "float64", (Histogram.N_BINS,)),
            Field("scalars", "float64", (len(scalars),)),
        )
    )
