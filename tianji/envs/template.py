"""Environments of one's own, named `module:Class`: the paper's template or gymnasium's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.wrappers import TimeLimit

from tianji.core.env import BaseEnv, Env, EnvSpec, MendingEnv, Rendering, SpacesEnv, SplitEnv, Step
from tianji.core.errors import TianJiError
from tianji.core.imports import load_class
from tianji.core.schema import Arrays
from tianji.core.state import State, Stateful, restore_to, state_of
from tianji.envs.loop import STEP_FORM, LoopEnv, Single, wrong_form
from tianji.envs.spaces import check_finite, describe


class TemplateEnv:
    """A `BaseEnv` that looks like a gymnasium environment, with seeds and a step limit."""

    def __init__(self, name: str, env: BaseEnv, max_step: int | None, rendering: Rendering) -> None:
        self.observation_space = _space(name, env, "observation_space")
        self.action_space = _space(name, env, "action_space")
        self._name, self._env, self._window = name, env, rendering is Rendering.WINDOW
        self._limit = max_step or 0  # 0: none
        self._n_steps = 0

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, after `BaseEnv.seed` if a seed is given and the class has one."""
        if seed is not None:
            with suppress(NotImplementedError):  # optional, as in the paper
                self._env.seed(seed)
        self._n_steps = 0
        result = self._env.reset()
        if result is None:
            raise wrong_form(
                self._name, "reset()", result, "an observation, or (observation, info)"
            )
        if self._window:
            self._env.render()
        pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        return (result[0], result[1]) if pair else (result, {})

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, in gymnasium's form whichever form the class uses."""
        result: Any = self._env.step(action)
        if not isinstance(result, tuple | list) or len(result) not in (4, 5):
            raise wrong_form(self._name, "step()", result, STEP_FORM)
        if self._window:
            self._env.render()
        terminated, truncated, info = _ending(result)
        if not (isinstance(terminated, _FLAGS) and isinstance(truncated, _FLAGS)):
            raise wrong_form(
                self._name, "step()", result, f"{STEP_FORM}, with booleans for the two ends"
            )
        self._n_steps += 1
        truncated = bool(truncated) or self._n_steps == self._limit
        return result[0], result[1], bool(terminated), truncated, info

    def render(self) -> Any:
        """A picture, if the class draws any."""
        return self._env.render()

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def state(self) -> State | None:
        """What the class says it must remember, and the steps of the episode; None if it cannot."""
        state = state_of(self._env)
        return None if state is None else {"env": state, "steps": self._n_steps}

    def restore(self, state: State) -> None:
        """Goes on within the same episode."""
        if not restore_to(self._env, state["env"]):
            raise TianJiError(
                f"{self._name} has no restore(), and its state was saved: define it again"
            )
        self._n_steps = state["steps"]


class CheckedEnv:
    """An `Env` of one's own that hands over no NaN: what it shows and pays is looked at first.

    It raises `NotFinite`, after which an actor makes all E environments anew. Whatever else the
    class can do, this one can do too, and nothing that it cannot.
    """

    def __init__(self, name: str, env: Env) -> None:
        self.spec = env.spec
        self._name, self._env = name, env
        self._length = np.zeros(env.spec.n_envs, np.int64)  # steps in the current episode
        self._halved = isinstance(env, SplitEnv)
        if isinstance(env, SplitEnv):
            self.begin = env.begin
            self.finish: Callable[[], Step] = lambda: self._checked(env.finish())
        if isinstance(env, MendingEnv):
            self.mend = env.mend
        if isinstance(env, SpacesEnv):
            self.space_terms = env.space_terms
        if isinstance(env, Stateful):
            self.state, self.restore = env.state, env.restore

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew and returns what is observed, [E, ...]."""
        obs = self._env.reset(seed)
        self._length.fill(0)
        check_finite(self._name, obs, self._length)
        return obs

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per environment, [E, ...]."""
        if not self._halved:
            return self._checked(self._env.step(action))
        self.begin(action)
        return self.finish()

    def close(self) -> None:
        """Closes the environments."""
        self._env.close()

    def _checked(self, step: Step) -> Step:
        self._length += 1
        earned = {"reward": step.reward}
        if step.score is not None:
            earned["score"] = step.score
        check_finite(self._name, earned, self._length)
        if step.final is not None:
            check_finite(self._name, step.final, self._length)
        if 1 in step.first.tobytes():  # a third of what `any` costs
            self._length[step.first] = 0
        check_finite(self._name, step.obs, self._length)
        return step


ENV_METHODS = ("reset", "step", "close")  # of an `Env`
_FLAGS = (bool, int, np.bool_, np.integer)


