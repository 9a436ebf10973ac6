"""What makes most of ever more cores, in the simulator as in a plan."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import profile

from tianji.core.errors import TianJiError
from tianji.strategy.plan.profile import ActorCost, LearnerCost
from tianji.strategy.plan.solver import NOISE, PlanRequest, solve
from tianji.strategy.simulate.core_layout import Layout
from tianji.strategy.simulate.simulator import simulate
from tianji.strategy.simulate.sweep import CORES, Finder, balanced, sweep


def cartpole():
    """Costs of synchronous PPO with steps of some microseconds, on a machine of 16 cores."""
    job = profile(steps=32, batch=2_048, pool=2_048, warmup=0, envs=64, alternates=True,
                  on_policy=True)  # fmt: skip
    return dataclasses.replace(
        job,
        machine=dataclasses.replace(job.machine, cores=16),
        actors=tuple(
            ActorCost(n, 30e-6 + 2e-6 * n, 5e-6, 1e-6 * n, 1_000 * n, 1) for n in (4, 16, 64)
        ),
        learners=tuple(LearnerCost(n, 2_048, 15e-3 / n**0.5, 1e-4, 1) for n in (1, 2, 4, 8)),
    )


@pytest.mark.parametrize("cores", [2, 16, 64])
def test_synchronous_training_has_as_much_of_many_cores_as_in_a_plan(cores):
    job = cartpole()
    (found,) = sweep(job, Layout(), [cores])
    planned = solve(job, PlanRequest(cores))[0].prediction.production
    assert found.production == pytest.approx(planned, rel=0.03)


seconds = st.floats(1e-5, 1e-2)


@given(
    step=seconds,
    update=seconds,
    draw=st.floats(0, 1e-3),
    receive=st.floats(0, 1e-3),
    speedup=st.floats(0.4, 1.2),
    contention=st.floats(1.0, 2.0),
    alternates=st.booleans(),
    learners=st.sampled_from([1, 2]),
    gpu=st.sampled_from([None, "cuda"]),
    cores=st.sampled_from([3, 8, 21]),
)
def test_the_layout_that_is_found_is_as_fast_as_the_planned_split(
    step, update, draw, receive, speedup, contention, alternates, learners, gpu, cores
):
    job = profile(
        step=step, draw=draw, receive=receive, alternates=alternates, on_policy=alternates,
        learners=learners, gpu=gpu, pool=128 if alternates else 4_096, warmup=0,
    )  # fmt: skip
    job = dataclasses.replace(
        job,
        learners=tuple(
            LearnerCost(c, 128, update * speedup**i, draw, 1, contention)
            for i, c in enumerate((1, 2))
        ),
    )
    find = Finder(job, Layout(learners=learners))
    layout = find.layout(cores, host_cores=64)
    assert layout.groups * layout.group_cores(job.work) <= cores
    planned = solve(job, PlanRequest(cores))[0].prediction
    assert find.rate(layout) == pytest.approx(planned.production, rel=NOISE)
    apart = planned.imbalance > 0.5 and not layout.buffer_alone  # where no side waits by turns
    if alternates or (apart and layout.actors * layout.envs * 16 >= 128):
        assert simulate(job, layout).production == pytest.approx(planned.production, rel=0.05)


def test_cores_that_whole_hosts_leave_over_are_used():
    job = profile(update=1.6e-3)
    find = Finder(job, Layout())
    uneven, even = find.layout(77, host_cores=22), find.layout(33, host_cores=20)
    assert (uneven.groups, uneven.actors, uneven.hosts) == (7, 10, 4)  # two on a host, and one
    assert (even.groups, even.actors, even.hosts) == (4, 7, 2)  # rather than three of nine


def test_what_was_given_is_kept():
    job, given = cartpole(), Layout(envs=4, buffer_alone=True)
    layout = Finder(job, given, learner_cores=2).layout(32, host_cores=64)
    assert (layout.envs, layout.actors, layout.learner_cores) == (4, 16, 2)
    assert layout.buffer_alone


@pytest.mark.parametrize(("alternates", "needed"), [(False, 4), (True, 2)])
def test_learners_that_share_rollouts_need_an_actor_each(alternates, needed):
    job = profile(on_policy=True, alternates=alternates, pool=128, warmup=0, learners=2)
    said = f"{needed - 1} cores? on hosts of 64: one group needs {needed}, for 2 learners and 2 act"
    with pytest.raises(TianJiError, match=said) as refused:
        sweep(job, Layout(learners=2), [needed - 1, needed, 16])
    assert str(refused.value).endswith("offer more with --cores-list or --host-cores")
    few, many = sweep(job, Layout(learners=2), [needed, 16])
    assert (few.cores, few.layout.actors) == (needed, 2) and many.production > few.production


def test_more_hosts_are_more_of_the_same():
    few, many = sweep(cartpole(), Layout(), [64, 640])
    assert (many.layout.hosts, many.layout.groups) == (10, 10 * few.layout.groups)
    assert many.production == pytest.approx(10 * few.production)


def test_the_group_of_synchronous_training_is_the_one_that_makes_most_of_a_core():
    job = cartpole()
    found = balanced(job, Layout())

    def per_core(layout):
        return simulate(job, layout).production / layout.group_cores(job.work)

    others = [per_core(Layout(actors=n)) for n in (1, 2, 4, 8, 16, 64)]
    assert per_core(found) == pytest.approx(max(others))


def test_ten_thousand_cores_are_few_events():
    job = profile(step=20e-3, receive=50e-6)
    found = sweep(job, Layout(link_bytes_per_second=1.25e9), CORES)
    assert all(row.cores <= asked for row, asked in zip(found, CORES, strict=True))
    assert found[-1].cores > 9_500
    assert sum(row.n_events for row in found) < 500_000
    one = simulate(job, Layout(actors=1_999, hosts=32, link_bytes_per_second=1.25e9))
    assert one.cores == 2_000 and one.n_events < 200_000


def test_throughput_is_near_linear_where_the_balanced_group_is_replicated():
    """Figure 6c, simulated: a slope of at least 0.9 (items 60 and 61)."""
    job = profile(step=4e-3, receive=50e-6, update=2e-3, draw=1e-4)
    group = balanced(job, Layout()).group_cores(job.work)
    few, many = sweep(job, Layout(), [group, 100 * group], host_cores=group)
    assert many.layout.groups == 100 and many.layout.hosts == 100
    assert many.consumption >= 0.9 * 100 * few.consumption


def test_the_balanced_group_has_as_many_actors_as_the_learner_can_use():
    job = profile(update=8e-3)  # an update takes 128, an actor makes 8,000 a second
    assert balanced(job, Layout()).actors == 2
    found = simulate(job, balanced(job, Layout()))
    assert found.idle.learner < 0.02 and found.idle.actors < 0.02


def test_more_learner_cores_and_a_larger_batch_move_the_balance():
    """Figure 6b: the same update in a quarter of the time per sample feeds four times as many."""
    job = profile(update=8e-3)
    wide = dataclasses.replace(
        job,
        work=dataclasses.replace(job.work, batch=512),
        learners=(*job.learners, LearnerCost(4, 512, 8e-3, 0.0, 1)),
    )
    assert balanced(job, Layout()).actors == 2
    assert balanced(wide, Layout(learner_cores=4)).actors == 8


def test_more_groups_of_fewer_actors_where_whole_groups_leave_cores_over():
    job = profile(update=1.6e-3)  # ten actors and their learner: eleven cores
    layout = Finder(job, Layout()).layout(21, host_cores=64)
    assert (layout.groups, layout.actors) == (2, 9)


def test_a_group_stays_on_one_host_unless_it_makes_more_on_several():
    job = profile(update=1.6e-3)
    find = Finder(job, Layout(link_bytes_per_second=1.25e9))
    wide, narrow = (find.layout(130, host_cores) for host_cores in (23, 3))
    assert (wide.groups, wide.actors, wide.hosts) == (11, 10, 6)
    assert (narrow.groups, narrow.actors, narrow.hosts) == (11, 10, 44)
    unlinked = Finder(job, Layout()).layout(130, 3)
    assert (unlinked.groups, unlinked.actors, unlinked.hosts) == (43, 2, 43)
    assert simulate(job, narrow).production > 1.2 * simulate(job, unlinked).production
