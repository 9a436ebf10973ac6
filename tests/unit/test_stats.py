"""The interquartile mean and its interval, against numbers found by hand or elsewhere."""

import tracemalloc

import numpy as np
import pytest

from tianji.core import stats
from tianji.core.stats import interval, iqm, stratified


@pytest.mark.parametrize(
    ("values", "middle"),
    [
        ([7], 7),
        ([1, 9], 5),
        ([1, 2, 9], 4),  # a quarter of three is less than one: nothing is cut
        ([100, 2, 4, -50], 3),
        ([8, 1, 2, 3, 4, 5, 6, 7], 4.5),
        ([0, 0, 1, 2, 3, 4, 90, 90, 90], 20),  # two of nine at each end: 1 2 3 4 90
    ],
)
def test_the_middle_half_is_averaged(values, middle):
    assert iqm(values) == pytest.approx(middle)


def test_the_iqm_is_the_trimmed_mean_of_scipy():
    scipy_stats = pytest.importorskip("scipy.stats")
    random = np.random.default_rng(0)
    for n in range(1, 40):
        values = random.normal(size=n)
        assert iqm(values) == pytest.approx(scipy_stats.trim_mean(values, 0.25))


def test_an_outlier_does_not_move_the_iqm():
    assert iqm([1, 2, 3, 4, 5, 6, 7, 1e9]) == iqm([1, 2, 3, 4, 5, 6, 7, 8])


def test_nothing_has_no_iqm():
    for nothing in ([], np.zeros((0, 3))):
        with pytest.raises(AssertionError):
            iqm(nothing)
        with pytest.raises(AssertionError):
            interval(nothing)
    with pytest.raises(AssertionError):
        stratified([])
    with pytest.raises(AssertionError):
        stratified([[1.0], []])


def test_one_value_is_its_own_interval():
    assert interval([3.5]) == (3.5, 3.5)
    assert stratified([[3.5]]) == (3.5, 3.5, 3.5)


def test_the_same_seed_gives_the_same_interval():
    values = np.random.default_rng(1).normal(size=12)
    assert interval(values, seed=4) == interval(values, seed=4) != interval(values, seed=5)


def test_the_interval_of_two_values_is_known():
    # Of two draws out of {0, 1} the mean is 0, 1/2 or 1 with chances 1/4, 1/2 and 1/4.
    assert interval([0, 1], share=0.95) == (0.0, 1.0)
    assert interval([0, 1], share=0.4) == (0.5, 0.5)


def test_the_interval_covers_the_true_middle_about_as_often_as_it_says():
    random = np.random.default_rng(2)
    hits = 0
    for seed in range(200):
        low, high = interval(random.normal(size=40), seed=seed, n=400)
        hits += low < 0 < high
    assert 0.88 < hits / 200 < 0.99


def test_more_values_make_the_interval_narrower():
    random = np.random.default_rng(3)
    widths = [np.diff(interval(random.normal(size=n))).item() for n in (10, 100, 1000)]
    assert widths[0] > widths[1] > widths[2]


def test_groups_are_drawn_from_apart():
    # Whichever is drawn, half of the values are 0 and half are 1: nothing is left to chance.
    assert stratified([[0] * 10, [1] * 10]) == (0.5, 0.5, 0.5)
    low, high = interval([0] * 10 + [1] * 10)
    assert low < 0.5 < high


def test_groups_of_different_sizes_count_by_their_values():
    middle, low, high = stratified([[1.0], [2.0, 3.0, 4.0]])
    assert middle == 2.5  # of 1 2 3 4
    assert low <= middle <= high


def test_many_values_take_little_memory_and_give_what_one_block_gives(monkeypatch):
    values = np.random.default_rng(5).normal(size=3000)
    tracemalloc.start()
    try:
        found = interval(values)
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(stats, "BLOCK", 10**9)
    assert interval(values) == found
