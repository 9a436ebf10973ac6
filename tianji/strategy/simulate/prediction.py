"""What a simulation says of a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from tianji.strategy.plan.split import Bound
from tianji.strategy.simulate.core_layout import Layout


@dataclass(frozen=True)
class Idle:
    """Shares of the time in which roles had nothing to do."""

    actors: float
    buffer: float  # that of the learner's process where it rides there
    learner: float
    weights: float  # I: of the actors' time
    action: float  # II: of the actors' time; none where inference and simulation are one loop
    trajectories: float  # III: of the learner's time
    room: float  # of the actors' time: held back because the learner has enough


@dataclass(frozen=True)
class Staleness:
    """Updates between the policy that made a sample and the one that learns from it."""

    mean: float
    p50: float
    p95: float


@dataclass(frozen=True)
class Simulated:
    """Rates of all groups together; shares and staleness are those of any of them."""

    layout: Layout
    cores: int
    envs: int  # of each actor
    production: float  # units per second
    receiving: float
    consumption: float
    updates: float  # per second
    idle: Idle
    link: float  # share of its time that the link to the learner's host is used
    weights_link: float  # the same of the way back, which carries what is newest and never holds up
    staleness: Staleness
    knee: float  # N_A* of equation 1
    limit: Bound
    warmup_seconds: float
    fusions: float  # per second; 0 with one group
    fusions_wanted: float  # the same as the configuration asks for it
    reducer: float  # share of its time that it is busy
    reducer_link: float  # share of its time that the link to its host carries parameters
    seconds: float  # simulated, of one group
    n_events: int
    offered: int | None = field(default=None, compare=False)
    """Cores that the layout was to make most of; None: it was named."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; what has no end is null."""
        plain = asdict(self)
        plain["limit"] = self.limit.value
        plain["knee"] = None if np.isinf(self.knee) else self.knee
        return plain


def staleness_of(lags: Sequence[int], most: float = 0.0) -> Staleness:
    """From the lags of trajectories, each `most` updates older at the end of its time in a pool.

    A sample is drawn at any moment of that time with the same probability.
    """
    if not lags:
        return Staleness(0.0, 0.0, 0.0)
    ages = most * (np.arange(100) + 0.5) / 100
    values, counts = np.unique(np.asarray(lags), return_counts=True)
    all_ = (values[:, None] + ages[None, :]).ravel()
    order = np.argsort(all_)
    weight = np.cumsum(np.repeat(counts, len(ages))[order])
    p50, p95 = (all_[order][np.searchsorted(weight, share * weight[-1])] for share in (0.5, 0.95))
    return Staleness(float(np.mean(lags) + most / 2), float(p50), float(p95))
