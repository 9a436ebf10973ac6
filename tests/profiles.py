"""Profiles made by hand: every cost is what a test says it is."""

from tianji.planning.profile import ActorCost, LearnerCost, Machine, Profile, Work


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
