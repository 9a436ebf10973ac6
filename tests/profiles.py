"""Profiles made by hand: every cost is what a test says it is."""

import dataclasses

from tianji.strategy.plan.plan_file import Plan
from tianji.strategy.plan.profile import ActorCost, LearnerCost, Machine, Profile, Work
from tianji.strategy.plan.same_job import digest_of, keys_of
from tianji.strategy.plan.split import Split

MB = 2**20
MACHINE = Machine("some CPU", 16)


def profile(
    *,
    step=1e-3,
    send=0.0,
    receive=0.0,
    update=1e-3,
    draw=0.0,
    load=0.0,
    contention=1.0,
    envs=8,
    act=None,
    trajectory_bytes=4_096,
    gpu=None,
    **work,
):
    """One actor and one learner were measured; `work` are fields of Work."""
    asked = dict(steps=16, batch=128, pool=4_096, warmup=512, ratio=1.0, envs=envs)
    asked |= dict(alternates=False, weights_bytes=40_000) | work
    return Profile(
        Machine("a processor", 4, gpu),
        Work(name="made", digest="0", **asked),
        (ActorCost(envs, step, send, receive, trajectory_bytes, 40_000_000, act),),
        (LearnerCost(1, asked["batch"], update, draw, 150_000_000, contention),),
        load,
    )


def graded(
    step=0.001, update=0.01, receive=0.0001, speedup=0.8, contention=1.0, gpu=None, **changes
):
    """Actors of 1 and 4 environments, learners of 1, 2 and 4 cores; `changes` are fields of Work.

    Each doubling of cores makes updates `speedup` as long.
    """
    return Profile(
        Machine("some CPU", 16, gpu),
        work(**changes),
        tuple(ActorCost(e, step * (1 + e / 4), 1e-5, receive, 1_000 * e, 20 * MB) for e in (1, 4)),
        tuple(
            LearnerCost(c, 100, update * speedup**i, 0.001, 100 * MB, contention)
            for i, c in enumerate((1, 2, 4))
        ),
    )


def work(**changes):
    """What `graded` profiles are of."""
    facts = {
        "name": "job", "digest": "d", "steps": 10, "batch": 100, "pool": 10_000, "warmup": 0,
        "ratio": 2.0, "envs": 4, "alternates": False, "weights_bytes": 4_000,
    }  # fmt: skip
    return Work(**facts | changes)


def split(**changes):
    """One of the simplest, for the same work."""
    return Split(**{"groups": 1, "learner_cores": 1, "actors": 1, "envs": 4, "batch": 100,
                    "pool": 10_000} | changes)  # fmt: skip


def plan_for(config):
    """A plan of two actors and two cores to learn, for this configuration."""
    costs = dataclasses.replace(graded(), work=work(digest=digest_of(config), keys=keys_of(config)))
    chosen = split(actors=2, learner_cores=2)
    return Plan(costs, chosen, {"hyp.lr": 0.004})
