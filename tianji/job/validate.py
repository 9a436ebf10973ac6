"""Whether the parts of a configuration fit each other and their environment."""

from __future__ import annotations

import dataclasses
import math

from tianji.config import Config
from tianji.config.builtin_algorithms import ALGORITHMS
from tianji.core.algorithm import Algorithm, Task
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.frames import STACKED
from tianji.core.store import Sampling


def check_algorithm(name: str, algorithm: type[Algorithm]) -> None:
    """Refuses an algorithm that lacks what every algorithm needs."""
    missing = set(algorithm.__abstractmethods__)
    if algorithm.learn is Algorithm.learn and not algorithm.shares_updates():
        missing.add("learn")
    if missing:
        raise TianJiError(f"agent.type: {name!r} lacks {', '.join(sorted(missing))}")
    if not dataclasses.is_dataclass(getattr(algorithm, "Hyp", None)):
        raise TianJiError(f"agent.type: {name!r} needs a dataclass Hyp with its hyper-parameters")


def check_agents(config: Config, algorithm: type[Algorithm], env: EnvSpec) -> None:
    """Refuses several agents where the algorithm learns for one, or would not see how they end."""
    name, n = config.agent.type, len(env.agents)
    if not n or algorithm.several_agents:
        if n and env.same_step and ":" not in name:
            raise TianJiError(
                f"environment.type: {config.environment.type} has agents and begins anew within "
                f"the step that ends an episode (EnvSpec.same_step), and {name} reads the last "
                "observations in obs: show them there, begin anew in the next step, and mark that "
                "one as not valid"
            )
        return
    meant = "MAPPO' or 'MADDPG" if env.choices is None else "MAPPO', 'QMIX' or 'MADDPG"
    few = ", ".join(env.agents[:3]) + (", ..." if n > 3 else "")
    raise TianJiError(
        f"environment.type: {config.environment.type} has an axis of agents ({n}: {few}), and "
        f"agent.type {name!r} wants the one agent of an environment without: use "
        f"agent = dict(type='{meant}', ...), an algorithm of your own with several_agents = True, "
        "or an environment of one agent, as GymEnv and AtariEnv are"
    )


def check_mask(config: Config, algorithm: type[Algorithm], env: EnvSpec) -> None:
    """Refuses to choose what is not possible; an algorithm of one's own sees the mask itself."""
    name = config.agent.type
    if not env.masked or ":" in name:
        return
    field = next(field for field in env.observations if field.name == "mask")
    if field.dtype != "bool" or env.n_actions is None or field.shape != (env.n_actions,):
        want = f"bool[{env.n_actions or 'n'}] beside one choice of so many options"
        raise TianJiError(f"environment.type: its mask is {field}: want {want}")
    if not algorithm.masks:
        raise TianJiError(
            f"agent.type: {name} does not look at a mask, and this environment shows one: use "
            "'DQN', 'ApeX' or 'PPO', or an algorithm of your own"
        )


def ratio_of(config: Config, sampling: Sampling) -> float:
    """Samples consumed per sample produced."""
    given = config.parallel.global_cfg.replay_ratio
    if given == "serial":
        return sampling.serial_ratio
    ratio = 1.0 if given == "balanced" else float(given)
    if sampling.once and ratio != 1.0:
        raise TianJiError(
            f"global_cfg.replay_ratio: {config.agent.type} learns from each sample once, so 1, "
            f"not {ratio:g}: use 'serial', or hyp.update_step for more epochs"
        )
    return ratio


def check_publishing(config: Config, sampling: Sampling) -> None:
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


