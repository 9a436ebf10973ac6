"""Gymnasium's registered environments, in a loop or as the library's own vector environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec as Registered
from gymnasium.vector import VectorEnv

from tianji.core.env import Rendering
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean, load_module
from tianji.envs.loop import LoopEnv
from tianji.envs.spaces import describe
from tianji.envs.vector import VectorAdapter

ARGUMENTS_DO_NOT_FIT = re.compile(
    r"unexpected keyword argument|required (positional|keyword-only) arg"
)


def make_gym(
    gym_name: str,
    folder: str,
    n_envs: int,
    vectorization: str,
    kwargs: Mapping[str, Any],
    max_step: int | None,
    rendering: Rendering,
) -> LoopEnv | VectorAdapter:
    """`n_envs` of the registered environment `gym_name`, "Name-v0" or "module:Name-v0".

    `vectorization` is "single" (one environment), "sync" (a loop of ours), "vector" (the library's
    own vector environment) or "auto": vector if there is one and more than one environment, the
    loop otherwise. Only the first of a loop is rendered. `max_step` truncates episodes; it never
    makes them longer.
    """
    registered = find(gym_name, folder)
    limits = [limit for limit in (max_step, registered.max_episode_steps) if limit is not None]
    limit = min(limits) if limits else None
    if _wants_vector(registered, n_envs, vectorization, rendering is not Rendering.NONE):
        return _make_vector(registered, n_envs, kwargs, limit)
    shown = [rendering] + [Rendering.NONE] * (n_envs - 1)

    def make(e: int) -> gymnasium.Env[Any, Any]:
        return _make_single(registered, kwargs, limit, shown[e])

    envs = [make(e) for e in range(n_envs)]
    spec = describe(
        registered.id,
        envs[0].observation_space,
        envs[0].action_space,
        n_envs,
        reward_threshold=registered.reward_threshold,
        max_episode_steps=limit,
    )
    return LoopEnv(registered.id, envs, spec, make)


def find(gym_name: str, folder: str) -> Registered:
    """Gymnasium's entry for `gym_name`; a module named before a colon is imported first."""
    module, _, name = gym_name.rpartition(":")
    if module:
        load_module(module, folder)
    registered = gymnasium.registry.get(name)
    if registered is None:
        if name.startswith("ALE/") or "NoFrameskip-v" in name:
            raise TianJiError(
                f"gymnasium has no environment {name!r}: Atari games are played by\n"
                f"environment = dict(type='AtariEnv', gym_name={name!r})"
            )
        near = did_you_mean(name, gymnasium.registry, n=3)
        raise TianJiError(
            f"gymnasium has no environment {name!r}{near or '.'}\n"
            f"If another package registers it, write gym_name = 'package:{name}'."
        )
    return registered


def _wants_vector(registered: Registered, n_envs: int, vectorization: str, render: bool) -> bool:
    name, has_vector = registered.id, registered.vector_entry_point is not None
    if vectorization == "vector" and not has_vector:
        raise TianJiError(f"{name} has no vector environment of its own: use vectorization 'sync'")
    if vectorization == "vector" and render:
        raise TianJiError(f"{name}: a vector environment opens no window: use vectorization 'sync'")
    if vectorization != "auto":
        return vectorization == "vector"
    return has_vector and n_envs > 1 and not render and not registered.additional_wrappers


def _make_single(
    registered: Registered, kwargs: Mapping[str, Any], limit: int | None, rendering: Rendering
) -> gymnasium.Env[Any, Any]:
    shown = rendering is not Rendering.NONE
    kwargs = {**kwargs, "render_mode": rendering.value} if shown else dict(kwargs)
    try:
        env: gymnasium.Env[Any, Any] = gymnasium.make(
            registered, max_episode_steps=limit, disable_env_checker=True, **kwargs
        )
        if shown:
            env.reset()  # opens the window, or says what it lacks
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise _explained(registered.id, error, "") from error
    return env


def _make_vector(
    registered: Registered, n_envs: int, kwargs: Mapping[str, Any], limit: int | None
) -> VectorAdapter:
    if limit is not None:
        kwargs = {**kwargs, "max_episode_steps": limit}
    try:
        env: VectorEnv[Any, Any, Any] = gymnasium.make_vec(
            registered, num_envs=n_envs, vectorization_mode="vector_entry_point", **kwargs
        )
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise _explained(registered.id, error, "; vectorization 'sync' may take it") from error
    return VectorAdapter(registered.id, env, registered.reward_threshold, limit)


def _explained(name: str, error: Exception, hint: str) -> Exception:
    """Ours if gymnasium's error says what the user can do, otherwise the one it was."""
    if isinstance(error, gymnasium.error.DependencyNotInstalled | ImportError):
        return TianJiError(f"{name} needs a package that is not installed: {error}")
    if isinstance(error, gymnasium.error.Error):
        return TianJiError(f"{name} cannot be made: {error}")
    if ARGUMENTS_DO_NOT_FIT.search(str(error)):
        reason = str(error).partition(" was raised from the environment creator")[0]
        return TianJiError(f"{name} does not take the arguments of the config: {reason}{hint}")
    return error
