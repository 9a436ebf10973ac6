"""Statistics of a few returns: the interquartile mean, and how far chance may have moved it.

Few episodes or seeds make a mean depend on its outliers and a median forget most of what was
measured. The interquartile mean (IQM) is the mean of the middle half; its interval is found by
drawing the same number of values again and again from those that there are (Agarwal et al., Deep
Reinforcement Learning at the Edge of the Statistical Precipice, 2021).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
NORMAL_95 = 1.96  # standard deviations on either side that hold 95 % of a normal distribution
STUDENT_95 = (  # the same of Student's t, by degrees of freedom from 1 on
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
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


def wilson(n_won: int, n: int) -> tuple[float, float]:
    """Where the true share lies of which `n_won` in `n` were seen, with 95 % (Wilson's interval).

    It stays within 0 and 1 and has a width where all were won, or none.
    """
    assert 0 <= n_won <= n and n, (n_won, n)
    share, z2 = n_won / n, NORMAL_95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    reach = NORMAL_95 / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def paired(
    first: npt.ArrayLike, second: npt.ArrayLike, seed: int = 0, n: int = 2000
) -> tuple[float, float, float]:
    """IQM of `second` minus IQM of `first`, with a 95 % interval (difference, low, high).

    Values at the same place belong together, as runs of the same seed do: each draw takes both or
    none of them. The interval is stretched as `few` says; one pair has no interval.
    """
    one, two = _flat(first), _flat(second)
    assert one.size == two.size, (one.size, two.size)
    difference = iqm(two) - iqm(one)
    if one.size == 1:
        return difference, -math.inf, math.inf
    places = np.random.default_rng(seed).integers(0, one.size, (n, one.size))
    drawn = _iqm_of_rows(two[places]) - _iqm_of_rows(one[places])
    low, high = np.quantile(drawn, [0.025, 0.975])
    wider = few(one.size)
    return (
        difference,
        difference - wider * max(0.0, difference - float(low)),
        difference + wider * max(0.0, float(high) - difference),
    )


def few(n: int) -> float:
    """By how much a 95 % bootstrap interval of `n` >= 2 values is stretched to both sides.

    Draws from few values vary less than fresh values would: by sqrt((n - 1) / n), and as if their
    spread were known and not estimated. The two factors put both right, as Student's t does for a
    mean (Hesterberg, What Teachers Should Know About the Bootstrap, 2015).
    """
    freedom = n - 1
    student = STUDENT_95[freedom - 1] if freedom <= len(STUDENT_95) else NORMAL_95 + 2.5 / freedom
    return student / NORMAL_95 * math.sqrt(n / freedom)


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