def check_groups(config: Config, algorithm: type[Algorithm], sampling: Sampling) -> None:
    """Refuses what cannot be split among the groups, or among the learners of one."""
    n, name = config.n_learners, config.agent.type
    if config.exp.train_steps < config.n_groups:
        raise TianJiError(
            f"exp.train_steps: {config.exp.train_steps} steps are not one for each of the "
            f"{config.n_groups} groups: raise it, or lower global_cfg.group_num"
        )
    if n == 1:
        return
    if not algorithm.shares_updates():
        raise TianJiError(
            f"learner_cfg.num: {name} cannot be shared by {n} learners: define updates(batch), "
            "which yields its gradient before every step of the optimiser (see docs/groups.md), "
            "or write num=1"
        )
    if sampling.batch % n:
        unit = f"{sampling.unit}{' (default: one per actor)' if sampling.once else ''}"
        together = sampling.batch // (sampling.per_version or sampling.batch)  # actors in step
        step = math.lcm(n, together)
        more = math.ceil(sampling.batch / step) * step
        raise TianJiError(
            f"hyp.batch_size: {sampling.batch} {unit} cannot be split into equal parts for {n} "
            f"learners: write batch_size={more}, or another learner_cfg.num"
        )


def check_room(sampling: Sampling, length: int, task: Task) -> None:
    """Refuses a store that could not hold one trajectory of every actor."""
    least = task.n_actors * task.env.n_envs * length
    if sampling.room is not None and sampling.room < least:
        raise TianJiError(
            f"hyp.buffer_size: {sampling.room} samples are less than one trajectory per actor "
            f"({task.n_actors} actors x {task.env.n_envs} environments x {length} steps): "
            f"use {least} at least"
        )


def large_minibatch(config: Config, hyp: object, sampling: Sampling) -> list[str]:
    """A notice where a minibatch that the user wrote is larger than a batch can be."""
    wanted, batch = getattr(hyp, "minibatch", None), sampling.batch_units
    written = [word for word in config.hyp if word.lower() == "minibatch"]
    if not written or config.agent.type not in ALGORITHMS or wanted is None or wanted <= batch:
        return []
    return [
        f"{config.hyp.at(written[0])}: hyp.minibatch={wanted:,} is more than the {batch:,} samples "
        "of a batch (rollouts x environments x hyp.step_len): every epoch is one step of the "
        f"optimiser, with {batch:,}"
    ]


def check_device(config: Config) -> None:
    """Refuses a buffer on a GPU that its learner does not share with it."""
    parallel = config.parallel
    if parallel.buffer_cfg.device == "cpu":
        return
    reasons = {
        "buffer_cfg.cores gives the buffer a process of its own: leave it out": (
            parallel.buffer_cfg.cores is not None
        ),
        f"learner_cfg.num={config.n_learners}, and only one of them is beside it: write num=1": (
            config.n_learners > 1
        ),
        "learner_cfg.device is 'cpu': write 'cuda'": parallel.learner_cfg.device == "cpu",
    }
    if why := [reason for reason, holds in reasons.items() if holds]:
        raise TianJiError(f"buffer_cfg.device='cuda' keeps samples where they are used; {why[0]}")


def on_device(sampling: Sampling, env: EnvSpec, device: str) -> Sampling:
    """The same sampling with its frames on a device, where it can be asked for that."""
    if device == "cpu":
        return sampling
    if not sampling.placeable:
        raise TianJiError(
            "buffer_cfg.device: only a replay stays on a GPU, and this algorithm's samples are "
            f"{sampling.unit} that go to the learner as they come: write device='cpu'"
        )
    if env.same_step or [field.name for field in env.inputs] != [STACKED]:
        raise TianJiError(
            f"buffer_cfg.device: only one array called {STACKED!r} can lie on a GPU, of an "
            "environment that does not reset within the step that ended: write device='cpu'"
        )
    assert dataclasses.is_dataclass(sampling) and not isinstance(sampling, type)
    placed: Sampling = dataclasses.replace(sampling, device=device)
    return placed


def check_sizes(config: Config, env: EnvSpec) -> None:
    """Refuses a network of other sizes than the environment's."""
    n_inputs = env.n_inputs
    n_outputs = sum(env.choices) if env.choices else math.prod(env.action.shape)
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
