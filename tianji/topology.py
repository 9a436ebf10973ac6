"""From a configuration to roles and channels, and from those to any role for any engine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from tianji import envs, fitting
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
from tianji.exchange import Exchange, exchange_schema
from tianji.fusion import Fusion, parameters_schema
from tianji.imports import load_class
from tianji.reducer import Reducer
from tianji.roles import Actor, Buffer, Learner, Role
from tianji.rollouts import Rollouts
from tianji.roster import (
    LAUNCHER,
    MEAN,
    Kind,
    RoleSpec,
    batches_of,
    evaluator_of,
    gradients_of,
    parameters_of,
    role_name,
    roles_of,
    weights_of,
)
from tianji.saving import ORDER_SCHEMA
from tianji.schema import Field, Schema
from tianji.shards import Shards, shard_schema
from tianji.standin import StandIn
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
        return {"channels": rings, "store": store * self.config.n_groups}

    @property
    def n_parameters(self) -> int:
        """Numbers that learners send each other, as gradients or as parameters."""
        return self.algorithm.n_parameters(self.task)

    def train_steps(self, group: int) -> int:
        """The environment steps of one group: an equal share of all."""
        steps, n_groups = self.config.exp.train_steps, self.config.n_groups
        return steps // n_groups + (group < steps % n_groups)

    def seed(self, kind: Kind, index: int = 0, group: int = 0) -> int:
        """The seed of one role: streams of different roles never meet."""
        entropy = (self.config.exp.seed, int(kind), index, *((group,) if group else ()))
        return int(np.random.SeedSequence(entropy).generate_state(1)[0])

    def env_seed(self, actor: int, group: int = 0) -> int:
        """The seed of an actor's first environment; the others count on from it."""
        given = self.config.environment.seed
        if given is None:
            return self.seed(Kind.ACTOR, actor, group) % 2**31
        return given + (group * self.task.n_actors + actor) * self.task.env.n_envs

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
    fitting.check_algorithm(name, algorithm)
    return algorithm, bind(algorithm.Hyp, config.hyp, "hyp")


def prepare(config: Config, env: EnvSpec) -> Job:
    """Checks the configuration against the environment and derives every size."""
    algorithm, hyp = load_algorithm(config)
    fitting.check_sizes(config, env)
    task = Task(env, config.model, hyp, config.parallel.actor_cfg.num, config.n_learners)
    sampling = algorithm.sampling(task)
    length = algorithm.rollout_length(task) or config.parallel.actor_cfg.send_size
    fitting.check_publishing(config, sampling)
    fitting.check_groups(config, algorithm, sampling)
    fitting.check_room(sampling, length, task)
    algorithm.n_weights(task)
    stop = config.stop_return if config.stop_return is not None else env.reward_threshold
    return Job(config, algorithm, task, length, sampling, fitting.ratio_of(config, sampling), stop)


def from_json(description: Mapping[str, Any], config: Config) -> Job:
    """The job that `Job.to_json` described, in a worker process."""
    env = dict(description["env"])
    for name in ("observation", "action"):
        env[name] = Field(env[name]["name"], env[name]["dtype"], tuple(env[name]["shape"]))
    for name in ("action_low", "action_high"):
        env[name] = None if env[name] is None else tuple(env[name])
    return prepare(config, EnvSpec(**env))


def channels_of(job: Job) -> list[ChannelSpec]:
    """Every channel of the run."""
    roles, latest = roles_of(job.config), Delivery.LATEST
    learners = tuple(role.name for role in roles if role.kind is Kind.LEARNER)
    specs = [spec for group in range(job.config.n_groups) for spec in _group_channels(job, group)]
    everybody = tuple(role.name for role in roles)
    specs.append(ChannelSpec("orders", LAUNCHER, everybody, ORDER_SCHEMA, latest))
    specs.append(ChannelSpec("control", LAUNCHER, learners, ORDER_SCHEMA, latest))
    for role in roles:
        layout = report_schema()
        if role.kind is Kind.LEARNER:
            layout = learner_report_schema(job.algorithm.scalars)
        specs.append(ChannelSpec(f"report {role.name}", role.name, (LAUNCHER,), layout, latest))
    return specs + _fusion_channels(job) + _evaluation_channels(job)


