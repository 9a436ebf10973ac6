"""From a configuration to roles and channels, and from those to any role for any engine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from tianji import envs
from tianji.algorithms.base import Algorithm, Task
from tianji.balance import Balance
from tianji.channel import ChannelSpec, Delivery, Inbox, Outbox
from tianji.config import Config, bind
from tianji.counts import learner_report_schema, report_schema
from tianji.envs.base import EnvSpec
from tianji.episodes import EPISODE_SCHEMA, Clock
from tianji.errors import TianJiError
from tianji.evaluation import MOST_ENVS, env_seed
from tianji.evaluator import ORDER_SCHEMA as EVALUATION_ORDER
from tianji.evaluator import Evaluator, evaluation_schema
from tianji.imports import load_class
from tianji.replay import Replay
from tianji.roles import Actor, Buffer, Learner, Role
from tianji.rollouts import Rollouts
from tianji.roster import LAUNCHER, Kind, RoleSpec, evaluator_of, role_name, roles_of
from tianji.saving import ORDER_SCHEMA
from tianji.schema import Field, Schema
from tianji.store import Sampling, trajectory_schema
from tianji.transports import ring
from tianji.trigger import EveryUpdates, WhenFull

BUILT_IN = {"DQN": "tianji.algorithms.dqn:DQN", "PPO": "tianji.algorithms.ppo:PPO"}


@dataclass(frozen=True)
class Job:
    """A configuration together with what follows from it and from its environment."""

    config: Config
    algorithm: type[Algorithm]
    task: Task
    length: int  # T: steps per trajectory
    sampling: Sampling
    ratio: float  # samples consumed per sample produced
    stop_return: float | None

    @property
    def trajectory(self) -> Schema:
        """The layout of one trajectory."""
        env = self.task.env
        extra = self.algorithm.fields(self.task)
        action = Field("action", env.action.dtype, env.action.shape)
        return trajectory_schema(
            env.observation, action, extra, self.length, env.n_envs, env.same_step
        )

    @property
    def depth(self) -> int:
        """Trajectories in flight per actor; just one where `slack = 0` asks for serial order."""
        return 1 if self.config.parallel.buffer_cfg.slack == 0 else 2

    @property
    def batches_ahead(self) -> int:
        """Batches that wait for the learner; a second one would make on-policy samples older."""
        return 1 if isinstance(self.sampling, Rollouts) else 2

    @property
    def slack(self) -> int:
        """Steps that may be received before those already received were learned from."""
        given = self.config.parallel.buffer_cfg.slack
        if given is not None:
            return given
        rides = self.config.parallel.buffer_cfg.cores is None
        return 0 if rides else self.task.n_actors * self.length * self.task.env.n_envs

    @property
    def n_bytes(self) -> dict[str, int]:
        """Memory that the run will take beside code and libraries."""
        rings = sum(ring.n_bytes(spec) for spec in channels_of(self))
        store = self.sampling.n_bytes(self.trajectory, self.task.n_actors, self.slack)
        return {"channels": rings, "store": store}

    def seed(self, kind: Kind, index: int = 0) -> int:
        """The seed of one role: streams of different roles never meet."""
        entropy = (self.config.exp.seed, int(kind), index)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def env_seed(self, actor: int) -> int:
        """The seed of an actor's first environment; the others count on from it."""
        given = self.config.environment.seed
        if given is None:
            return self.seed(Kind.ACTOR, actor) % 2**31
        return given + actor * self.task.env.n_envs

    def to_json(self) -> dict[str, Any]:
        """What a worker process needs to make the same job."""
        return {"config": self.config.to_json(), "env": asdict(self.task.env)}


def load_algorithm(config: Config) -> tuple[type[Algorithm], Any]:
    """The algorithm's class and its hyper-parameters, checked."""
    name = config.agent.type
    algorithm = load_class(BUILT_IN.get(name, name), config.folder)
    if not issubclass(algorithm, Algorithm):
        raise TianJiError(
            f"agent.type: {name!r} is no subclass of tianji.algorithms.base.Algorithm"
        )
    if missing := sorted(algorithm.__abstractmethods__):
        raise TianJiError(f"agent.type: {name!r} lacks {', '.join(missing)}")
    if not dataclasses.is_dataclass(getattr(algorithm, "Hyp", None)):
        raise TianJiError(f"agent.type: {name!r} needs a dataclass Hyp with its hyper-parameters")
    return algorithm, bind(algorithm.Hyp, config.hyp, "hyp")


def prepare(config: Config, env: EnvSpec) -> Job:
    """Checks the configuration against the environment and derives every size."""
    algorithm, hyp = load_algorithm(config)
    _check_sizes(config, env)
    task = Task(env, config.model, hyp, config.parallel.actor_cfg.num)
    sampling = algorithm.sampling(task)
    length = algorithm.rollout_length(task) or config.parallel.actor_cfg.send_size
    _check_publishing(config, sampling)
    _check_room(sampling, length, task)
    algorithm.n_weights(task)
    stop = config.stop_return if config.stop_return is not None else env.reward_threshold
    return Job(config, algorithm, task, length, sampling, _ratio(config, sampling), stop)


