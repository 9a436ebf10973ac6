"""Statistics of a few returns: the interquartile mean, and how far chance may have moved it.

Few episodes or seeds make a mean depend on its outliers and a median forget most of what was
measured. The interquartile mean (IQM) is the mean of the middle half; its interval is found by
drawing the same number of values again and again from those that there are (Agarwal et al., Deep
Reinforcement Learning at the Edge of the Statistical Precipice, 2021).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
BLOCK = 500_000  # values drawn at a time; with their indices and copies they take some 16 MB


def iqm(values: npt.ArrayLike) -> float:
    """The mean of the middle half: a quarter of the values, rounded down, is cut at each end."""
    return float(_iqm_of_rows(_flat(values)[None])[0])


def interval(
    values: npt.ArrayLike, seed: int = 0, n: int = 2000, share: float = 0.95
) -> tuple[float, float]:
    """Where `share` of the IQMs lie that `n` fresh draws of these values have (low, high)."""
    _, low, high = stratified([_flat(values).tolist()], seed, n, share)
    return low, high


def stratified(
    groups: Sequence[Sequence[float]], seed: int = 0, n: int = 2000, share: float = 0.95
) -> tuple[float, float, float]:
    """The IQM over all values of all groups, with its interval (IQM, low, high).

    Each draw takes as many values from every group as the group has, so that a task or a run with
    many values cannot crowd out the others by chance.
    """
    assert groups, "the IQM of nothing"
    assert 0 < share < 1, share
    generator = np.random.default_rng(seed)
    arrays = [_flat(group) for group in groups]
    rows = max(1, BLOCK // sum(each.size for each in arrays))
    blocks = [_draw(arrays, generator, min(rows, n - i)) for i in range(0, n, rows)]
    with np.errstate(invalid="ignore"):  # infinite returns have no interval, which is no fault here
        low, high = np.quantile(np.concatenate(blocks), [(1 - share) / 2, (1 + share) / 2])
    return iqm(np.concatenate(arrays)), float(low), float(high)


def _draw(arrays: list[Floats], generator: np.random.Generator, n: int) -> Floats:
    """The IQMs of `n` draws."""
    drawn = [each[generator.integers(0, each.size, (n, each.size))] for each in arrays]
    return _iqm_of_rows(np.concatenate(drawn, axis=1))


def _flat(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, np.float64).reshape(-1)
    assert array.size, "the IQM of nothing"
    return array


def _iqm_of_rows(rows: Floats) -> Floats:
    size = rows.shape[1]
    cut = size // 4
    middle = np.partition(rows, [cut, size - cut - 1], axis=1)[:, cut : size - cut]
    with np.errstate(invalid="ignore"):
        return np.asarray(middle.mean(axis=1))
