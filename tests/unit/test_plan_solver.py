"""The fastest split, and the simplest of the fastest."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import MB, graded

from tianji.core.errors import TianJiError
from tianji.strategy.plan.model import predict
from tianji.strategy.plan.solver import (
    MORE_STEPS,
    NOISE,
    PlanRequest,
    candidates,
    refuse_impossible,
    solve,
)
from tianji.strategy.plan.split import Bound, Split


def allowed(costs, wish):
    """Every split that docs/plan.md allows, by trying all small numbers; no thrift of the solver's.

    Whole cores for every learner and actor, except on a machine that has one; groups that are whole
    on a host, as many on each; what was measured, or what was asked for.
    """
    work, counts = costs.work, range(1, wish.cores + 1)
    every = itertools.product(counts, counts, counts, (1, 2, 3, 4, 2_000), (False, True))
    for per_host, learner, actors, envs, alone in every:
        learning, groups = work.learners * learner + alone, per_host * wish.hosts
        of_group = max(learning, actors) if work.alternates else learning + actors
        shared = not work.alternates and wish.cores == learning == actors == 1
        asked = {"groups": groups, "actors": actors, "envs": envs, "learner_cores": learner}
        if (
            per_host * (1 if shared else of_group) <= wish.cores
            and all(getattr(wish, name) in (None, n) for name, n in asked.items())
            and wish.buffer_alone in (None, alone)
            and not (alone and work.alternates and wish.buffer_alone is None)  # gains nothing
            and (wish.learner_cores or learner in {cost.cores for cost in costs.learners})
            and has_environments(work, wish, actors, envs)
        ):
            found = Split(
                groups, learner, actors, envs, work.batch, work.pool, work.learners, alone, shared,
                wish.hosts,
            )  # fmt: skip
            room = None if wish.memory_bytes is None else wish.memory_bytes * wish.hosts
            if room is None or predict(costs, found).memory_bytes <= room:
                yield found


def has_environments(work, wish, actors, envs):
    """On-policy all of them make the batch; else the pool holds a trajectory of each actor."""
    if work.on_policy:  # and the trajectories of actors are shared out among the learners
        return actors * envs == work.envs and actors % work.learners == 0
    return (wish.envs or envs in (1, 4)) and actors * envs * work.steps <= work.pool


costs_of_all_kinds = st.builds(
    lambda kind, **costs: graded(**costs, **kind),
    step=st.floats(1e-5, 0.1),
    update=st.floats(1e-4, 0.1),
    receive=st.floats(1e-6, 0.01),
    speedup=st.floats(0.4, 1.2),
    contention=st.floats(1.0, 3.0),
    gpu=st.sampled_from([None, "cuda"]),
    learners=st.sampled_from([1, 2]),
    kind=st.sampled_from(
        [
            *({"ratio": ratio} for ratio in (0.25, 1.0, 4.0, 32.0)),
            {"ratio": 1.0, "pool": 100},
            {"ratio": 1.0, "on_policy": True, "batch": 40, "pool": 40},
            {"ratio": 1.0, "on_policy": True, "batch": 40, "pool": 40, "alternates": True},
        ]
    ),
)


wishes = st.builds(
    PlanRequest,
    st.integers(1, 9),
    st.integers(1, 3),
    groups=st.none() | st.integers(1, 6),
    actors=st.none() | st.integers(1, 9),
    envs=st.none() | st.sampled_from([1, 2, 3, 4, 2_000]),
    learner_cores=st.none() | st.integers(1, 9),
    buffer_alone=st.none() | st.booleans(),
)
sizes = st.none() | st.sampled_from([n * MB for n in (100, 130, 250, 400, 1_000)])


@settings(max_examples=300)
@given(
    costs_of_all_kinds, st.builds(PlanRequest, st.integers(1, 9), st.integers(1, 3)) | wishes, sizes
)
def test_no_split_is_faster_than_the_solvers_beyond_noise(costs, wish, memory_bytes):
    wish = dataclasses.replace(wish, memory_bytes=memory_bytes)
    rates = {found: predict(costs, found).production for found in allowed(costs, wish)}
    if not rates:
        with pytest.raises(TianJiError):
            solve(costs, wish)
        return
    choices = solve(costs, wish)
    assert {choice.split for choice in choices} <= set(rates)
    assert choices[0].prediction.production >= (1 - NOISE) * (1 - MORE_STEPS) * max(rates.values())


@given(costs_of_all_kinds, st.integers(1, 40), st.integers(1, 4))
def test_no_split_uses_more_cores_or_changes_what_freshness_is_made_of(costs, cores, hosts):
    for found in candidates(costs, PlanRequest(cores, hosts)):
        assert found.cores(costs.work) <= cores * hosts
        assert (found.batch, found.pool) == (costs.work.batch, costs.work.pool)


def test_of_equally_fast_splits_the_simplest_is_chosen():
    idle = graded(step=1e-6, update=0.1)  # one actor outruns the learner by far
    chosen = solve(idle, PlanRequest(4, groups=1, learner_cores=1))[0].split
    assert (chosen.actors, chosen.envs, chosen.buffer_alone) == (1, 4, False)


@pytest.mark.parametrize(("step", "envs"), [(7.1e-4, 1), (8e-4, 4)])
def test_the_environments_of_the_configuration_stay_unless_others_bring_much(step, envs):
    """Actors that wait more disturb the learner less; but a result then takes more steps."""
    costs = graded(step=step, update=0.05, contention=1.2, envs=1)
    wish = PlanRequest(2, groups=1, actors=1)
    rates = {n: solve(costs, dataclasses.replace(wish, envs=n))[0] for n in (1, 4)}
    gain = rates[4].prediction.production / rates[1].prediction.production - 1
    assert (NOISE < gain < MORE_STEPS) if envs == 1 else (gain > MORE_STEPS)
    assert solve(costs, wish)[0].split.envs == envs


def test_slow_environments_get_the_cores():
    found = solve(graded(step=0.05), PlanRequest(16))[0]
    assert found.split.groups * found.split.actors >= 14
    assert found.prediction.bound is Bound.SAMPLE


def test_slow_updates_get_more_groups():
    found = solve(graded(step=1e-5, update=0.1, speedup=1.0), PlanRequest(16))[0].split
    assert (found.groups, found.actors) == (8, 1)


def test_a_gpu_is_not_multiplied_by_groups():
    slow = graded(step=1e-5, update=0.1, speedup=1.0)
    slow = dataclasses.replace(slow, machine=dataclasses.replace(slow.machine, gpu="cuda"))
    found = solve(slow, PlanRequest(16))[0]
    assert found.split.groups == 1
    assert found.prediction.could_take == pytest.approx(100 / (2 * 0.101), rel=0.01)


def test_a_gpu_that_is_hardly_busy_serves_several_groups():
    slow = graded(step=1e-5, update=0.1, speedup=1.0)
    light = [dataclasses.replace(cost, on_gpu=((2, 1.1), (8, 1.3))) for cost in slow.learners]
    machine = dataclasses.replace(slow.machine, gpu="cuda")
    found = solve(
        dataclasses.replace(slow, machine=machine, learners=tuple(light)), PlanRequest(16)
    )[0]
    assert found.split.groups == 8


def test_an_on_policy_batch_keeps_its_environments_however_many_actors_have_them():
    costs = graded(alternates=True, on_policy=True, ratio=1.0, envs=12, batch=120, pool=120)
    for found in candidates(costs, PlanRequest(16)):
        assert found.actors * found.envs == 12


def test_rollouts_that_were_counted_are_not_cut():
    costs = graded(on_policy=True, ratio=1.0, envs=8, batch=80, pool=80, rollouts=2)
    assert {found.envs for found in candidates(costs, PlanRequest(16))} == {4}


def test_a_store_has_room_for_a_trajectory_of_every_actor():
    costs = graded(step=0.05, pool=200, batch=100)
    assert {
        (c.actors, c.envs) for c in candidates(costs, PlanRequest(8, groups=1, learner_cores=1))
    } == {
        *((n, 1) for n in range(1, 8)),
        *((n, 4) for n in range(1, 6)),
    }


def test_a_single_core_is_shared():
    costs = graded()
    [best, *_] = solve(costs, PlanRequest(1))
    assert best.split.one_core and best.split.cores(costs.work) == 1
    both = 1 / best.prediction.could_produce + 1 / best.prediction.could_take
    assert best.prediction.production == pytest.approx(1 / both)


def test_next_best_splits_have_other_roles_and_come_in_order():
    choices = solve(graded(), PlanRequest(8))
    rates = [choice.prediction.production for choice in choices[1:]]
    assert rates == sorted(rates, reverse=True) and len(rates) == 6
    roles = {(c.split.groups, c.split.learner_cores, c.split.actors, c.split.buffer_alone)
             for c in choices}  # fmt: skip
    assert len(roles) == len(choices)


def test_next_best_splits_keep_the_environments_of_the_configuration_too():
    idle = graded(step=1e-6, update=0.1, envs=1)  # actors outrun the learners with any number
    assert {
        choice.split.envs for choice in solve(idle, PlanRequest(8)) if choice.split.actors == 1
    } == {1}


def test_learners_of_a_group_can_share_the_rollouts_of_its_actors():
    costs = graded(
        on_policy=True, alternates=True, ratio=1.0, envs=4, batch=40, pool=40, learners=2
    )
    assert {found.actors for found in candidates(costs, PlanRequest(8))} == {2, 4}


def test_hosts_have_equally_many_groups():
    with pytest.raises(TianJiError, match=r"group_num=2; each of 5 hosts"):
        solve(graded(), PlanRequest(2, hosts=5, groups=2))


def test_more_environments_than_a_pool_can_hold_are_named_as_the_reason():
    with pytest.raises(TianJiError, match=r"actor_cfg.envs=2000; .* 1,000 env"):
        solve(graded(), PlanRequest(8, envs=2_000))


def test_what_does_not_fit_into_memory_is_no_plan():
    small = solve(graded(), PlanRequest(16, memory_bytes=300 * MB))[0]
    assert small.prediction.memory_bytes <= 300 * MB
    with pytest.raises(TianJiError, match="no plan fits into memory: the smallest needs 120 MiB"):
        solve(graded(), PlanRequest(16, memory_bytes=100 * MB))


@pytest.mark.parametrize(
    ("changes", "hosts", "advice"),
    [
        ({}, 1, "100 MiB are free on 1 host: lower hyp.buffer_size"),
        ({}, 2, "200 MiB are free on 2 hosts: lower hyp.buffer_size"),
        ({"on_policy": True, "batch": 40, "pool": 40}, 1, "lower actor_cfg.envs"),
    ],
)
def test_where_the_smallest_plan_has_no_room_what_helps_is_advised(changes, hosts, advice):
    with pytest.raises(TianJiError, match=f"no plan fits into memory.* {advice}"):
        solve(graded(**changes), PlanRequest(16, hosts, memory_bytes=100 * MB))


@pytest.mark.parametrize(
    ("changes", "wish", "said"),
    [
        (
            {"on_policy": True, "envs": 8},
            PlanRequest(4, actors=3),
            "num=3; .* 8 environ.* 1, 2, 4 or 8",
        ),
        ({}, PlanRequest(4, actors=9), "no split of 4 cores on 1 host has actor_cfg.num=9: "),
        (
            {},
            PlanRequest(1, hosts=2, actors=9, buffer_alone=True),
            "1 core on 2 hosts has actor_cfg.num=9, buffer_cfg.cores=1; ",
        ),
    ],
)
def test_what_cannot_be_split_says_what_was_asked(changes, wish, said):
    with pytest.raises(TianJiError, match=said):
        solve(graded(**changes), wish)


def refusal(call, *arguments):
    """What it raises with; None: nothing."""
    try:
        call(*arguments)
    except TianJiError as error:
        return str(error)
    return None


@given(costs_of_all_kinds, wishes)
def test_what_is_refused_before_measuring_is_what_would_be_refused_afterwards(costs, wish):
    """These costs have a learner of one core and an actor of one environment, as a probe has."""
    assert refusal(refuse_impossible, costs.work, wish) == refusal(solve, costs, wish)


def test_who_acts_for_the_actors_of_a_group_takes_a_core():
    work = graded(inference=True).work
    found = list(candidates(graded(inference=True), PlanRequest(8, groups=1, learner_cores=1)))
    assert max(split.actors for split in found) == 6
    assert all(split.cores(work) <= 8 for split in found)
    in_turns = graded(inference=True, alternates=True)
    assert max(split.actors for split in candidates(in_turns, PlanRequest(8))) == 7


def test_two_cores_are_too_few_for_three_who_work_at_once_and_hosts_have_no_such_role():
    work = graded(inference=True).work
    refuse_impossible(work, PlanRequest(1))  # which all share
    refuse_impossible(work, PlanRequest(3))
    with pytest.raises(TianJiError, match=r"no split of 2 cores .* has a core of its own"):
        refuse_impossible(work, PlanRequest(2))
    with pytest.raises(TianJiError, match=r"actor_cfg\.inference: roles on 2 hosts"):
        refuse_impossible(work, PlanRequest(8, hosts=2))
