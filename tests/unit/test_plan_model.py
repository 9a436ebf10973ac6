"""How fast a split is, by the paper's equations and the costs of a profile."""

import dataclasses

import numpy as np
import pytest
from profiles import MB, graded, profile, split

from tianji.strategy.plan.model import lesser, predict
from tianji.strategy.plan.split import Bound


def test_production_is_the_smaller_of_what_both_sides_could_do():
    found = predict(graded(), split())
    acting = 40 / (10 * 0.002 + 1e-5)  # units of a trajectory over T_sp + T_sd
    taking = 1 / (0.0001 / 40 + 2 * 0.011 / 100)  # T_rv, and an update for every 50 units
    assert found.could_produce == pytest.approx(acting)
    assert found.could_take == pytest.approx(taking)
    assert found.production == pytest.approx(min(acting, taking))
    assert found.consumption == pytest.approx(2 * found.production)
    assert found.bound is Bound.SAMPLE


@pytest.mark.parametrize("b", [0.5, 0.9, 1.0, 1.1, 2.0])
def test_of_rates_that_vary_the_smaller_one_of_each_pair_counts(b):
    draw, uneven = np.random.default_rng(0).normal(1.0, 0.2, (2, 200_000)), 0.2
    expected = np.minimum(draw[0], b * draw[1]).mean()
    assert lesser(1.0, uneven, b, uneven * b) == pytest.approx(expected, rel=2e-3)
    assert lesser(1.0, 0.0, b, 0.0) == min(1.0, b)


def test_uneven_cores_cost_most_where_both_sides_are_equally_fast():
    even = graded(step=4e-3, update=0.01)
    uneven = dataclasses.replace(even, unevenness=0.2)
    lost = {
        actors: 1 - predict(uneven, split(actors=actors)).production
        / predict(even, split(actors=actors)).production
        for actors in range(1, 17)
    }  # fmt: skip
    found = predict(even, split(actors=max(lost, key=lost.get)))
    assert found.imbalance < 0.2
    assert 0.05 < max(lost.values()) < 0.12 and lost[1] < 0.01 and lost[16] < 0.05


def acted_for(actors, act, one_pass=False):
    """What so many actors with an environment each make, for whom another role acts."""
    made = dataclasses.replace(profile(inference=True, update=1e-6), waking_seconds=2e-4)
    cost = dataclasses.replace(made.actors[0], one_pass=one_pass, send_seconds=1e-4)
    costs = [
        dataclasses.replace(cost, envs=envs, step_seconds=step, act_seconds=act * (1 + envs / 8))
        for envs, step in ((1, 1e-3), (8, 3e-3))
    ]
    return predict(dataclasses.replace(made, actors=tuple(costs)), split(actors=actors, envs=1))


def test_actors_for_whom_another_acts_wait_for_their_actions_and_for_being_woken():
    found = acted_for(2, act=8e-5)
    assert found.could_produce == pytest.approx(2 * 16 / (16 * 1.2e-3 + 1e-4))
    assert found.bound is Bound.SAMPLE


def test_who_acts_for_all_of_them_is_the_limit_where_they_are_many():
    found = acted_for(8, act=8e-4)
    assert found.could_produce == pytest.approx(8 * 16 / (16 * 8 * 9e-4 + 8 * 1e-4))
    assert found.bound is Bound.INFERENCE


def test_policies_of_one_network_act_in_one_pass_as_for_one_actor_with_all_environments():
    found = acted_for(8, act=8e-4, one_pass=True)
    assert found.could_produce == pytest.approx(8 * 16 / (16 * 1.6e-3 + 8 * 1e-4))
    assert acted_for(1, act=8e-4, one_pass=True) == acted_for(1, act=8e-4)


def test_who_acts_for_others_has_a_core_and_the_memory_of_one_more():
    ours, theirs = profile(inference=True), profile()
    one = split(actors=2, envs=8)
    assert (one.cores(ours.work), one.cores(theirs.work)) == (4, 3)
    more = predict(ours, one).memory_bytes - predict(theirs, one).memory_bytes
    assert more == ours.actors[0].memory_bytes


def test_weights_that_must_be_loaded_cost_the_actors_time():
    slow = dataclasses.replace(graded(), load_seconds=0.005)
    per_second = predict(slow, split()).could_produce
    updates = 2 * per_second / 100
    free = predict(graded(), split()).could_produce
    assert per_second == pytest.approx(free * (1 - updates * 0.005))


def test_who_takes_turns_needs_the_sum_of_both_times():
    turns = graded(alternates=True, on_policy=True, ratio=1.0, batch=100, pool=100)
    found = predict(turns, split(pool=100))
    whole = 1 / found.could_produce + 1 / found.could_take
    assert found.production == pytest.approx(1 / whole)
    assert found.staleness == 0


def test_a_buffer_with_a_core_of_its_own_works_beside_the_learner():
    costs = graded(receive=0.01)  # as dear as an update
    rides, alone = predict(costs, split()), predict(costs, split(buffer_alone=True))
    assert alone.could_take == pytest.approx(1 / (0.01 / 40 + 2 * 0.001 / 100))
    assert alone.could_take > 1.5 * rides.could_take


def test_samples_wait_longer_in_a_buffer_by_itself_where_the_learner_is_the_limit():
    for costs, more in ((graded(step=1e-5, update=0.1), 50), (graded(step=0.1), 0)):
        rides, alone = (predict(costs, split(buffer_alone=own)).staleness for own in (False, True))
        assert alone - rides == pytest.approx(costs.work.ratio * more / costs.work.batch)


@pytest.mark.parametrize(
    ("costs", "bound"),
    [
        (graded(step=0.1), Bound.SAMPLE),
        (graded(step=1e-5, update=0.1), Bound.TRAINING),
        (graded(step=1e-5, update=1e-5, receive=0.1), Bound.COMMUNICATION),
        (graded(step=0.00044), Bound.NONE),
    ],
)
def test_the_bound_is_named_after_the_side_that_is_slower(costs, bound):
    assert predict(costs, split()).bound is bound


def test_groups_multiply_rates_and_memory_and_keep_freshness():
    one, four = predict(graded(), split()), predict(graded(), split(groups=4))
    assert four.production == pytest.approx(4 * one.production)
    assert four.memory_bytes == 4 * one.memory_bytes
    assert (four.freshness, four.staleness) == (one.freshness, one.staleness)


def test_a_group_has_one_store_however_many_learners_and_wherever_the_buffer_is():
    costs = graded(store_bytes=1_000 * MB)
    learner, process, slot = 100 * MB, 20 * MB, 4_000
    for changes, more in (
        ({}, 3 * slot),  # two trajectories for a batch, and the one that is written
        ({"learners": 3}, 2 * learner + 3 * slot),
        ({"buffer_alone": True}, process + 3 * slot),
        ({"actors": 2}, process + 2 * 2 * slot),
    ):
        found = predict(costs, split(**changes)).memory_bytes
        assert found == 1_000 * MB + learner + process + more


def test_equation_1_has_its_knee_where_receiving_takes_as_long_as_making():
    assert predict(graded(), split()).knee == pytest.approx((10 * 0.002 + 1e-5) / 0.0001)
