"""From a job to any of its roles, for any engine; and what engines need of jobs and channels."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from tianji import envs
from tianji.config import Config
from tianji.core.algorithm import Algorithm, Policy
from tianji.core.balance import Balance
from tianji.core.channel import Inbox, Outbox
from tianji.core.counts import Vector
from tianji.core.env import SplitEnv
from tianji.core.errors import TianJiError
from tianji.core.imports import load_class
from tianji.core.store import Store
from tianji.job.job import Job
from tianji.models.acting import look_ahead, share_network
from tianji.roles import Actor, Buffer, Learner
from tianji.roles.allreduce import AllReduce
from tianji.roles.env_actor import EnvActor
from tianji.roles.episodes import Clock
from tianji.roles.evaluation import MOST_ENVS, env_seed
from tianji.roles.evaluator import Evaluator
from tianji.roles.fusion import Fusion, parameters_schema
from tianji.roles.inference import Inference, Seat
from tianji.roles.lost_actor import SurvivingInbox, VersionShares
from tianji.roles.reducer import Reducer
from tianji.roles.role import Role
from tianji.roles.role_specs import (
    MEAN,
    Kind,
    RoleSpec,
    actions_of,
    batches_of,
    gradients_of,
    parameters_of,
    priorities_of,
    role_name,
    steps_of,
    weights_of,
)
from tianji.roles.shards import Shards
from tianji.roles.split_actor import EnvHalves, PolicyHalves, SplitActor
from tianji.roles.trigger import EveryUpdates, WhenFull


class Ports(Protocol):
    """The channel ends that a role is made with."""

    def outbox(self, name: str) -> Outbox:
        """The sending end of a channel."""

    def inbox(self, name: str) -> Inbox:
        """A receiving end of a channel."""


def build(
    role: RoleSpec,
    job: Job,
    ports: Ports,
    clock: Clock = time.monotonic,
    counts: Vector | None = None,
) -> Role:
    """Makes one role, for any engine; `clock` is the launcher's, whatever machine this is.

    It counts in `counts`, where these are given: a new life goes on with those of the one before.
    """
    match role.kind:
        case Kind.ACTOR:
            return _build_actor(role, job, ports, clock, counts)
        case Kind.BUFFER:
            return build_buffer(role, job, ports, make_store(role, job), counts)
        case Kind.LEARNER:
            return _build_learner(role, job, ports, clock, counts)
        case Kind.EVALUATOR:
            return _build_evaluator(role, job, ports, counts)
        case Kind.REDUCER:
            return _build_reducer(role, job, ports)
        case Kind.INFERENCE:
            return _build_inference(role, job, ports, counts)


def _build_actor(
    role: RoleSpec, job: Job, ports: Ports, clock: Clock, counts: Vector | None
) -> Actor | EnvActor:
    config, actor_cfg = job.config, job.config.parallel.actor_cfg
    env, make = _envs_of(job)
    if env.spec != job.task.env:
        raise TianJiError(
            f"{role.name}: its environment has {env.spec}, the launcher's {job.task.env}"
        )
    rest: dict[str, Any] = dict(
        episodes=ports.outbox(f"episodes {role.name}"),
        length=job.length,
        seed=job.env_seed(role.index, role.group, role.life),
        clock=clock,
        counts=counts,
        make_env=make,
        restarts=config.parallel.global_cfg.restarts,
    )
    if actor_cfg.inference:
        ends = ports.inbox(actions_of(role.name)), ports.outbox(steps_of(role.name))
        return EnvActor(role.name, env, *ends, **rest)
    trigger = load_class(actor_cfg.trigger, config.folder) if actor_cfg.trigger else WhenFull
    rest |= dict(
        weights=ports.inbox(weights_of(role.group)),
        trajectories=ports.outbox(f"trajectories {role.name}"),
        trigger=trigger(job.length),
        per_version=job.sampling.per_version,
    )
    policies = _policies_of(role, job)
    if isinstance(env, EnvHalves):
        return SplitActor(role.name, env, PolicyHalves(policies), **rest)
    return Actor(role.name, env, policies[0], **rest)


def _envs_of(job: Job) -> tuple[envs.Env, Callable[[], envs.Env]]:
    """An actor's environments, and how they, or a half of them, are made."""
    if job.n_halves == 1:
        return make_env(job.config), partial(make_env, job.config)
    make = partial(make_env, job.config, job.task.env.n_envs // 2)
    return EnvHalves([_split(make()) for _ in range(2)]), make


def _policies_of(actor: RoleSpec, job: Job) -> list[Policy]:
    """What acts in an actor's environments: each half of them has a policy of its own.

    The task says how many of these there are.
    """
    seed, n = job.seed(Kind.ACTOR, actor.index, actor.group, actor.life), job.n_halves
    if n == 1:
        return [job.algorithm.policy(job.task, actor.index, seed)]
    env = replace(job.task.env, n_envs=job.task.env.n_envs // n)
    task = replace(job.task, n_actors=n * job.task.n_actors, env=env)
    seeds = np.random.SeedSequence(seed).generate_state(n)
    return [job.algorithm.policy(task, n * actor.index + i, int(seeds[i])) for i in range(n)]


def _build_inference(role: RoleSpec, job: Job, ports: Ports, counts: Vector | None) -> Inference:
    seats, everybody = [], list[Policy]()
    for i in range(job.task.n_actors):
        actor = replace(role, kind=Kind.ACTOR, index=i)
        ends = (
            ports.inbox(steps_of(actor.name)),
            ports.outbox(actions_of(actor.name)),
            ports.outbox(f"trajectories {actor.name}"),
        )
        policies, each = _policies_of(actor, job), job.sampling.per_version
        everybody += policies
        seats.append(Seat(*ends, policies, job.length, each))
    together = look_ahead if share_network(everybody) else None
    return Inference(role.name, seats, ports.inbox(weights_of(role.group)), counts, together)


def _split(env: envs.Env) -> SplitEnv:
    assert isinstance(env, SplitEnv)
    return env


def make_store(role: RoleSpec, job: Job) -> Store:
    """The storage of a buffer."""
    seed = job.seed(Kind.BUFFER, 0, role.group, role.life)
    ahead = job.arriving if job.in_turns else job.slack  # the first of everybody comes at once
    return job.sampling.build(job.trajectory, job.task.n_actors, ahead, seed)


def build_buffer(
    role: RoleSpec, job: Job, ports: Ports, store: Store, counts: Vector | None = None
) -> Buffer:
    """A buffer that keeps its samples in `store`."""
    actors = [role_name(Kind.ACTOR, i, role.group) for i in range(job.task.n_actors)]
    units, warmup = job.sampling.batch_units, job.sampling.warmup
    balance = Balance(job.ratio, units, warmup, job.slack, job.ahead)
    names = [batches_of(role.group, i) for i in range(job.config.n_learners)]
    outboxes = [ports.outbox(name) for name in names]
    batch = job.sampling.batch_schema(job.trajectory)
    inboxes = [ports.inbox(f"trajectories {actor}") for actor in actors]
    if (share := job.sampling.per_version) is not None:
        group = VersionShares(share, lambda: buffer.handed, lambda steps: buffer.refuse(steps))
        inboxes = [SurvivingInbox(inbox, job.trajectory, group) for inbox in inboxes]
    buffer = Buffer(
        role.name,
        inboxes,
        outboxes[0] if len(outboxes) == 1 else Shards(outboxes, batch),
        store,
        balance,
        max_steps=job.train_steps(role.group),
        in_turns=job.in_turns or job.sampling.once,  # on-policy: fresh before fast
        in_order=job.in_turns or job.sampling.per_version is not None,
        feedback=[ports.inbox(priorities_of(role.group, i)) for i in _reweighing(job)],
        counts=counts,
    )
    return buffer


def _reweighing(job: Job) -> range:
    """The learners of a group that send priorities back."""
    return range(job.config.n_learners if job.sampling.reweighs else 0)


def _build_learner(
    role: RoleSpec, job: Job, ports: Ports, clock: Clock, counts: Vector | None
) -> Learner:
    learner_cfg = job.config.parallel.learner_cfg
    trigger: type = EveryUpdates
    if learner_cfg.trigger:
        trigger = load_class(learner_cfg.trigger, job.config.folder)
    algorithm = _make_algorithm(role, job)
    first = role.index == 0
    return Learner(
        role.name,
        algorithm,
        batches=ports.inbox(batches_of(role.group, role.index)),
        weights=ports.outbox(weights_of(role.group)) if first else None,
        control=ports.inbox("control"),
        trigger=trigger(learner_cfg.send_interval),
        max_updates=job.config.max_updates,
        exchange=_make_exchange(role, job, ports) if job.config.n_learners > 1 else None,
        fusion=_make_fusion(role, job, ports) if job.config.fuses and first else None,
        clock=clock,
        feedback=ports.outbox(priorities_of(role.group, role.index))
        if job.sampling.reweighs
        else None,
        counts=counts,
    )


def _make_algorithm(role: RoleSpec, job: Job) -> Algorithm:
    """Learners of a group begin alike; so do fused groups, for a mean of strangers is nothing."""
    from tianji.models.device import device_for  # here, because only a learner has torch

    device, name = device_for(job.config.parallel.learner_cfg.device), job.config.agent.type
    algorithm = job.algorithm(job.task, job.seed(Kind.LEARNER, 0, role.group), device)
    job.weights.check({"weights": algorithm.weights()}, f"{name}.weights()")
    if job.config.fuses or job.config.n_learners > 1:
        layout = parameters_schema(job.n_parameters)
        layout.check({"parameters": algorithm.parameters()}, f"{name}.parameters()")
    if job.config.fuses and role.group:
        first = job.algorithm(job.task, job.seed(Kind.LEARNER), device)
        algorithm.shift(first.parameters() - algorithm.parameters())
        algorithm.load(algorithm.weights().copy())  # what follows from them, as a target network
    return algorithm


def _make_exchange(role: RoleSpec, job: Job, ports: Ports) -> AllReduce:
    group, own = role.group, role.index
    others = [i for i in range(job.config.n_learners) if i != own]
    return AllReduce(
        own,
        {i: ports.outbox(gradients_of(group, own, i)) for i in others},
        {i: ports.inbox(gradients_of(group, i, own)) for i in others},
        job.n_parameters,
    )


def _make_fusion(role: RoleSpec, job: Job, ports: Ports) -> Fusion:
    ends = ports.outbox(parameters_of(role.group)), ports.inbox(MEAN)
    return Fusion(*ends, job.n_parameters, job.config.parallel.learner_cfg.send_root_interval)


def _build_reducer(role: RoleSpec, job: Job, ports: Ports) -> Reducer:
    inboxes = [ports.inbox(parameters_of(group)) for group in range(job.config.n_groups)]
    return Reducer(role.name, inboxes, ports.outbox(MEAN), job.n_parameters, job.config.max_fusions)


def _build_evaluator(role: RoleSpec, job: Job, ports: Ports, counts: Vector | None) -> Evaluator:
    n_episodes, seed = job.config.exp.eval_times, job.config.exp.seed
    return Evaluator(
        role.name,
        make_games_env(job.config, n_episodes),
        job.algorithm.policy(job.task, 0, seed),
        weights=ports.inbox(weights_of(0)),
        orders=ports.inbox("evaluate"),
        results=ports.outbox("evaluations"),
        n_episodes=n_episodes,
        seed=env_seed(seed),  # `tianji eval` with the run's seed plays the same games
        counts=counts,
    )


def make_env(config: Config, n_envs: int | None = None) -> envs.Env:
    """The environments of one actor, or `n_envs` of them."""
    n_envs = config.parallel.actor_cfg.envs if n_envs is None else n_envs
    return envs.make(config.environment, n_envs, config.folder, config.exp.max_step)


def make_games_env(config: Config, n_episodes: int) -> envs.Env:
    """Environments to evaluate in: some side by side, of the kind an actor has, without a window.

    A library's own vector environment is used only where an actor uses it too, so that what is
    evaluated is what was trained in.
    """
    section = replace(config.environment, render=False)
    if section.vectorization == "auto" and config.parallel.actor_cfg.envs == 1:
        section = replace(section, vectorization="sync")
    n_envs = 1 if section.vectorization == "single" else min(n_episodes, MOST_ENVS)
    return envs.make(section, n_envs, config.folder, config.exp.max_step)


def make_shown_env(config: Config, rendering: envs.Rendering) -> envs.ShownEnv:
    """One environment to look at."""
    return envs.make_shown(config.environment, config.folder, config.exp.max_step, rendering)