def from_json(description: Mapping[str, Any], config: Config) -> Job:
    """The job that `Job.to_json` described, in a worker process."""
    env = dict(description["env"])
    for name in ("observation", "action"):
        env[name] = Field(env[name]["name"], env[name]["dtype"], tuple(env[name]["shape"]))
    for name in ("action_low", "action_high"):
        env[name] = None if env[name] is None else tuple(env[name])
    return prepare(config, EnvSpec(**env))


def _ratio(config: Config, sampling: Sampling) -> float:
    given = config.parallel.global_cfg.replay_ratio
    if given == "serial":
        return sampling.serial_ratio
    ratio = 1.0 if given == "balanced" else float(given)
    if isinstance(sampling, Rollouts) and ratio != 1.0:
        raise TianJiError(
            f"global_cfg.replay_ratio: {config.agent.type} learns from each sample once, so 1, "
            f"not {ratio:g}: use 'serial', or hyp.update_step for more epochs"
        )
    return ratio


def _check_publishing(config: Config, sampling: Sampling) -> None:
    """Refuses to publish so seldom that actors would wait for ever or make only what is too old."""
    learner = config.parallel.learner_cfg
    interval, lag = learner.send_interval, sampling.max_lag
    if sampling.per_version is not None and (interval != 1 or learner.trigger):
        raise TianJiError(
            "learner_cfg: synchronous training publishes after every update: leave out "
            "send_interval and trigger, or use an asynchronous mode (PPO: hyp.mode='async')"
        )
    if lag is not None and interval > lag:
        raise TianJiError(
            f"learner_cfg.send_interval: {interval} updates from one publication to the next is "
            f"more than the {lag} that a rollout may be behind: lower it, or raise hyp.max_lag"
        )


def _check_room(sampling: Sampling, length: int, task: Task) -> None:
    """Refuses a replay store that could not hold one trajectory of every actor."""
    least = task.n_actors * task.env.n_envs * length
    if isinstance(sampling, Replay) and sampling.capacity < least:
        raise TianJiError(
            f"hyp.buffer_size: {sampling.capacity} samples are less than one trajectory per actor "
            f"({task.n_actors} actors x {task.env.n_envs} environments x {length} steps): "
            f"use {least} at least"
        )


def _check_sizes(config: Config, env: EnvSpec) -> None:
    n_inputs = int(np.prod(env.observation.shape, dtype=int))
    n_outputs = env.n_actions or int(np.prod(env.action.shape, dtype=int))
    for name, given, true in (
        ("c1", config.model.c1, n_inputs),
        ("c2", config.model.c2, n_outputs),
    ):
        if given is not None and given != true:
            what = "observations have" if name == "c1" else "actions have"
            raise TianJiError(
                f"model.{name}: found {given}, but the environment's {what} size {true}: "
                f"write {name}={true} or leave it out"
            )


def channels_of(job: Job) -> list[ChannelSpec]:
    """Every channel of the run."""
    learner, buffer = role_name(Kind.LEARNER), role_name(Kind.BUFFER)
    actors = [role_name(Kind.ACTOR, i) for i in range(job.task.n_actors)]
    roles = roles_of(job.config)
    weights = _weights_schema(job)
    batch = job.sampling.batch_schema(job.trajectory)
    latest = Delivery.LATEST
    control = Schema((Field("nothing", "uint8"),))
    evaluator = evaluator_of(job.config)
    readers = (LAUNCHER,) if evaluator is None else (LAUNCHER, evaluator.name)
    specs = [
        ChannelSpec("weights", learner, tuple(actors), weights, latest, readers=readers),
        ChannelSpec("batches", buffer, (learner,), batch, depth=job.batches_ahead),
        ChannelSpec("control", LAUNCHER, (learner,), control, latest),
        ChannelSpec("orders", LAUNCHER, tuple(r.name for r in roles), ORDER_SCHEMA, latest),
    ]
    for actor in actors:
        specs.append(
            ChannelSpec(f"trajectories {actor}", actor, (buffer,), job.trajectory, depth=job.depth)
        )
        specs.append(ChannelSpec(f"episodes {actor}", actor, (LAUNCHER,), EPISODE_SCHEMA, depth=64))
    for role in roles:
        layout = report_schema()
        if role.kind is Kind.LEARNER:
            layout = learner_report_schema(job.algorithm.scalars)
        specs.append(ChannelSpec(f"report {role.name}", role.name, (LAUNCHER,), layout, latest))
    return specs + _evaluation_channels(job)


