"""The simulator and the closed form of a plan give one answer to one question."""

import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import profile

from tianji.strategy.plan.costs import actor_cost_at, shared_update_seconds
from tianji.strategy.plan.model import predict
from tianji.strategy.plan.profile import ActorCost
from tianji.strategy.plan.split import Bound, Split
from tianji.strategy.simulate.core_layout import Layout
from tianji.strategy.simulate.simulator import simulate

NEAR = 0.03
AWAY = 0.25  # from balance: closer to it each side waits for the other now and then


def both(job, *, groups=1, learners=1, learner_cores=1, actors, envs, alone=False, hosts=1):
    split = Split(
        groups, learner_cores, actors, envs, job.work.batch, job.work.pool, learners, alone,
        hosts=hosts,
    )  # fmt: skip
    layout = Layout(groups, learners, learner_cores, actors, envs, hosts, buffer_alone=alone)
    return predict(job, split), layout


seconds = st.floats(1e-5, 1e-2)
small = st.floats(1e-8, 1e-6)  # beside the others, so that one thing limits


@given(
    step=seconds,
    more=st.floats(0.1, 1.0),  # of an environment more, as a share of a step of one
    send=small,
    receive=small,
    load=small,
    update=seconds,
    draw=small,
    ratio=st.sampled_from([0.5, 1.0, 4.0]),
    contention=st.floats(1.0, 3.0),
    cores=st.sampled_from([2, 4, 16]),
    actors=st.integers(1, 12),
    envs=st.sampled_from([1, 2, 4, 8, 12]),
    groups=st.sampled_from([1, 3]),
    learners=st.sampled_from([1, 2, 3]),
    weights=st.sampled_from([0, 4_000_000]),
    hosts=st.sampled_from([1, 3]),
    alone=st.booleans(),
)
def test_asynchronous_training_is_as_fast_in_both(
    step, more, send, receive, load, update, draw, ratio, contention, cores, actors, envs, groups,
    learners, weights, hosts, alone,
):  # fmt: skip
    job = profile(
        update=update, draw=draw, load=load, ratio=ratio, contention=contention,
        weights_bytes=weights,
    )  # fmt: skip
    job = dataclasses.replace(
        job,
        machine=dataclasses.replace(job.machine, cores=cores),
        actors=tuple(
            ActorCost(n, step * (1 + more * (n - 1)), send, receive * n, 1_000 * n, 1)
            for n in (1, 8)
        ),
    )
    said, layout = both(
        job, groups=groups, learners=learners, actors=actors, envs=envs, alone=alone,
        hosts=min(groups, hosts),
    )  # fmt: skip
    assume(said.imbalance > AWAY)
    making = 16 * actor_cost_at(job, envs).step_seconds
    if said.bound is Bound.SAMPLE:  # what comes while the learner is busy has to find room
        assume(shared_update_seconds(job, 1, job.work.batch, learners) + draw < making)
    found = simulate(job, layout)
    assert found.production == pytest.approx(said.production, rel=NEAR)
    assert found.consumption == pytest.approx(said.consumption, rel=NEAR)
    assert (found.limit is Bound.SAMPLE) == (said.bound is Bound.SAMPLE)


def test_learners_that_share_a_batch_pay_for_their_exchange_in_both():
    """40 MB of weights are under way for longer than half an update takes."""
    job = profile(step=1e-4, update=10e-3, weights_bytes=40_000_000)
    said, layout = both(job, actors=2, envs=8, learners=2)
    assert said.production == pytest.approx(128 / (5e-3 + 15e-6 + 40e6 / 7e9))
    assert simulate(job, layout).production == pytest.approx(said.production, rel=NEAR)


