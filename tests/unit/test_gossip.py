"""The ring of bench/gossip.py: what a group gets of the others, and how it is compared."""

import math

import benches
import numpy as np
import pytest
from commands import TASKS
from gossip import INTERVALS, compared, costs, log_ratios, plan, typical
from ring_roles import AVERAGING, GOSSIP, NONE, crew, ring

from tianji import config as configs
from tianji.core.counts import Count
from tianji.job.factory import make_env
from tianji.job.job import prepare
from tianji.roles import Learner


def trained(way, n_groups, n_rounds=48):
    """The learners of groups that exchange after every third update, and the role that answers."""
    settings = (f"global_cfg.group_num={n_groups}", "learner_cfg.send_root_interval=3")
    config = configs.load(TASKS / "echo_dqn.py", settings)
    env = make_env(config)
    env.close()
    _, roles = crew(prepare(config, env.spec), way)
    for _ in range(n_rounds):
        for role in roles:
            role.step()
    return [role for role in roles if isinstance(role, Learner)], roles[-1]


def row(way, seed, steps, preset="ppo", groups=4, interval=10, limit=1_000):
    setting = {"preset": preset, "groups": groups, "interval": interval, "way": way}
    return {**setting, "seed": seed, "env_steps": steps, "limit": limit, "n_bytes": 400}


def test_each_group_gets_the_mean_of_its_own_and_those_before_it():
    rows = np.array([[1, 10], [3, 30], [7, 70]], np.float32)
    assert ring(rows).tolist() == [[4, 40], [2, 20], [5, 50]]
    assert ring(rows).dtype == np.float32


def test_a_ring_keeps_the_mean_of_all_and_leads_to_it():
    rows = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
    mean, mixed = rows.mean(axis=0), rows
    for _ in range(200):
        apart, mixed = np.linalg.norm(mixed - mean), ring(mixed)
        np.testing.assert_allclose(mixed.mean(axis=0), mean, atol=1e-5)
        assert np.linalg.norm(mixed - mean) < apart or apart < 1e-5
    np.testing.assert_allclose(mixed, np.broadcast_to(mean, mixed.shape), atol=1e-5)


def test_a_ring_of_two_is_the_mean():
    rows = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    assert np.array_equal(ring(rows), np.broadcast_to(np.mean(rows, axis=0), rows.shape))


def test_two_groups_that_gossip_learn_what_two_that_are_averaged_learn_to_the_last_bit():
    (averaged, reducer), (gossiping, answering) = trained(AVERAGING, 2), trained(GOSSIP, 2)
    assert answering.counts[Count.FUSIONS] == reducer.counts[Count.FUSIONS] > 3
    assert answering.counts[Count.DISTANCE] == pytest.approx(reducer.counts[Count.DISTANCE])
    for one, other in zip(averaged, gossiping, strict=True):
        assert one.algorithm.parameters().tobytes() == other.algorithm.parameters().tobytes()


def test_three_groups_that_gossip_stay_further_apart_and_both_exchange_equally_often():
    (averaged, reducer), (gossiping, answering) = trained(AVERAGING, 3), trained(GOSSIP, 3)
    assert [each.fusion.n_fusions for each in averaged] == [
        each.fusion.n_fusions for each in gossiping
    ]
    assert answering.counts[Count.DISTANCE] > reducer.counts[Count.DISTANCE]


def test_ratios_are_taken_of_runs_with_the_same_seed():
    rows = [row(AVERAGING, seed, 100 * seed) for seed in (1, 2, 3)]
    rows += [row(GOSSIP, seed, 200 * seed) for seed in (3, 1, 2)]
    assert np.exp(log_ratios(rows, AVERAGING, GOSSIP)) == pytest.approx([2.0, 2.0, 2.0])
    assert typical(log_ratios(rows, AVERAGING, GOSSIP)) == pytest.approx((2.0, 2.0, 2.0))
    assert log_ratios(rows, AVERAGING, NONE) == []


def test_a_run_without_its_pair_is_left_out():
    rows = [row(AVERAGING, 1, 100), row(AVERAGING, 2, 100), row(GOSSIP, 2, 300)]
    assert np.exp(log_ratios(rows, AVERAGING, GOSSIP)) == pytest.approx([3.0])


def test_a_run_that_never_arrived_counts_as_one_at_its_limit():
    rows = [row(AVERAGING, 1, 500), row(GOSSIP, 1, math.inf)]
    assert typical(log_ratios(rows, AVERAGING, GOSSIP)) == (pytest.approx(2.0), 0.0, math.inf)


def test_the_table_compares_each_setting_and_all_that_differ():
    rows = [row(way, 1, 500, groups=n) for n in (4, 8) for way in (AVERAGING, GOSSIP, NONE)]
    lines = [line for line in compared(rows).splitlines() if line.startswith("| ppo")]
    assert [line.split("|")[2].strip() for line in lines] == ["4", "8", "4 and more"]
    assert [line.split("|")[4].strip() for line in lines] == ["1", "1", "2"]
    assert "800 bytes" in costs(rows) and "1 by gossip (400)" in costs(rows)


@pytest.mark.parametrize("preset", INTERVALS)
def test_every_preset_has_a_configuration(preset):
    assert (benches.ROOT / "configs" / f"cartpole_{preset}.py").is_file()


def test_with_two_groups_gossip_is_not_run_again():
    ways = {n: {each["way"] for each in plan(["ppo"], [n], None)} for n in (2, 4)}
    assert ways == {2: {AVERAGING, NONE}, 4: {AVERAGING, GOSSIP, NONE}}