def _evaluation_channels(job: Job) -> list[ChannelSpec]:
    """What an evaluator has beside the weights, which it reads without being a target of theirs.

    A learner that rang its bell at every update would wake it for nothing.
    """
    evaluator = evaluator_of(job.config)
    if evaluator is None:
        return []
    name, latest = evaluator.name, Delivery.LATEST
    result = evaluation_schema(job.config.exp.eval_times, job.algorithm.n_weights(job.task))
    return [
        ChannelSpec("evaluate", LAUNCHER, (name,), EVALUATION_ORDER, latest),
        ChannelSpec("evaluations", name, (LAUNCHER,), result),
        ChannelSpec(f"report {name}", name, (LAUNCHER,), report_schema(), latest),
    ]


def _weights_schema(job: Job) -> Schema:
    return Schema((Field("weights", "float32", (job.algorithm.n_weights(job.task),)),))


def is_private(spec: ChannelSpec, homes: Mapping[str, str], home: str) -> bool:
    """Whether both ends of a channel are in the process called `home`."""
    return {homes[role] for role in (spec.source, *spec.targets)} == {home}


class Ports(Protocol):
    """The channel ends that a role is made with."""

    def outbox(self, name: str) -> Outbox:
        """The sending end of a channel."""

    def inbox(self, name: str) -> Inbox:
        """A receiving end of a channel."""


def build(role: RoleSpec, job: Job, ports: Ports, clock: Clock = time.monotonic) -> Role:
    """Makes one role, for any engine; `clock` is the launcher's, whatever machine this is."""
    if role.kind is Kind.ACTOR:
        return _build_actor(role, job, ports, clock)
    if role.kind is Kind.LEARNER:
        return _build_learner(role, job, ports, clock)
    return (_build_buffer if role.kind is Kind.BUFFER else _build_evaluator)(role, job, ports)


def _build_actor(role: RoleSpec, job: Job, ports: Ports, clock: Clock) -> Actor:
    config, seed = job.config, job.seed(Kind.ACTOR, role.index)
    env = make_env(config)
    if env.spec != job.task.env:
        raise TianJiError(
            f"{role.name}: its environment has {env.spec}, the launcher's {job.task.env}"
        )
    actor_cfg = config.parallel.actor_cfg
    trigger = load_class(actor_cfg.trigger, config.folder) if actor_cfg.trigger else WhenFull
    return Actor(
        role.name,
        env,
        job.algorithm.policy(job.task, role.index, seed),
        weights=ports.inbox("weights"),
        trajectories=ports.outbox(f"trajectories {role.name}"),
        episodes=ports.outbox(f"episodes {role.name}"),
        trigger=trigger(job.length),
        length=job.length,
        seed=job.env_seed(role.index),
        per_version=job.sampling.per_version,
        clock=clock,
    )


def _build_buffer(role: RoleSpec, job: Job, ports: Ports) -> Buffer:
    actors = [role_name(Kind.ACTOR, i) for i in range(job.task.n_actors)]
    store = job.sampling.build(job.trajectory, len(actors), job.slack, job.seed(Kind.BUFFER))
    balance = Balance(job.ratio, job.sampling.batch_units, job.sampling.warmup, job.slack)
    return Buffer(
        role.name,
        [ports.inbox(f"trajectories {actor}") for actor in actors],
        ports.outbox("batches"),
        store,
        balance,
        max_steps=job.config.exp.train_steps,
    )


def _build_learner(role: RoleSpec, job: Job, ports: Ports, clock: Clock) -> Learner:
    from tianji.algorithms.device import device_for  # here, because only a learner has torch

    learner_cfg = job.config.parallel.learner_cfg
    trigger: type = EveryUpdates
    if learner_cfg.trigger:
        trigger = load_class(learner_cfg.trigger, job.config.folder)
    algorithm = job.algorithm(job.task, job.seed(Kind.LEARNER), device_for(learner_cfg.device))
    where = f"{job.config.agent.type}.weights()"
    _weights_schema(job).check({"weights": algorithm.weights()}, where)
    return Learner(
        role.name,
        algorithm,
        batches=ports.inbox("batches"),
        weights=ports.outbox("weights"),
        control=ports.inbox("control"),
        trigger=trigger(learner_cfg.send_interval),
        max_updates=job.config.max_updates,
        clock=clock,
    )


def _build_evaluator(role: RoleSpec, job: Job, ports: Ports) -> Evaluator:
    n_episodes, seed = job.config.exp.eval_times, job.config.exp.seed
    return Evaluator(
        role.name,
        make_games_env(job.config, n_episodes),
        job.algorithm.policy(job.task, 0, seed),
        weights=ports.inbox("weights"),
        orders=ports.inbox("evaluate"),
        results=ports.outbox("evaluations"),
        n_episodes=n_episodes,
        seed=env_seed(seed),  # `tianji eval` with the run's seed plays the same games
    )


def make_env(config: Config) -> envs.Env:
    """The environments of one actor."""
    n_envs = config.parallel.actor_cfg.envs
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