def make_own(
    type_name: str,
    folder: str,
    n_envs: int,
    kwargs: Mapping[str, Any],
    max_step: int | None,
    rendering: Rendering,
) -> Env:
    """`n_envs` instances of the class `type_name`, "module:Class".

    It is a `BaseEnv`, or a `gymnasium.Env` that need not be registered. Only the
    first is rendered. `max_step` truncates episodes; it never makes them longer. Or it is an `Env`,
    of which one instance is all of them.
    """
    cls = load_class(type_name, folder)
    if issubclass(cls, BaseEnv):
        make_one: Callable[..., Single] = _make_template
    elif issubclass(cls, gymnasium.Env):
        make_one = _make_gymnasium
    elif all(callable(getattr(cls, name, None)) for name in ENV_METHODS):
        return _make_env(type_name, cls, n_envs, kwargs, max_step, rendering)
    else:
        raise TianJiError(
            f"{type_name} is no environment: want a tianji.BaseEnv, a gymnasium.Env, or a "
            "tianji.Env with reset(), step() and close()"
        )
    _check_complete(type_name, cls)
    shown = [rendering] + [Rendering.NONE] * (n_envs - 1)

    def make(e: int) -> Single:
        return make_one(type_name, cls, kwargs, max_step, shown[e])

    envs = [make(e) for e in range(n_envs)]
    spec = describe(
        type_name,
        envs[0].observation_space,
        envs[0].action_space,
        n_envs,
        max_episode_steps=max_step,
    )
    return LoopEnv(type_name, envs, spec, make)


def _make_env(
    name: str,
    cls: type,
    n_envs: int,
    kwargs: Mapping[str, Any],
    max_step: int | None,
    rendering: Rendering,
) -> Env:
    """An `Env` of one's own, which steps E environments by itself, and ends their episodes."""
    if missing := [each for each in ENV_METHODS if getattr(cls, each) is getattr(Env, each)]:
        raise TianJiError(f"{name} lacks {missing[0]}(): define it")
    if max_step is not None:
        raise TianJiError(
            f"exp.max_step: {name} is a tianji.Env, which ends its episodes itself: leave it out, "
            "or hand it over as a key of `environment`"
        )
    if rendering is not Rendering.NONE:
        raise TianJiError(
            f"{name} cannot be shown: it is a tianji.Env, and a BaseEnv or a gymnasium.Env can"
        )
    hint = "it is made with the number of environments and the config's environment section"
    check_arguments(name, cls, {"n_envs": n_envs, **kwargs}, hint)
    env: Env = cls(n_envs=n_envs, **kwargs)
    spec = getattr(env, "spec", None)
    if not isinstance(spec, EnvSpec) or spec.n_envs != n_envs:
        found = f"n_envs={spec.n_envs}" if isinstance(spec, EnvSpec) else type(spec).__name__
        raise TianJiError(f"{name}.spec: want a tianji.EnvSpec with n_envs={n_envs}, got {found}")
    return CheckedEnv(name, env)


def _make_template(
    name: str,
    cls: type[BaseEnv],
    kwargs: Mapping[str, Any],
    max_step: int | None,
    rendering: Rendering,
) -> Single:
    check_arguments(name, cls, {}, "the class is made without arguments; put them into init()")
    env = cls()
    check_arguments(
        f"{name}.init", env.init, kwargs, "they come from the config's environment section"
    )
    env.init(**kwargs)
    return TemplateEnv(name, env, max_step, rendering)


def _make_gymnasium(
    name: str,
    cls: type[gymnasium.Env[Any, Any]],
    kwargs: Mapping[str, Any],
    max_step: int | None,
    rendering: Rendering,
) -> Single:
    hint = "they come from the config's environment section"
    if rendering is not Rendering.NONE:
        kwargs = {**kwargs, "render_mode": rendering.value}
        hint = "to be shown it must take render_mode"
    check_arguments(name, cls, kwargs, hint)
    env = cls(**kwargs)
    _space(name, env, "observation_space")
    _space(name, env, "action_space")
    return env if max_step is None else TimeLimit(env, max_step)


def _ending(result: Any) -> tuple[Any, Any, Any]:
    """(terminated, truncated, info); the older form tells a truncation in its info."""
    if len(result) == 5:
        return result[2], result[3], result[4]
    done, info = result[2], result[3]
    cut = isinstance(info, dict) and bool(info.get("TimeLimit.truncated", False))
    return (False, done, info) if cut else (done, False, info)


def _check_complete(name: str, cls: type) -> None:
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise TianJiError(
            f"{name} lacks {', '.join(f'{method}()' for method in missing)}: define them"
        )


def check_arguments(
    name: str, function: Callable[..., Any], kwargs: Mapping[str, Any], hint: str
) -> None:
    """Raises where `function` does not take these keyword arguments."""
    signature = inspect.signature(function)
    try:
        signature.bind(**kwargs)
    except TypeError as error:
        raise TianJiError(f"{name}{signature}: {error} (got {sorted(kwargs)}; {hint})") from error


def _space(name: str, env: Any, attribute: str) -> Any:
    space = getattr(env, attribute, None)
    if isinstance(space, gymnasium.Space):
        return space
    example = (
        "gymnasium.spaces.Discrete(2)"
        if "action" in attribute
        else "gymnasium.spaces.Box(-1, 1, (4,))"
    )
    where = "init()" if isinstance(env, BaseEnv) else "__init__()"
    found = "is not set" if space is None else f"is {space!r:.60}, no gymnasium space"
    raise TianJiError(f"{name}: {attribute} {found}: in {where} write self.{attribute} = {example}")
