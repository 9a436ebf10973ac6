"""Environments that broke as a whole, made anew: every episode that was in progress is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

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
