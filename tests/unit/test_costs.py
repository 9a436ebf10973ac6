"""Costs between and beyond those that were measured, for the plan and the simulator alike."""

import dataclasses

import pytest
from profiles import graded, profile

from tianji.strategy.plan.costs import (
    Turn,
    actor_cost_at,
    contended_share,
    learner_cost_at,
    share_in_turns,
    slowdown,
)
from tianji.strategy.plan.profile import ActorCost, LearnerCost


def with_actors(*envs):
    measured = [ActorCost(n, 1e-3 * (1 + n), 1e-4, 1e-5 * n, 1_000 * n, 1, 1e-3) for n in envs]
    return dataclasses.replace(profile(), actors=tuple(measured))


def with_learners(*cores):
    measured = [LearnerCost(n, 128, 8e-3 / n, 1e-4, 1) for n in cores]
    return dataclasses.replace(profile(), learners=tuple(measured))


def test_costs_between_two_measured_ones_are_on_their_line():
    job = with_actors(1, 4, 16)
    assert actor_cost_at(job, 4) == job.actors[1]
    assert actor_cost_at(job, 10).step_seconds == pytest.approx(11e-3)
    assert actor_cost_at(job, 10).act_seconds == pytest.approx(1e-3)
    assert actor_cost_at(job, 32).receive_seconds == pytest.approx(32e-5)


def test_a_cost_that_was_measured_once_is_in_proportion():
    assert actor_cost_at(with_actors(1), 8).step_seconds == pytest.approx(16e-3)
    assert actor_cost_at(with_actors(8), 4).step_seconds == pytest.approx(4.5e-3)
    assert learner_cost_at(with_learners(1), 1, 256).update_seconds == pytest.approx(16e-3)


def test_memory_that_was_measured_once_is_what_a_process_has():
    """Nearly all of it is there with any number of environments: 40 MB of 8 are not 320 of 64."""
    [actor] = profile().actors
    assert actor_cost_at(profile(), 64).memory_bytes == actor.memory_bytes
    assert actor_cost_at(profile(), 64).trajectory_bytes == 8 * actor.trajectory_bytes
    [learner] = profile().learners
    assert learner_cost_at(profile(), 1, 4 * 128).memory_bytes == learner.memory_bytes


def test_an_inference_never_takes_longer_than_the_step_that_it_is_a_part_of():
    measured = ActorCost(1, 4e-3, 0, 0, 1, 1, 1e-3), ActorCost(4, 5e-3, 0, 0, 1, 1, 4.9e-3)
    far = actor_cost_at(dataclasses.replace(profile(), actors=measured), 64)
    assert far.act_seconds == far.step_seconds


def test_more_cores_of_which_one_batch_was_measured_go_with_the_batch_as_one_core_does():
    """Half a batch takes one core 9 ms of 10; in proportion two would take 4.75 ms of 9.5."""
    measured = [
        LearnerCost(1, 128, 10e-3, 2e-4, 1),
        LearnerCost(1, 512, 16e-3, 8e-4, 1),
        LearnerCost(2, 128, 9.5e-3, 1e-4, 7),
    ]
    job = dataclasses.replace(profile(), learners=tuple(measured))
    one, two = (learner_cost_at(job, n, 64) for n in (1, 2))
    assert one.update_seconds == pytest.approx(9e-3)
    assert two.update_seconds == pytest.approx(9e-3 * 9.5 / 10)
    assert two.draw_seconds == pytest.approx(0.5 * 1e-4)
    assert (two.cores, two.batch, two.memory_bytes) == (2, 64, 7)
    assert learner_cost_at(job, 2, 128) == measured[2]
    assert learner_cost_at(job, 2, 512).update_seconds == pytest.approx(16e-3 * 9.5 / 10)


def test_costs_between_those_measured_lie_on_a_line():
    assert actor_cost_at(graded(), 2).step_seconds == pytest.approx(0.001 * 1.5)
    assert actor_cost_at(graded(), 8).step_seconds == pytest.approx(0.001 * 3)
    assert learner_cost_at(graded(), 3, 100).update_seconds == pytest.approx(0.008)  # as with two


def test_a_falling_line_never_ends_below_what_was_measured():
    job = dataclasses.replace(
        profile(), actors=(ActorCost(1, 2e-3, 0, 0, 1, 1), ActorCost(2, 1e-3, 0, 0, 1, 1))
    )
    assert actor_cost_at(job, 50).step_seconds == 1e-3


def test_cores_that_were_not_measured_bring_nothing():
    job = with_learners(1, 2, 4)
    assert learner_cost_at(job, 3, 128).update_seconds == 4e-3
    assert learner_cost_at(job, 64, 128).update_seconds == 2e-3
    assert learner_cost_at(with_learners(2, 4), 1, 128).update_seconds == pytest.approx(8e-3)


def test_a_learner_costs_what_was_measured_beside_busy_cores_and_less_beside_idle_ones():
    job = profile(contention=2.0)  # on four cores
    [learner] = job.learners
    assert contended_share(4, learner, 0) == 0.5
    assert contended_share(4, learner, 1.5) == 0.75
    assert contended_share(4, learner, 3) == contended_share(4, learner, 300) == 1.0


def test_busy_neighbours_cost_every_number_of_learner_cores_something_else():
    one, two = (LearnerCost(n, 128, 1e-3, 0.0, 1, contention=n) for n in (1, 2))
    job = dataclasses.replace(profile(), learners=(one, two))
    assert contended_share(4, learner_cost_at(job, 1, 128), 0) == 1.0
    assert contended_share(4, learner_cost_at(job, 2, 128), 0) == 0.5
    nearest = learner_cost_at(job, 3, 256)  # of those that were measured
    assert contended_share(4, nearest, 0) == 0.5


def test_a_group_that_takes_turns_is_slower_the_more_there_are():
    [learner] = profile(contention=2.0).learners
    learning, acting = Turn(3e-3, 1), Turn(1e-3, 2)  # 1.25 cores of each group are busy
    shares = [share_in_turns(16, learner, n, learning, acting) for n in (0, 6, 12, 15)]
    assert shares == pytest.approx([0.5, 0.75, 1.0, 1.0])


@pytest.mark.parametrize("name", ["actors", "learners"])
def test_a_profile_without_costs_is_refused(name):
    with pytest.raises(ValueError, match="one cost at least"):
        dataclasses.replace(profile(), **{name: ()})


@pytest.mark.parametrize(
    ("on_gpu", "expected"),
    [
        ((), {1: 1, 2: 2, 8: 8}),  # not measured: busy for all of an update
        (((2, 1.2), (4, 2.0)), {1: 1, 2: 1.2, 3: 1.6, 4: 2.0, 8: 4.0}),  # on lines; full beyond
        (((2, 1.0), (4, 0.9)), {2: 1, 4: 1, 8: 1.8}),  # never faster than alone
        (((2, 2.5),), {2: 2, 4: 4}),  # nor slower than one after the other
    ],
)
def test_learners_that_share_a_gpu_slow_each_other_down(on_gpu, expected):
    learner = dataclasses.replace(profile().learners[0], on_gpu=on_gpu)
    assert {n: pytest.approx(slowdown(learner, n)) for n in expected} == expected
