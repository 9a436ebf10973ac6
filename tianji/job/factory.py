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
from tianji.job.job import Job
from tianji.roles import Actor, Buffer, Learner
from tianji.roles.allreduce import Exchange
from tianji.roles.episodes import Clock
from tianji.roles.evaluation import MOST_ENVS, env_seed
from tianji.roles.evaluator import Evaluator
from tianji.roles.fusion import Fusion, parameters_schema
from tianji.roles.lost_actor import Shares, StandIn
from tianji.roles.reducer import Reducer
from tianji.roles.role import Role
from tianji.roles.role_specs import (
    MEAN,
    Kind,
    RoleSpec,
    batches_of,
    gradients_of,
    parameters_of,
    priorities_of,
    role_name,
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
            return _build_buffer(role, job, ports, counts)
        case Kind.LEARNER:
            return _build_learner(role, job, ports, clock, counts)
        case Kind.EVALUATOR:
            return _build_evaluator(role, job, ports)
        case Kind.REDUCER:
            return _build_reducer(role, job, ports)


def _build_actor(
    role: RoleSpec, job: Job, ports: Ports, clock: Clock, counts: Vector | None
) -> Actor:
    config = job.config
    env, policy, make = _env_and_policy(role, job)
    if env.spec != job.task.env:
        raise TianJiError(
            f"{role.name}: its environment has {env.spec}, the launcher's {job.task.env}"
        )
    actor_cfg = config.parallel.actor_cfg
    trigger = load_class(actor_cfg.trigger, config.folder) if actor_cfg.trigger else WhenFull
    rest: dict[str, Any] = dict(
        weights=ports.inbox(weights_of(role.group)),
        trajectories=ports.outbox(f"trajectories {role.name}"),
        episodes=ports.outbox(f"episodes {role.name}"),
        trigger=trigger(job.length),
        length=job.length,
        seed=job.env_seed(role.index, role.group, role.life),
        per_version=job.sampling.per_version,
        clock=clock,
        counts=counts,
        make_env=make,
        restarts=config.parallel.global_cfg.restarts,
    )
    if isinstance(env, EnvHalves) and isinstance(policy, PolicyHalves):
        return SplitActor(role.name, env, policy, **rest)
    return Actor(role.name, env, policy, **rest)


def _env_and_policy(role: RoleSpec, job: Job) -> tuple[envs.Env, Policy, Callable[[], envs.Env]]:
    """An actor's environments, what acts in them, and how they are made; in halves if that is fast.

    Environments that can be left alone while they move are stepped in two halves, each with a
    policy of its own: the task says how many of these there are. Not where a trigger may end
    trajectories between their steps, nor where the order is to be that of serial training.
    """
    config, seed = job.config, job.seed(Kind.ACTOR, role.index, role.group, role.life)
    actor_cfg = config.parallel.actor_cfg
    split = envs.splits(config.environment) and not actor_cfg.envs % 2
    if not split or actor_cfg.trigger or job.in_turns:
        policy = job.algorithm.policy(job.task, role.index, seed)
        return make_env(config), policy, partial(make_env, config)
    size, n = actor_cfg.envs // 2, 2 * job.task.n_actors
    make = partial(make_env, config, size)
    halves = EnvHalves([_split(make()) for _ in range(2)])
    task = replace(job.task, n_actors=n, env=replace(job.task.env, n_envs=size))
    seeds = np.random.SeedSequence(seed).generate_state(2)
    policies = [job.algorithm.policy(task, 2 * role.index + i, int(seeds[i])) for i in range(2)]
    return halves, PolicyHalves(policies), make


def _split(env: envs.Env) -> SplitEnv:
    assert isinstance(env, SplitEnv)
    return env


def _build_buffer(role: RoleSpec, job: Job, ports: Ports, counts: Vector | None) -> Buffer:
    actors = [role_name(Kind.ACTOR, i, role.group) for i in range(job.task.n_actors)]
    seed = job.seed(Kind.BUFFER, 0, role.group, role.life)
    ahead = job.arriving if job.in_turns else job.slack  # the first of everybody comes at once
    store = job.sampling.build(job.trajectory, len(actors), ahead, seed)
    units, warmup = job.sampling.batch_units, job.sampling.warmup
    balance = Balance(job.ratio, units, warmup, job.slack, job.ahead)
    names = [batches_of(role.group, i) for i in range(job.config.n_learners)]
    outboxes = [ports.outbox(name) for name in names]
    batch = job.sampling.batch_schema(job.trajectory)
    inboxes = [ports.inbox(f"trajectories {actor}") for actor in actors]
    if (share := job.sampling.per_version) is not None:
        group = Shares(share, lambda: buffer.handed, lambda steps: buffer.refuse(steps))
        inboxes = [StandIn(inbox, job.trajectory, group) for inbox in inboxes]
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


def _make_exchange(role: RoleSpec, job: Job, ports: Ports) -> Exchange:
    group, own = role.group, role.index
    others = [i for i in range(job.config.n_learners) if i != own]
    return Exchange(
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


def _build_evaluator(role: RoleSpec, job: Job, ports: Ports) -> Evaluator:
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
