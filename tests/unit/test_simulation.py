"""The discrete-event model says what closed forms say, wherever there is a closed form."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import profile

from tianji.core.errors import TianJiError
from tianji.strategy.plan.split import Bound
from tianji.strategy.simulate.bounds import bounds_of, expected_rate
from tianji.strategy.simulate.core_layout import Layout, costs_of
from tianji.strategy.simulate.events import Agenda, Level, Process
from tianji.strategy.simulate.prediction import staleness_of
from tianji.strategy.simulate.simulated_group import Group
from tianji.strategy.simulate.simulator import simulate

NEAR = 0.01  # of a closed form


def near(value, share=NEAR):
    return pytest.approx(value, rel=share)


# Equation 1: N_s * max((T_sp + T_sd) / N_A, T_rv) for a buffer that only receives.


@pytest.mark.parametrize("actors", [1, 2, 5, 9, 10, 11, 20, 40])
def test_collection_follows_equation_1_below_and_above_the_knee(actors):
    job = profile(step=1e-3, send=1e-3, receive=1.7e-3, update=1e-6)
    found = simulate(job, Layout(actors=actors, buffer_alone=True))
    assert found.knee == near(17 / 1.7)
    per_trajectory = max(17e-3 / actors, 1.7e-3)
    assert found.production == near(128 / per_trajectory)
    assert found.receiving == near(found.production)
    bound = Bound.SAMPLE if actors < 10 else Bound.COMMUNICATION
    assert found.limit is (Bound.NONE if 9 <= actors <= 11 else bound)


@pytest.mark.parametrize("ratio", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("actors", [1, 3, 8, 64])
def test_production_is_the_lesser_of_both_rates_at_any_ratio(actors, ratio):
    job = profile(receive=50e-6, draw=100e-6, update=2e-3, ratio=ratio)
    found = simulate(job, Layout(actors=actors))
    sampling = actors * 8 / 1e-3
    training = 1 / (50e-6 / 128 + ratio * 2.1e-3 / 128)
    assert found.production == near(min(sampling, training))
    assert found.consumption == near(ratio * found.production)
    slower = Bound.SAMPLE if sampling < training else Bound.TRAINING
    near_balance = min(sampling, training) > 0.9 * max(sampling, training)
    assert found.limit is (Bound.NONE if near_balance else slower)


@pytest.mark.parametrize("actors", [1, 4, 32])
def test_a_buffer_of_its_own_draws_while_the_learner_learns(actors):
    job = profile(step=0.2e-3, receive=0.4e-3, draw=1e-3, update=2e-3)
    rides = simulate(job, Layout(actors=actors))
    alone = simulate(job, Layout(actors=actors, buffer_alone=True))
    trajectory = 16 * 0.2e-3
    assert rides.production == near(128 / max(trajectory / actors, 3.4e-3))
    assert alone.production == near(128 / max(trajectory / actors, 2e-3))
    assert alone.cores == rides.cores + 1


@pytest.mark.parametrize("actors", [1, 2, 8])
def test_a_synchronous_cycle_is_rollout_and_update(actors):
    job = profile(
        receive=1e-4, draw=1e-3, update=20e-3, load=1e-3, alternates=True, batch=128, warmup=0
    )
    found = simulate(job, Layout(actors=actors, envs=8))
    # The learner was measured with a batch of one trajectory, and so costs in proportion.
    cycle = 16e-3 + 1e-3 + actors * (1e-4 + 1e-3 + 20e-3)
    assert found.production == near(actors * 128 / cycle)
    expected = expected_rate(costs_of(job, Layout(actors=actors, envs=8)))
    assert expected == near(actors * 128 / cycle, 1e-9)
    assert found.staleness.mean == 0
    assert found.idle.weights == near(1 - 17e-3 / cycle)
    assert found.idle.trajectories == near(17e-3 / cycle)
    assert found.limit is Bound.TURNS


def test_several_trajectories_of_each_actor_make_one_synchronous_batch():
    job = profile(update=20e-3, alternates=True, on_policy=True, rollouts=6, warmup=0)
    layout = Layout(actors=2, envs=8)
    costs, found = costs_of(job, layout), simulate(job, layout)
    assert (costs.batch, costs.pool, costs.per_version) == (6 * 128, 6 * 128, 3)
    assert found.production == near(6 * 128 / (3 * 16e-3 + 6 * 20e-3))
    assert found.staleness.mean == 0


def test_uneven_actors_hold_up_synchronous_training_only():
    together = profile(update=1e-5, alternates=True, warmup=0)
    apart = profile(update=1e-5)
    even, uneven = (
        [
            simulate(job, Layout(actors=50, envs=8), spread=s).idle.weights
            for job in (together, apart)
        ]
        for s in (0.0, 0.3)
    )
    assert uneven[0] > even[0] + 0.05
    assert uneven[1] == even[1] == 0


def test_groups_are_linear():
    job = profile(update=5e-3)
    one, many = (simulate(job, Layout(groups=g, actors=4)) for g in (1, 50))
    assert many.production == near(50 * one.production, 1e-9)
    assert many.consumption == near(50 * one.consumption, 1e-9)
    assert many.staleness == one.staleness and many.cores == 50 * one.cores
    assert one.fusions == 0 and many.fusions == near(many.updates / 50 / 10)
    often = simulate(profile(update=5e-3, fusion_interval=2), Layout(groups=50, actors=4))
    assert often.fusions == near(5 * many.fusions)


def test_a_slow_link_makes_it_communication_bound():
    job = profile(trajectory_bytes=100_000, update=1e-4)

    def at(speed):
        return simulate(job, Layout(actors=9, hosts=2, link_bytes_per_second=speed))

    fast, slow = at(1e9), at(1e6)
    assert fast.limit is Bound.SAMPLE and fast.production == near(9 * 8 / 1e-3)
    assert slow.limit is Bound.COMMUNICATION and slow.link == near(1.0)
    here = 4  # of ten cores in two halves, one is the learner's
    assert slow.production == near(here * 8e3 + 128 * 1e6 / 1e5, 0.02)
    assert slow.idle.room > 0.3


@pytest.mark.parametrize(
    ("actors", "alone", "speed"), [(9, False, 2e5), (9, True, 2e5), (30, True, 2.5e6)]
)
def test_a_full_link_limits_nothing_where_the_learner_never_waits(actors, alone, speed):
    """The training-bound counterpart: a link that is busy all the time, give or take a rounding."""
    job = profile(trajectory_bytes=100_000, update=5e-3, receive=0.0 if alone else 1e-4)

    def at(speed):
        found = Layout(actors=actors, hosts=2, link_bytes_per_second=speed, buffer_alone=alone)
        return simulate(job, found)

    fast, full = at(1e9), at(speed)
    assert full.link > 0.99 and full.idle.learner == pytest.approx(0, abs=1e-6)
    assert full.consumption == near(fast.consumption)
    assert full.limit is fast.limit is Bound.TRAINING


def test_a_link_that_carries_weights_slowly_makes_samples_older_and_nothing_slower():
    job = profile(weights_bytes=1_000_000, update=1e-3)
    quick, late = (
        simulate(job, Layout(actors=7, hosts=2, link_bytes_per_second=speed))
        for speed in (1e10, 2e7)
    )
    assert late.production == near(quick.production)
    assert late.staleness.mean > quick.staleness.mean + 3
    assert late.weights_link > 0.9


def test_a_group_stays_on_one_host_where_there_is_one_for_each():
    job = profile()
    costs = costs_of(job, Layout(groups=4, actors=7, hosts=4))
    assert costs.remote == 0
    assert costs_of(job, Layout(actors=7, hosts=4, link_bytes_per_second=1.0)).remote == 6


def test_staleness_grows_with_actors():
    job = profile(step=1e-3, update=1e-4, pool=128)
    ages = [simulate(job, Layout(actors=n)).staleness.mean for n in (1, 4, 16)]
    assert ages[0] < ages[1] < ages[2]
    # A trajectory is begun when the one before was sent: everybody sends once in between.
    assert ages[2] - ages[1] == pytest.approx(12, abs=1)


def test_staleness_of_a_pool_is_half_of_what_it_holds():
    job = profile(ratio=2.0, pool=12_800, update=1e-4)
    small, large = (
        simulate(dataclasses.replace(job, work=dataclasses.replace(job.work, pool=pool)), Layout())
        for pool in (1_280, 12_800)
    )
    assert large.staleness.mean - small.staleness.mean == near((12_800 - 1_280) / 2 * 2 / 128)
    assert large.staleness.p95 > large.staleness.p50 > small.staleness.p50


def test_lag_k_makes_samples_k_minus_one_updates_older():
    def lag(k):
        work = dict(pool=k * 128, warmup=(k - 1) * 128, on_policy=True)
        return simulate(profile(update=1e-4, **work), Layout(actors=1)).staleness.mean

    assert lag(1) <= 1
    assert lag(4) - lag(1) == pytest.approx(3, abs=0.6)


def test_staleness_of_known_lags():
    found = staleness_of([0, 0, 0, 10])
    assert (found.mean, found.p50, found.p95) == (2.5, 0, 10)
    assert staleness_of([5], 100).p50 == pytest.approx(55, abs=1)


@pytest.mark.parametrize(("receive", "rate"), [(0.0, 4 * 8e3), (16e-3, 128 / 16e-3)])
@pytest.mark.parametrize("update", [1e-5, 0.5])
def test_nobody_is_held_back_before_the_first_update(update, receive, rate):
    job = profile(step=1e-3, receive=receive, update=update, warmup=6_400)
    found = simulate(job, Layout(actors=4))
    assert found.warmup_seconds == near(6_400 / rate)


@pytest.mark.parametrize("hosts", [1, 2])
def test_what_is_in_flight_is_bounded_however_slow_the_learner(hosts):
    job = profile(update=1.0, trajectory_bytes=10_000)
    layout = Layout(actors=6, hosts=hosts, link_bytes_per_second=1e5)
    group, most = Group(costs_of(job, layout)), 0
    for _ in range(3_000):
        group.agenda.step()
        most = max(most, group.in_flight)
        assert group.produced - group.received <= 6 * group.costs.depth * 128
    assert most == group.costs.depth
    assert group.version > 10


def test_the_same_seed_gives_the_same_and_another_another():
    job, layout = profile(receive=1e-4, update=3e-3), Layout(actors=5)
    first, second, other = (simulate(job, layout, seed, spread=0.2) for seed in (1, 1, 2))
    assert first == second
    assert first.production != other.production


def test_learners_that_share_a_batch_take_their_part_of_its_time():
    job = profile(update=10e-3, weights_bytes=0)
    one, four = (simulate(job, Layout(learners=k, actors=40)) for k in (1, 4))
    assert four.consumption == near(4 * one.consumption, 0.05)
    assert four.cores == one.cores + 3


@pytest.mark.parametrize(
    "layout, words",
    [
        (Layout(gpu=True), "without a GPU"),
        (Layout(actors=8, hosts=2), "--link-gbit"),
    ],
)
def test_what_the_profile_cannot_say_is_refused(layout, words):
    with pytest.raises(TianJiError, match=words):
        simulate(profile(), layout)


@pytest.mark.parametrize("field", ["groups", "actors", "hosts", "envs", "learner_cores"])
def test_none_of_something_is_refused(field):
    with pytest.raises(TianJiError, match=f"{field}: want at least 1, got 0"):
        Layout(**{field: 0})


@pytest.mark.parametrize(
    ("job", "actors"),
    [
        (profile(steps=1, envs=1, batch=10_000_000, pool=10_000_000), 1),  # no update
        (profile(update=1e-5), 2_000),  # enough of them, but too few trajectories
    ],
)
def test_too_little_says_nothing_and_that_is_said(job, actors, monkeypatch):
    monkeypatch.setattr("tianji.strategy.simulate.simulator.MOST_EVENTS", 5_000)
    with pytest.raises(TianJiError, match=r"in 5,000 events there were only .* too few to say"):
        simulate(job, Layout(actors=actors))


def test_no_update_comes_before_the_first_trajectory():
    quick = simulate(profile(steps=16, step=1e-3, warmup=1), Layout(actors=8))
    assert quick.warmup_seconds >= 16e-3
    turns = profile(batch=512, pool=512, warmup=0, on_policy=True, alternates=True)
    assert simulate(turns, Layout(actors=4)).warmup_seconds > 0


def test_a_result_is_plain_data():
    plain = simulate(profile(), Layout(actors=2)).to_json()
    assert plain == json.loads(json.dumps(plain))
    assert plain["limit"] in {limit.value for limit in Bound} and plain["knee"] is None


seconds = st.floats(1e-5, 1e-2)


@given(
    actors=st.integers(1, 40),
    step=seconds,
    send=seconds,
    receive=seconds,
    update=seconds,
    draw=seconds,
    ratio=st.sampled_from([0.25, 1.0, 3.0, 16.0]),
    batch=st.sampled_from([32, 128, 1_000]),
    alone=st.booleans(),
    hosts=st.sampled_from([1, 2, 5]),
    speed=st.floats(1e4, 1e9),
)
def test_no_throughput_is_above_a_bound(
    actors, step, send, receive, update, draw, ratio, batch, alone, hosts, speed
):
    job = profile(
        step=step, send=send, receive=receive, update=update, draw=draw, ratio=ratio, batch=batch
    )
    layout = Layout(actors=actors, buffer_alone=alone, hosts=hosts, link_bytes_per_second=speed)
    found, bounds = simulate(job, layout), bounds_of(costs_of(job, layout))
    # Slots are full or empty at the ends of what is counted: two trajectories of each actor.
    edge = 1 + 2.5 * actors * 128 / (found.production * found.seconds / 2)
    assert found.production <= bounds.production * edge
    assert found.receiving <= bounds.production * edge
    assert found.consumption <= ratio * bounds.training * 1.02
    shares = (*dataclasses.astuple(found.idle), found.link)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares)
    assert math.isfinite(found.staleness.mean) and found.staleness.mean >= 0


@given(actors=st.integers(1, 20), ratio=st.sampled_from([0.5, 1.0, 4.0]), spread=st.floats(0, 0.3))
def test_the_ratio_is_kept_whatever_limits(actors, ratio, spread):
    job = profile(step=3e-4, receive=1e-4, update=2e-3, ratio=ratio)
    found = simulate(job, Layout(actors=actors), spread=spread)
    assert found.consumption / found.receiving == near(ratio, 0.03)


# The engine below


def test_what_falls_together_happens_in_the_order_it_was_noted():
    agenda, seen = Agenda(), []
    for i in (3, 1, 2):
        agenda.after(1.0, seen.append, i)
    agenda.after(0.5, seen.append, 0)
    while agenda.step():
        pass
    assert seen == [0, 3, 1, 2] and agenda.now == 1.0 and agenda.n_events == 4


def test_a_level_knows_the_area_under_it():
    agenda = Agenda()
    level = Level(agenda)
    agenda.after(1.0, level.add, 2)
    agenda.after(3.0, level.add, -1)
    agenda.after(4.0, lambda _: None)
    while agenda.step():
        pass
    assert level.area == 2 * 2.0 + 1 * 1.0


def test_a_process_that_is_rung_while_it_works_looks_again_before_it_sleeps():
    agenda, looked = Agenda(), []

    def work():
        yield 2.0
        while True:
            looked.append(agenda.now)
            yield None

    process = Process(agenda, work())
    agenda.after(1.0, lambda _: process.wake())
    agenda.after(5.0, lambda _: process.wake())
    while agenda.step():
        pass
    assert looked == [2.0, 2.0, 5.0]
    assert process.idle.area == 3.0
