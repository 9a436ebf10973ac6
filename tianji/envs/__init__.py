"""Environments: libraries' by name, or a class of one's own, always E of them at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tianji.config.environment import AGENTS_ENVIRONMENTS, EnvironmentConfig
from tianji.core.env import BaseEnv, Env, EnvSpec, Rendering, Step
from tianji.core.errors import TianJiError
from tianji.envs.shown import ShownEnv, check_display, quietly

__all__ = [
    "BaseEnv",
    "Env",
    "EnvSpec",
    "Rendering",
    "ShownEnv",
    "Step",
    "make",
    "make_shown",
]


def make(
    environment: EnvironmentConfig, n_envs: int, folder: str, max_step: int | None = None
) -> Env:
    """`n_envs` environments as the config describes them, behind one interface.

    Args:
        environment: The config's `environment` section.
        n_envs: E, at least 1.
        folder: The config file's folder, where the modules of own classes are looked for first.
        max_step: Steps after which an episode is truncated, if it lasts that long.
    """
    rendering = Rendering.WINDOW if environment.render else Rendering.NONE
    mode = environment.vectorization
    return _make(_Wanted(environment, mode, n_envs, folder, max_step, rendering))


def splits(environment: EnvironmentConfig) -> bool:
    """Whether `make` gives a `SplitEnv`, of which each environment takes a while to make."""
    threads = environment.vectorization in ("auto", "vector") and not environment.render
    return environment.type == "AtariEnv" and threads


def make_shown(
    environment: EnvironmentConfig, folder: str, max_step: int | None, rendering: Rendering
) -> ShownEnv:
    """One environment to look at, whatever the config says about windows; or why it cannot be."""
    if rendering is Rendering.WINDOW:
        check_display()
    with quietly(screen=rendering is Rendering.WINDOW):
        try:
            env = _make(_Wanted(environment, "single", 1, folder, max_step, rendering))
        except RuntimeError as error:  # pygame's
            name = environment.gym_name or environment.type
            raise TianJiError(f"{name} cannot be shown: {error}") from error
        env = cast(ShownEnv, env)  # whatever is made as "single" can be looked at
        if rendering is Rendering.PICTURES:
            env.reset()
            env.picture()
    return env


@dataclass(frozen=True)
class _Wanted:
    """Everything that is to be said about the environments to make."""

    environment: EnvironmentConfig
    mode: str  # how they are stepped
    n_envs: int
    folder: str
    max_step: int | None
    rendering: Rendering


def _make(wanted: _Wanted) -> Env:
    environment = wanted.environment
    if wanted.n_envs < 1:
        raise TianJiError(f"environment: want at least one environment, got {wanted.n_envs}")
    if wanted.mode == "single" and wanted.n_envs != 1:
        raise TianJiError(
            f"environment: vectorization 'single' is one environment, not {wanted.n_envs}: "
            "use 'sync'"
        )
    if ":" in environment.type:
        return _make_own(wanted)
    if environment.type in AGENTS_ENVIRONMENTS:
        return _make_agents(wanted)
    if environment.type == "AtariEnv":
        return _make_atari(wanted)
    if environment.type == "Catch":
        return _make_catch(wanted)
    assert environment.type == "GymEnv" and environment.gym_name, "the configuration is checked"

    from tianji.envs.gym import make_gym  # here, so that this package loads without gymnasium

    return make_gym(
        environment.gym_name,
        wanted.folder,
        wanted.n_envs,
        wanted.mode,
        environment.kwargs,
        wanted.max_step,
        wanted.rendering,
    )


def _make_own(wanted: _Wanted) -> Env:
    name, n_envs = wanted.environment.type, wanted.n_envs
    if wanted.mode == "vector":
        raise TianJiError(f"{name} has no vector environment: leave vectorization out")

    from tianji.envs.template import make_own

    kwargs = wanted.environment.kwargs
    return make_own(name, wanted.folder, n_envs, kwargs, wanted.max_step, wanted.rendering)


def _make_atari(wanted: _Wanted) -> Env:
    from tianji.envs.atari import AtariWanted, make_atari

    environment = wanted.environment
    atari = AtariWanted(
        environment.game or environment.gym_name or "",
        environment.wrapping,
        environment.sticky,
        environment.full_actions,
        environment.max_frames,
        wanted.max_step,
        environment.threads,
    )
    return make_atari(atari, wanted.n_envs, wanted.mode, wanted.rendering)


def _make_catch(wanted: _Wanted) -> Env:
    from tianji.envs.catch import Catch

    if wanted.rendering is Rendering.WINDOW:
        raise TianJiError("Catch opens no window: make a film instead, as in --video game.mp4")
    kwargs = wanted.environment.kwargs
    if odd := sorted(set(kwargs) - {"size", "balls", "fastest", "stack"}):
        raise TianJiError(f"Catch has no key {odd[0]!r}: it has size, balls, fastest and stack")
    return Catch(wanted.n_envs, **kwargs)


def _make_agents(wanted: _Wanted) -> Env:
    from tianji.envs.agents import Wanted
    from tianji.envs.template import check_arguments

    name, n_envs, kwargs = wanted.environment.type, wanted.n_envs, dict(wanted.environment.kwargs)
    opponents = kwargs.pop("opponents", None)
    if wanted.mode == "vector":
        raise TianJiError(f"{name} chooses by itself how it is stepped: leave vectorization out")
    asked = Wanted(n_envs, wanted.folder, wanted.max_step, wanted.rendering)
    make = functools.partial(_agents_maker(name), asked)
    check_arguments(name, make, kwargs, "they come from the config's environment section")
    env: Env = make(**kwargs)
    if not opponents:
        return env

    from tianji.envs.opponents import Opponents

    return Opponents(name, env, opponents, kwargs, wanted.folder)


def _agents_maker(name: str) -> Callable[..., Env]:
    """What makes environments of this type; each loads its own library."""
    if name == "PettingZooEnv":
        from tianji.envs.pettingzoo import make_pettingzoo

        return make_pettingzoo
    if name == "MultiagentParticleEnv":
        from tianji.envs.mpe import make_mpe

        return make_mpe
    if name == "StarCraft2Env":
        from tianji.envs.smac import make_smac

        return make_smac
    if name == "SMAXEnv":
        from tianji.envs.smax import make_smax

        return make_smax
    if name == "LBFEnv":
        from tianji.envs.lbf import make_lbf

        return make_lbf
    from tianji.envs.matrix_game import make_matrix_game

    return make_matrix_game
