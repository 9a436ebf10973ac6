"""Whole groups under any order of turns: they end, alike within a group, and nothing is lost."""

import numpy as np
import pytest
from commands import TASKS
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji import config
from tianji.core.counts import Count
from tianji.job import factory
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.roles.role_specs import roles_of
from tianji.transports.local import LocalTransport

SHAPES = {
    "two groups": ("global_cfg.group_num=2", "learner_cfg.send_root_interval=1"),
    "three learners": ("learner_cfg.num=3", "hyp.batch_size=12"),
    "two groups of two learners": (
        *("global_cfg.group_num=2", "learner_cfg.num=2", "learner_cfg.send_root_interval=2"),
    ),
}
JOBS = {}


def job_of(name):
    if name not in JOBS:
        short = ("exp.train_steps=120", "hyp.warmup_size=16", "learner_cfg.send_interval=2")
        made = config.load(TASKS / "walk_dqn.py", (*SHAPES[name], *short))
        env = factory.make_env(made)
        env.close()
        JOBS[name] = prepare(made, env.spec)
    return JOBS[name]


SEEDS, STOPS = st.integers(0, 2**32), st.none() | st.integers(0, 900)


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=4)
@given(seed=SEEDS, stops_after=STOPS)
def test_roles_that_get_turns_in_any_order_all_come_to_their_end(name, seed, stops_after):
    check(name, seed, stops_after)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=60)
@given(seed=SEEDS, stops_after=STOPS)
def test_and_so_they_do_in_many_more(name, seed, stops_after):
    check(name, seed, stops_after)


def check(name, seed, stops_after):
    job, random = job_of(name), np.random.default_rng(seed)
    transport = LocalTransport(channels_of(job))
    roles = [factory.build(spec, job, transport) for spec in roles_of(job.config)]
    control, favour = transport.outbox("control"), random.random(len(roles)) + 0.05
    for turn in range(200_000):
        if turn == stops_after:
            control.close()
        left = [i for i, role in enumerate(roles) if not role.done]
        if not left:
            break
        share = favour[left] / favour[left].sum()
        roles[random.choice(left, p=share)].step()
    assert all(role.done and role.settled for role in roles)
    by_name = {role.name: role for role in roles}
    for group in range(job.config.n_groups):
        learners = [by_name[f"learner-{group}.{i}"] for i in range(job.config.n_learners)]
        assert len({learner.version for learner in learners}) == 1
        assert len({learner.algorithm.parameters().tobytes() for learner in learners}) == 1
        if stops_after is None:
            buffer = by_name[f"buffer-{group}.0"]
            assert buffer.handed == learners[0].version > 0
            assert buffer.counts[Count.RECEIVED] >= job.train_steps(group)
