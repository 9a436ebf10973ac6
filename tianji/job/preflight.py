"""Tries an environment and a policy once, so that a mistake shows before anything is started."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji import envs
from tianji.config import Config
from tianji.core.alarm import alarmed
from tianji.core.env import EnvSpec, Step
from tianji.core.errors import TianJiError
from tianji.core.imports import load_class
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import state_of
from tianji.core.tensorfile import chunks
from tianji.job.factory import make_env
from tianji.job.job import BUILT_IN, Job, prepare


def try_out(config: Config) -> Job:
    """The job, after one step of its environments and one decision of its policy."""
    _load_named(config)
    try:
        with alarmed():  # it may hang, too: then its stack is on standard error
            slow = envs.splits(config.environment)  # as many as are needed take seconds to make
            env, obs = _one_step(config, 1 if slow else None)
    except TianJiError:
        raise
    except Exception as error:  # whatever a user's environment may raise
        words = traceback.format_exc().rstrip()
        raise TianJiError(f"the environment failed when it was tried out:\n{words}") from error
    n_envs = config.parallel.actor_cfg.envs if slow else env.n_envs
    job = prepare(config, replace(env, n_envs=n_envs))
    if not _ours(job):
        _try_policy(job, obs)
    return job


def _one_step(config: Config, n_envs: int | None) -> tuple[EnvSpec, Arrays]:
    """What the environments are, and what they show at first, after one step of them."""
    env = make_env(config, n_envs)
    obs = {name: np.array(array) for name, array in env.reset(config.exp.seed).items()}
    step = env.step(_some_action(env.spec, obs))
    _check_winning(config, step)
    if ":" in config.environment.type:
        shown = Schema(env.spec.observations).stacked(env.spec.n_envs)
        shown.check(obs, f"{config.environment.type}.reset()")
        shown.check(step.obs, f"{config.environment.type}.step()")
    if (state := state_of(env)) is not None:
        for _ in chunks(state):
            pass  # raises on what no checkpoint could hold
    env.close()
    return env.spec, obs


def _load_named(config: Config) -> None:
    """Imports the classes of one's own that are needed only when a run starts."""
    parallel = config.parallel
    named = {
        "global_cfg.transport": parallel.global_cfg.transport,
        "learner_cfg.trigger": parallel.learner_cfg.trigger,
        "actor_cfg.trigger": parallel.actor_cfg.trigger,
    }
    for key, name in named.items():
        if name is not None:
            try:
                load_class(name, config.folder)
            except TianJiError as error:
                raise TianJiError(f"{key}: {error}") from error


def _ours(job: Job) -> bool:
    """Whether acting needs torch and no class of the user's: then there is nothing to find out."""
    own = job.task.own_network is not None or job.config.agent.type not in BUILT_IN
    return job.config.model.type == "CNN" and not own


def _check_winning(config: Config, step: Step) -> None:
    """Refuses to end with won games where no game can be won."""
    if step.won is None and config.stop_win_ratio is not None:
        raise TianJiError(
            f"exp.stop_win_ratio={config.stop_win_ratio:g}: nobody wins or loses in this "
            "environment: leave it out, and name a return instead (exp.stop_return)"
        )


def _some_action(env: EnvSpec, obs: Arrays) -> npt.NDArray[Any]:
    """The first action that is possible, or zeros within the bounds, for every environment."""
    if "mask" in obs:
        possible: npt.NDArray[np.int64] = np.argmax(obs["mask"], -1)
        return possible
    action = np.zeros((env.n_envs, *env.action.shape), env.action.dtype)
    if env.action_low is None or env.action_high is None:
        return action
    low, high = np.asarray(env.action_low), np.asarray(env.action_high)
    shape = env.action.shape
    return np.clip(action, low.reshape(shape), high.reshape(shape)).astype(env.action.dtype)


def _try_policy(job: Job, obs: Arrays) -> None:
    env, name = job.task.env, job.config.agent.type
    obs = {name: np.repeat(a[:1], env.n_envs, 0) for name, a in obs.items()}
    policy = job.algorithm.policy(job.task, 0, 0)
    policy.load(np.zeros(job.algorithm.n_weights(job.task), np.float32), 0)
    decision = policy.act(obs, np.ones(env.n_envs, np.bool_))
    if not isinstance(decision, dict):
        kind = type(decision).__name__
        raise TianJiError(f"{name}: act must return a dict of arrays, not {kind}")
    action = Field("action", env.action.dtype, env.action.shape)
    fields = Schema((action, *job.algorithm.fields(job.task))).stacked(env.n_envs).fields
    for field in fields:
        found = decision.get(field.name)
        if not isinstance(found, np.ndarray):
            got = type(found).__name__
        elif found.shape != field.shape or found.dtype.kind != np.dtype(field.dtype).kind:
            got = f"{found.dtype.name}{list(found.shape)}"
        else:
            continue
        raise TianJiError(f"{name}: act must return {field.name!r} as {field}, not {got}")
    if extra := set(decision) - {field.name for field in fields}:
        raise TianJiError(f"{name}: act returns {min(extra)!r}, which `fields` does not name")
