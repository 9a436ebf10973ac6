"""A configuration together with all that follows from it and from its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tianji import envs
from tianji.config import Config, bind
from tianji.config.builtin_algorithms import ALGORITHMS
from tianji.core.algorithm import Algorithm, Task
from tianji.core.balance import depth_for, slack_for
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.imports import load_class
from tianji.core.schema import Field, Schema
from tianji.core.store import Sampling, trajectory_schema
from tianji.job import validate
from tianji.models.layout import Network
from tianji.roles.role_specs import Kind

BUILT_IN = {name: f"tianji.algorithms.{name.lower()}:{name}" for name in ALGORITHMS}


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
    notices: tuple[str, ...] = ()  # one line for each key of `hyp` that has no effect

    @property
    def trajectory(self) -> Schema:
        """The layout of one trajectory."""
        extra = self.algorithm.fields(self.task)
        return trajectory_schema(self.task.env, extra, self.length)

    @property
    def in_turns(self) -> bool:
        """Whether `slack = 0` asks for the order of serial training."""
        return self.config.parallel.buffer_cfg.slack == 0

    @property
    def n_halves(self) -> int:
        """Halves that an actor's environments are stepped in: two, where that is fast.

        Environments that can be left alone while they move are; not where a trigger may end
        trajectories between their steps, nor where the order is to be that of serial training.
        """
        actor_cfg = self.config.parallel.actor_cfg
        split = envs.splits(self.config.environment) and not actor_cfg.envs % 2
        wanted = actor_cfg.halves and not actor_cfg.trigger and not self.in_turns
        return 2 if split and wanted else 1

    @property
    def depth(self) -> int:
        """Trajectories in flight per actor."""
        if self.in_turns:
            return 1
        sampling = self.sampling
        return depth_for(sampling.batch_units, self.ratio, self.arriving, sampling.once)

    @property
    def batches_ahead(self) -> int:
        """Batches that wait for the learner; a second one would make on-policy samples older."""
        return 1 if self.sampling.once else 2

    @property
    def slack(self) -> int:
        """Steps that may be received before those already received were learned from."""
        given = self.config.parallel.buffer_cfg.slack
        if given is not None:
            return given
        return 0 if self.config.parallel.buffer_cfg.cores is None else self._beside

    @property
    def ahead(self) -> int:
        """The same for a buffer that rides with its learner, while it works beside it.

        A store that keeps its samples overwrites; one that hands each out once has no room.
        """
        fixed = self.config.parallel.buffer_cfg.slack is not None
        return self._beside if not self.sampling.once and not fixed else 0

    @property
    def _beside(self) -> int:
        """Of a buffer that does not take turns with its learner."""
        sampling = self.sampling
        return slack_for(sampling.batch_units, self.ratio, self.arriving, sampling.once)

    @property
    def arriving(self) -> int:
        """Steps of a trajectory from every actor of a group."""
        return self.task.n_actors * self.length * self.task.env.n_envs

    @property
    def weights(self) -> Schema:
        """The layout of what a learner publishes."""
        return Schema((Field("weights", "float32", (self.algorithm.n_weights(self.task),)),))

    @property
    def n_parameters(self) -> int:
        """Numbers that learners send each other, as gradients or as parameters."""
        return self.algorithm.n_parameters(self.task)

    def train_steps(self, group: int) -> int:
        """The environment steps of one group: an equal share of all."""
        steps, n_groups = self.config.exp.train_steps, self.config.n_groups
        return steps // n_groups + (group < steps % n_groups)

    def seed(self, kind: Kind, index: int = 0, group: int = 0, life: int = 0) -> int:
        """The seed of one role, in each of its lives: their streams never meet."""
        entropy = (self.config.exp.seed, int(kind), index, *((group,) if group else ()))
        lives = (life,) if life else ()
        return int(np.random.SeedSequence(entropy, spawn_key=lives).generate_state(1)[0])

    def env_seed(self, actor: int, group: int = 0, life: int = 0) -> int:
        """The seed of an actor's first environment; the others count on from it."""
        given = self.config.environment.seed
        if given is None or life:
            return self.seed(Kind.ACTOR, actor, group, life) % 2**31
        return given + (group * self.task.n_actors + actor) * self.task.env.n_envs

    def to_json(self) -> dict[str, Any]:
        """What a worker process needs to make the same job."""
        return {"config": self.config.to_json(), "env": self.task.env.to_json()}


def load_algorithm(config: Config, notices: list[str] | None = None) -> tuple[type[Algorithm], Any]:
    """The algorithm's class and its hyper-parameters, checked; idle keys are told in `notices`."""
    name = config.agent.type
    algorithm = load_class(BUILT_IN.get(name, name), config.folder)
    if not issubclass(algorithm, Algorithm):
        raise TianJiError(f"agent.type: {name!r} is no subclass of tianji.Algorithm")
    validate.check_algorithm(name, algorithm)
    others = {"agent": config.agent, "model": config.model}
    return algorithm, bind(algorithm.Hyp, config.hyp, "hyp", notices, others)


def load_network(config: Config) -> type | None:
    """The class of one's own that `model.type` names."""
    if ":" not in config.model.type:
        return None
    found = load_class(config.model.type, config.folder)
    if not issubclass(found, Network):
        raise TianJiError(f"model.type: {config.model.type!r} is no subclass of tianji.Network")
    return found


def prepare(config: Config, env: EnvSpec) -> Job:
    """Checks the configuration against the environment and derives every size."""
    notices: list[str] = []
    algorithm, hyp = load_algorithm(config, notices)
    validate.check_agents(config, algorithm, env)
    validate.check_mask(config, algorithm, env)
    validate.check_sizes(config, env)
    actors = config.parallel.actor_cfg
    network = load_network(config)
    task = Task(env, config.model, hyp, actors.num, config.n_learners, actors.device, network)
    validate.check_device(config)
    device = config.parallel.buffer_cfg.device
    sampling = validate.on_device(algorithm.sampling(task), env, device)
    length = algorithm.rollout_length(task) or config.parallel.actor_cfg.send_size
    validate.check_publishing(config, sampling)
    validate.check_groups(config, algorithm, sampling)
    validate.check_room(sampling, length, task)
    notices += validate.large_minibatch(config, hyp, sampling)
    algorithm.n_weights(task)
    stop = config.stop_return if config.stop_return is not None else env.reward_threshold
    ratio = validate.ratio_of(config, sampling)
    return Job(config, algorithm, task, length, sampling, ratio, stop, tuple(notices))


def from_json(description: Mapping[str, Any], config: Config) -> Job:
    """The job that `Job.to_json` described, in a worker process."""
    return prepare(config, EnvSpec.from_json(description["env"]))
