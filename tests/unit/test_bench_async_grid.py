"""The grids of bench/async_grid.py, and the statistics of its table."""

import math
from concurrent.futures import Future
from unittest.mock import Mock

import benches  # noqa: F401  (finds the scripts)

# isort: split
import async_grid
import corrections
import numpy as np
import pytest
from fields import spec_of
from made_rollouts import random_batch

from tianji import config as configs
from tianji.algorithms.base import vtrace
from tianji.algorithms.ppo import PPOHyp
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.schema import Field
from tianji.job.job import load_algorithm


@pytest.mark.parametrize("grid", async_grid.GRIDS)
def test_every_variant_of_a_grid_is_a_configuration_in_which_no_key_is_idle(grid):
    for config, settings in async_grid.GRIDS[grid]().values():
        notices = []
        load_algorithm(configs.load(config, settings), notices)
        assert notices == []


OBS = Field("obs", "float32", (3,))


def prepared(algorithm, drift, **hyp):
    """A learner, a batch whose actions became likelier by `drift` (in logs), and its samples."""
    env = spec_of(OBS, Field("action", "int64"), 2, n_envs=2)
    job = Task(env, ModelConfig(hidden=(8,)), PPOHyp(mode="async", **hyp), 1)
    learner, random = algorithm(job, 0), np.random.default_rng(0)
    batch, _, _, _ = random_batch(0, 2, 5, 2)
    batch["obs"] = random.standard_normal((2, 6, 2, 3)).astype(np.float32)
    batch["action"] = random.integers(0, 2, batch["valid"].shape)
    batch["logp"] = np.zeros(batch["valid"].shape, np.float32)
    batch["logp"][batch["valid"]] = learner._prepare(*learner.stage(batch))[0].logp
    batch["logp"] -= np.asarray(drift, np.float32)
    return learner, batch, learner._prepare(*learner.stage(batch))[0]


@pytest.mark.parametrize("drift", [-1.0, 0.0, 2.0])
def test_vtrace_within_ppo_weighs_and_aims_as_that_of_impala(drift):
    learner, batch, samples = prepared(corrections.VTracePPO, drift, average_decay=0)
    value = learner.stage(batch)[1].through(learner.networks, False)[1]
    ratio = np.full(batch["valid"].shape, np.exp(np.float32(drift)))
    clips = 1.0, 1.0, learner.hyp.gae_lambda
    gain, target = vtrace(batch, value, None, learner.hyp.gamma, ratio, clips)
    gains, valid = samples.gains, batch["valid"]
    np.testing.assert_allclose(gains.values * gains.weights, gain[valid], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(samples.target, target[valid], rtol=1e-4, atol=1e-5)


def test_fresh_samples_leave_the_learning_rate_as_it_is_and_old_ones_lower_it_by_the_root():
    drifts = np.zeros((2, 5, 2), np.float32)
    assert prepared(corrections.ESSPPO, drifts)[0]._rate.next(0.0, 0) == pytest.approx(2.5e-3)
    drifts[0] = 3.0
    learner, _, samples = prepared(corrections.ESSPPO, drifts)
    assert samples.drift.ess < 0.9
    assert learner._rate.next(0.0, 0) == pytest.approx(2.5e-3 * samples.drift.ess**0.5)


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