@pytest.mark.parametrize("actors", [1, 2, 4, 8])
def test_synchronous_training_is_as_fast_in_both(actors):
    """One rollout, a receive for each actor, one update: however its environments are shared."""
    job = profile(
        step=1e-3, receive=1e-4, draw=1e-3, update=20e-3, load=1e-3, envs=8, alternates=True,
        on_policy=True, pool=128, warmup=0,
    )  # fmt: skip
    said, layout = both(job, actors=actors, envs=8 // actors)
    cycle = 16e-3 / actors + 1e-3 + 1e-4 + 21e-3  # a receive costs as many rows as it has
    assert said.production == pytest.approx(128 / cycle)
    found = simulate(job, layout)
    assert found.production == pytest.approx(said.production, rel=1e-3)
    assert found.limit is said.bound is Bound.TURNS


@given(
    actors=st.sampled_from([1, 2, 4]),
    step=seconds,
    receive=small,
    update=seconds,
    draw=small,
    load=st.floats(0.0, 1e-2),
    send=st.floats(0.0, 1e-2),
    contention=st.floats(1.0, 3.0),
    groups=st.sampled_from([1, 3]),
)
def test_synchronous_training_of_any_costs_is_as_fast_in_both(actors, groups, **costs):
    job = profile(envs=8, alternates=True, on_policy=True, pool=128, warmup=0, **costs)
    said, layout = both(job, actors=actors, envs=8 // actors, groups=groups)
    assert simulate(job, layout).production == pytest.approx(said.production, rel=NEAR)


def test_actors_that_wait_leave_the_learner_more_of_the_machine():
    """Beside actors that are held back most of the time, learning costs nearly what it costs alone.

    On a machine of 16 cores, eight of which have an actor that is busy for a tenth of the time.
    """
    alone = profile(step=1e-4, update=12.8e-3)
    beside = dataclasses.replace(
        profile(step=1e-4, update=12.8e-3, contention=2.0),
        machine=dataclasses.replace(alone.machine, cores=16),
    )
    said, layout = both(beside, actors=8, envs=8)
    found = simulate(beside, layout)
    assert found.production == pytest.approx(said.production, rel=NEAR)
    assert 1.8 < found.production / simulate(alone, layout).production < 2.0


def test_only_roles_of_its_own_host_are_beside_a_learner_in_both():
    """Two groups that share a host of 16 cores slow each other down; on a host each they do not."""
    job = profile(step=1e-3, update=12.8e-3, contention=3.0)
    job = dataclasses.replace(job, machine=dataclasses.replace(job.machine, cores=16))
    one, _ = both(job, actors=7, envs=8)
    together, here = both(job, groups=2, actors=7, envs=8)
    apart, there = both(job, groups=2, actors=7, envs=8, hosts=2)
    assert apart.production == pytest.approx(2 * one.production)
    assert together.production < 0.95 * apart.production
    assert simulate(job, here).production == pytest.approx(together.production, rel=NEAR)
    assert simulate(job, there).production == pytest.approx(apart.production, rel=NEAR)


@pytest.mark.parametrize("learners", [1, 2])
def test_groups_of_one_host_share_its_gpu_in_both(learners):
    job = profile(step=1e-4, update=12.8e-3, gpu="cuda", weights_bytes=0)
    one, _ = both(job, learners=learners, actors=2, envs=8)
    for groups, hosts in ((1, 1), (8, 1), (8, 2), (8, 8)):
        said, layout = both(job, groups=groups, learners=learners, actors=2, envs=8, hosts=hosts)
        assert said.production == pytest.approx(hosts * one.production, rel=NEAR)
        assert simulate(job, layout).production == pytest.approx(said.production, rel=NEAR)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("update", "draw", "receive", "bound"),
    [
        (10e-3, 6e-3, 1e-9, Bound.TRAINING),
        (1e-3, 6e-3, 1e-9, Bound.TRAINING),  # making batches
        (10e-3, 1e-3, 5e-3, Bound.TRAINING),
        (1e-3, 1e-3, 5e-3, Bound.COMMUNICATION),
    ],
)
def test_the_limit_has_the_same_name_in_both(update, draw, receive, bound, alone):
    job = profile(step=1e-5, update=update, draw=draw, receive=receive)
    said, layout = both(job, actors=4, envs=8, alone=alone)
    assert said.bound is simulate(job, layout).limit is bound


@pytest.mark.parametrize("update", [1e-4, 50e-3])
def test_samples_are_as_old_in_both(update):
    job = profile(update=update, pool=1_280)
    said, layout = both(job, actors=6, envs=8)
    assert simulate(job, layout).staleness.mean == pytest.approx(said.staleness, abs=1.0)
