"""The grids of bench/async_grid.py, and the statistics of its table."""

import math
from concurrent.futures import Future
from unittest.mock import Mock

import benches  # noqa: F401  (finds the scripts)

# isort: split
import async_grid
import pytest

from tianji import config as configs
from tianji.job.job import load_algorithm


@pytest.mark.parametrize("grid", async_grid.GRIDS)
def test_every_variant_of_a_grid_is_a_configuration_in_which_no_key_is_idle(grid):
    for config, settings in async_grid.GRIDS[grid]().values():
        notices = []
        load_algorithm(configs.load(config, settings), notices)
        assert notices == []


@pytest.mark.parametrize("n", [1, 2, 4])
def test_each_group_has_one_actor(n):
    parallel = configs.load(*async_grid.groups()[f"{n} groups"]).parallel
    assert (parallel.global_cfg.group_num, parallel.actor_cfg.num) == (n, 1)


def test_the_median_lies_between_order_statistics_in_95_of_100_samples():
    assert async_grid.interval([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)
    assert async_grid.interval([*range(1, 33)]) == (16.5, 10, 23)  # binomial(32, 1/2)


def test_ratios_are_of_the_same_seed_and_count_what_never_ended():
    rows = [{"variant": "first", "seed": s, "x": 2.0} for s in (1, 2, 3)]
    rows += [{"variant": "other", "seed": s, "x": x} for s, x in ((1, 3.0), (2, math.inf), (4, 9))]
    assert async_grid.ratio(rows, "other", "x") == "inf (1.50 to inf)"
    assert async_grid.ratio(rows, "first", "x") == "1.00 (1.00 to 1.00)"


def test_what_a_run_raises_unforeseen_is_raised_and_no_other_is_begun():
    pool, goes_on, failed = Mock(), Future(), Future()
    failed.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        async_grid.results(pool, [goes_on, failed])
    pool.shutdown.assert_called_once_with(cancel_futures=True)


def test_each_run_has_cores_of_its_own():
    free = async_grid.places([0, 1, 2, 3, 4], 2)
    assert [free.get(), free.get()] == [{0, 1}, {2, 3}] and free.empty()
    assert async_grid.places([0], 2).empty()
