"""What is compared: numbers of one run, and the distance between two distributions of ages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tianji.observe.episode_file import History
from tianji.observe.watch import WINDOW

Floats = npt.NDArray[np.float64]
Rows = Sequence[tuple[int, int]]  # (lower edge, count) of every bin that has a value in it


@dataclass(frozen=True)
class Training:
    """One run, serial or distributed."""

    engine: str  # "serial", or the engine's name
    seed: int
    received: int  # environment steps
    updates: int
    seconds: float  # of training, without what it takes to start
    ratio: float | None  # samples consumed per sample received
    freshness: float | None
    new: float | None  # share of the samples consumed that were consumed for the first time
    staleness: Rows  # in updates, of the samples consumed
    age: Rows  # in steps, of the samples consumed
    episodes: History


class Reached(NamedTuple):
    """When the mean return was first at the target."""

    steps: float
    updates: float


def means(episodes: History) -> Floats:
    """Mean return of the last 100 episodes, or of all if there are fewer, after each episode."""
    sums = np.concatenate([[0.0], np.cumsum(episodes.returned)])
    last = np.arange(1, sums.size)
    first = np.maximum(0, last - WINDOW)
    return np.asarray((sums[last] - sums[first]) / (last - first))


def return_after(episodes: History, steps: float) -> float | None:
    """Mean return of the last 100 episodes that ended within so many steps; None without any."""
    n = int(np.searchsorted(episodes.steps, steps, side="right"))
    return float(np.mean(episodes.returned[max(0, n - WINDOW) : n])) if n else None


def gain(episodes: History, steps: float) -> float | None:
    """What was learned: the return after so many steps less that of the first 100 episodes."""
    last = return_after(episodes, steps)
    return None if last is None else last - float(np.mean(episodes.returned[:WINDOW]))


def reached(episodes: History, target: float, steps: float) -> Reached | None:
    """Where 100 episodes first returned `target` on average, if that was within `steps`."""
    enough = np.flatnonzero(means(episodes)[WINDOW - 1 :] >= target)
    if not enough.size or episodes.steps[place := int(enough[0]) + WINDOW - 1] > steps:
        return None
    return Reached(float(episodes.steps[place]), float(episodes.version[place]))


def curve(episodes: History, grid: Floats) -> Floats:
    """The mean return at every point of a grid of steps; NaN before the first episode."""
    places = np.searchsorted(episodes.steps, grid, side="right")
    values = np.concatenate([[np.nan], means(episodes)])
    return np.asarray(values[places])


def pooled(several: Iterable[Rows]) -> list[tuple[int, int]]:
    """One histogram of all runs."""
    total: dict[int, int] = {}
    for rows in several:
        for edge, count in rows:
            total[edge] = total.get(edge, 0) + count
    return sorted(total.items())


class Distance(NamedTuple):
    """How far two distributions are apart."""

    ks: float  # largest difference between the two shares at or below a value, 0 to 1
    wasserstein: float  # mean way that values must move to make one the other, in their unit


def distance(one: Rows, two: Rows) -> Distance:
    """Kolmogorov-Smirnov and Wasserstein distance of two histograms; zero where one is empty.

    Each bin counts with its lower edge, as it does in every summary of ours.
    """
    edges = np.array(sorted({edge for edge, _ in (*one, *two)}), np.float64)
    if not one or not two:
        return Distance(0.0, 0.0)
    gap = np.abs(_shares(one, edges) - _shares(two, edges))
    return Distance(float(gap.max()), float(gap[:-1] @ np.diff(edges)))


def _shares(rows: Rows, edges: Floats) -> Floats:
    """The share of the values at or below each edge."""
    counts = np.zeros(edges.size)
    found = np.array(rows, np.float64)
    counts[np.searchsorted(edges, found[:, 0])] = found[:, 1]
    return np.asarray(np.cumsum(counts) / counts.sum())


def percentile(rows: Rows, share: float) -> float | None:
    """The value at or below which `share` of all values lie; None of an empty histogram."""
    if not rows:
        return None
    found = np.array(rows, np.float64)
    below = np.cumsum(found[:, 1])
    return float(found[int(np.searchsorted(below, share * below[-1])), 0])


def mean(rows: Rows) -> float | None:
    """The mean value; None of an empty histogram."""
    if not rows:
        return None
    edges, counts = np.array(rows, np.float64).T
    return float(edges @ counts / counts.sum())
