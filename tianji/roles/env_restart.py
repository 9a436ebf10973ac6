"""Environments that broke as a whole, made anew: every episode that was in progress is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from tianji.core.env import Env, MendingEnv, Step, lost_step
from tianji.core.errors import TianJiError
from tianji.core.mishaps import Mishaps
from tianji.core.state import fresh_seed

AnyEnv = TypeVar("AnyEnv", bound=Env)


class EnvRestart(Generic[AnyEnv]):
    """How an actor's environments are made, and what has broken in them so far."""

    def __init__(self, make: Callable[[], AnyEnv], seed: int, mishaps: Mishaps) -> None:
        self._make, self._seed, self._mishaps = make, seed, mishaps

    def after(self, env: AnyEnv, error: Exception) -> tuple[AnyEnv, Step]:
        """New environments instead of those that raised, and the row that only begins them."""
        spec = env.spec
        while True:
            self._mishaps.add(error, "an environment")
            with suppress(Exception):  # it is broken already
                env.close()
            try:
                env = self._make()
                if env.spec != spec:
                    raise TianJiError(f"its environment has {env.spec} now, and had {spec}")
                obs = env.reset(fresh_seed(self._seed, self._mishaps.n))
            except Exception as another:
                error = another
                continue
            self.mend(env)
            return env, lost_step(spec, obs)

    def mend(self, env: Env) -> None:
        """Environments that can mend each other's loss do it themselves from now on."""
        if isinstance(env, MendingEnv):
            env.mend(self._mishaps)


class MovingEnvs:
    """One half of an actor's environments, or all, and the step that they are making.

    In `envs`, which holds every half, those made anew take the place of those that broke.
    """

    def __init__(self, envs: list[Any], i: int, restart: EnvRestart[Any] | None) -> None:
        self._envs, self._i, self._restart = envs, i, restart
        self._action: npt.NDArray[Any] | None = None  # of a step that is made all at once
        self._error: Exception | None = None  # that came when they were to begin

    def begin(self, action: npt.NDArray[Any]) -> None:
        """Sends the actions, where environments move by themselves."""
        self._action = action
        if len(self._envs) == 1:
            return
        try:
            self._envs[self._i].begin(action)
        except Exception as error:  # of anybody's simulator: this half's step ends so
            self._error = error

    def finish(self) -> Step:
        """What came of them."""
        env, error = self._envs[self._i], self._error
        self._error = None
        try:
            if error is not None:
                raise error
            step: Step = env.step(self._action) if len(self._envs) == 1 else env.finish()
        except Exception as broken:
            if self._restart is None:
                raise
            self._envs[self._i], step = self._restart.after(env, broken)
        return step
