"""A plan made from costs, the row of the configuration beside it, and how many groups it has."""

import dataclasses

import pytest
from profiles import profile

from tianji.config import load
from tianji.strategy.plan import solver
from tianji.strategy.plan.solver import PlanRequest
from tianji.strategy.probe import planner

JOB = profile()


@pytest.fixture
def dqn(root):
    return root / "configs" / "cartpole_dqn.py"


@pytest.mark.parametrize(("cores", "threads"), [(2, 1), (3, 2), (16, 4)])
def test_the_row_of_the_configuration_has_the_threads_that_its_run_would_have(dqn, cores, threads):
    configured = planner.make(load(dqn, []), JOB, PlanRequest(cores)).configured
    assert configured.split.learner_cores == threads
    wanted = load(dqn, ["learner_cfg.cores=1"])
    assert planner.make(wanted, JOB, PlanRequest(cores)).configured.split.learner_cores == 1
    assert (
        planner.make(load(dqn, ["learner_cfg.cores=99"]), JOB, PlanRequest(cores)).configured
        is None
    )


def test_the_row_of_the_configuration_has_no_threads_on_cores_of_another_host(dqn):
    for groups, cores, hosts, threads in ((1, 3, 4, 2), (2, 3, 2, 2), (4, 6, 2, 2), (2, 6, 1, 2)):
        config = load(dqn, [f"global_cfg.group_num={groups}"])
        configured = planner.make(config, JOB, PlanRequest(cores, hosts)).configured
        assert configured.split.learner_cores == threads, (groups, cores, hosts)
    many = load(dqn, ["actor_cfg.num=6"])
    assert planner.make(many, JOB, PlanRequest(8, 2)).configured.split.actors == 6
    assert planner.make(many, JOB, PlanRequest(4, 2)).configured is None  # a group is on one host


def test_groups_share_the_steps_of_a_run_so_there_are_not_more_than_can_learn_from_them(dqn):
    """The fastest split of 16 cores has more groups than a short run has updates for."""
    slow = profile(update=16e-3)
    costs = dataclasses.replace(slow, machine=dataclasses.replace(slow.machine, cores=16))
    per_update = costs.work.batch / costs.work.ratio
    long, short = (
        load(dqn, [f"exp.train_steps={round(n * planner.GROUP_UPDATES * per_update)}"])
        for n in (1_000, 2)
    )
    free = planner.make(long, costs, PlanRequest(16))
    assert free.plan.split.groups > 2 and free.note is None
    limited = planner.make(short, costs, PlanRequest(16))
    assert limited.plan.split.groups <= 2 and "exp.train_steps" in limited.note
    asked = planner.make(short, costs, PlanRequest(16, groups=free.plan.split.groups))
    assert asked.plan.split.groups == free.plan.split.groups and asked.note is None
    assert (
        planner.make(short, costs, PlanRequest(16, hosts=4)).plan.split.groups == 4
    )  # one on each


def test_groups_that_nobody_would_average_are_one_of_each_host_unless_more_are_asked_for(dqn):
    """Each would be a training of its own, and only the first is kept."""
    costs = profile(update=16e-3)
    apart = load(dqn, ["global_cfg.use_group_parallel=False"])
    assert planner.make(load(dqn, []), costs, PlanRequest(16)).plan.split.groups > 1
    alone = planner.make(apart, costs, PlanRequest(16))
    assert alone.plan.split.groups == 1
    assert "use_group_parallel=False" in alone.note and "--groups N" in alone.note
    assert planner.make(apart, costs, PlanRequest(16, hosts=4)).plan.split.groups == 4
    assert planner.make(apart, costs, PlanRequest(16, groups=2)).plan.split.groups == 2


def test_the_split_of_a_configuration_for_a_single_core_is_that_of_its_plan(dqn):
    made = planner.make(load(dqn, []), JOB, PlanRequest(1))
    assert made.plan.split.one_core and made.configured.split == made.plan.split
    more = load(dqn, ["actor_cfg.num=2"])
    assert planner.make(more, JOB, PlanRequest(1)).configured is None
    turns = profile(on_policy=True, alternates=True, batch=128, pool=128)
    assert not planner.make(load(dqn, []), turns, PlanRequest(1)).configured.split.one_core


def test_a_limit_of_groups_does_not_have_every_split_looked_at_twice(dqn, monkeypatch):
    seen, predict = [], solver.predict
    monkeypatch.setattr(
        solver, "predict", lambda costs, split: seen.append(split) or predict(costs, split)
    )
    short = load(dqn, ["exp.train_steps=5000"])
    assert planner.make(short, profile(update=16e-3), PlanRequest(16)).note is not None
    assert len(seen) == len(set(seen)) > 1