def _group_channels(job: Job, group: int) -> list[ChannelSpec]:
    """What the roles of one group exchange, and their episodes."""
    n = job.config.n_learners
    learners = [role_name(Kind.LEARNER, i, group) for i in range(n)]
    actors = [role_name(Kind.ACTOR, i, group) for i in range(job.task.n_actors)]
    buffer, weights = role_name(Kind.BUFFER, 0, group), _weights_schema(job)
    batch = shard_schema(job.sampling.batch_schema(job.trajectory), n)
    ahead, gradient = job.batches_ahead, exchange_schema(job.n_parameters)
    latest, readers = Delivery.LATEST, _readers(job, group)
    specs = [
        ChannelSpec(weights_of(group), learners[0], tuple(actors), weights, latest, readers=readers)
    ]
    for i, learner in enumerate(learners):
        specs.append(ChannelSpec(batches_of(group, i), buffer, (learner,), batch, depth=ahead))
        specs += [
            ChannelSpec(gradients_of(group, i, j), learner, (other,), gradient)
            for j, other in enumerate(learners)
            if j != i
        ]
    for actor in actors:
        specs.append(
            ChannelSpec(f"trajectories {actor}", actor, (buffer,), job.trajectory, depth=job.depth)
        )
        specs.append(ChannelSpec(f"episodes {actor}", actor, (LAUNCHER,), EPISODE_SCHEMA, depth=64))
    return specs


def _readers(job: Job, group: int) -> tuple[str, ...]:
    """Who looks at a group's weights besides its actors; a learner would wake them for nothing."""
    evaluator = evaluator_of(job.config)
    return (LAUNCHER,) if evaluator is None or group else (LAUNCHER, evaluator.name)


def _fusion_channels(job: Job) -> list[ChannelSpec]:
    """Between the first learner of each group and the reducer."""
    if not job.config.fuses:
        return []
    reducer, layout = role_name(Kind.REDUCER), parameters_schema(job.n_parameters)
    firsts = tuple(role_name(Kind.LEARNER, 0, group) for group in range(job.config.n_groups))
    specs = [ChannelSpec(MEAN, reducer, firsts, layout, Delivery.LATEST)]
    for group, first in enumerate(firsts):
        specs.append(ChannelSpec(parameters_of(group), first, (reducer,), layout, depth=1))
    return specs


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
    match role.kind:
        case Kind.ACTOR:
            return _build_actor(role, job, ports, clock)
        case Kind.BUFFER:
            return _build_buffer(role, job, ports)
        case Kind.LEARNER:
            return _build_learner(role, job, ports, clock)
        case Kind.EVALUATOR:
            return _build_evaluator(role, job, ports)
        case Kind.REDUCER:
            return _build_reducer(role, job, ports)


def _build_actor(role: RoleSpec, job: Job, ports: Ports, clock: Clock) -> Actor:
    config, seed = job.config, job.seed(Kind.ACTOR, role.index, role.group)
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
        weights=ports.inbox(weights_of(role.group)),
        trajectories=ports.outbox(f"trajectories {role.name}"),
        episodes=ports.outbox(f"episodes {role.name}"),
        trigger=trigger(job.length),
        length=job.length,
        seed=job.env_seed(role.index, role.group),
        per_version=job.sampling.per_version,
        clock=clock,
    )


def _build_buffer(role: RoleSpec, job: Job, ports: Ports) -> Buffer:
    actors = [role_name(Kind.ACTOR, i, role.group) for i in range(job.task.n_actors)]
    seed = job.seed(Kind.BUFFER, 0, role.group)
    store = job.sampling.build(job.trajectory, len(actors), job.slack, seed)
    balance = Balance(job.ratio, job.sampling.batch_units, job.sampling.warmup, job.slack)
    names = [batches_of(role.group, i) for i in range(job.config.n_learners)]
    outboxes = [ports.outbox(name) for name in names]
    batch = job.sampling.batch_schema(job.trajectory)
    inboxes = [ports.inbox(f"trajectories {actor}") for actor in actors]
    if (share := job.sampling.per_version) is not None:
        inboxes = [StandIn(i, job.trajectory, share, lambda: buffer.handed) for i in inboxes]
    buffer = Buffer(
        role.name,
        inboxes,
        outboxes[0] if len(outboxes) == 1 else Shards(outboxes, batch),
        store,
        balance,
        max_steps=job.train_steps(role.group),
    )
    return buffer


def _build_learner(role: RoleSpec, job: Job, ports: Ports, clock: Clock) -> Learner:
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
    )


def _make_algorithm(role: RoleSpec, job: Job) -> Algorithm:
    """Learners of a group begin alike; so do fused groups, for a mean of strangers is nothing."""
    from tianji.algorithms.device import device_for  # here, because only a learner has torch

    device, name = device_for(job.config.parallel.learner_cfg.device), job.config.agent.type
    algorithm = job.algorithm(job.task, job.seed(Kind.LEARNER, 0, role.group), device)
    _weights_schema(job).check({"weights": algorithm.weights()}, f"{name}.weights()")
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
