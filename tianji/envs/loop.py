"""E single environments stepped one after the other, with honest episode boundaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tianji.core.env import EnvSpec, Step
from tianji.core.errors import TianJiError
from tianji.core.mishaps import Mishaps, NotFinite
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import State, fresh_seed
from tianji.envs.shown import Picture, fps_of, picture_of
from tianji.envs.single_state import restore_single, single_state
from tianji.envs.spaces import FLOAT32_MAX, Actions, Observed, not_finite, number
from tianji.envs.terms import Terms

STEP_FORM = "(observation, reward, terminated, truncated, info)"


class Single(Protocol):
    """One environment as gymnasium has it; the template's adapter looks the same."""

    observation_space: Any
    action_space: Any

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Applies one action."""

    def render(self) -> Any:
        """A picture, where it was made with a render mode that gives one."""

    def close(self) -> None:
        """Gives back windows, files and memory."""


class LoopEnv:
    """An `Env` over single environments; the step after an episode's end only resets.

    `reset` and `step` return the same arrays each time, with new content: copy what must last
    longer than until the next call. Environment e is seeded with `seed + e` once; later resets go
    on from there. It has a state if every one of its environments has. An environment that raises
    or shows NaN ends the call, unless the loop was told to `mend` it.
    """

    def __init__(
        self,
        name: str,
        envs: Sequence[Single],
        spec: EnvSpec,
        make: Callable[[int], Single] | None = None,  # environment e once more
    ) -> None:
        self.spec = spec
        self._make, self._seed = make, 0
        self._mishaps: Mishaps | None = None  # without: what breaks is raised
        self._name, self._envs = name, list(envs)
        self._actions = Actions(name, envs[0].action_space, spec)
        self._observed = Observed(name, envs[0].observation_space, spec.n_envs)
        self._reward = np.zeros(spec.n_envs, np.float32)
        self._terminated = np.zeros(spec.n_envs, np.bool_)
        self._truncated = np.zeros(spec.n_envs, np.bool_)
        self._valid = np.ones(spec.n_envs, np.bool_)
        self._first = np.zeros(spec.n_envs, np.bool_)
        self._step = Step(
            self._observed.arrays,
            self._reward,
            self._terminated,
            self._truncated,
            self._valid,
            self._first,
        )
        self._length = [0] * spec.n_envs  # steps in the current episode
        self._ended: list[int] = []  # whose episode the last step ended
        self._arrays: Arrays = {
            **self._observed.arrays,
            "reward": self._reward,
            "terminated": self._terminated,
            "truncated": self._truncated,
            "valid": self._valid,
        }
        self._marked = False  # whether the last step left marks in valid, terminated or truncated

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew and returns what is observed, [E, ...]."""
        self._unmark()
        self._ended, self._seed = [], self._seed if seed is None else seed
        for e, env in enumerate(self._envs):
            self._begin(e, env.reset(seed=None if seed is None else seed + e))
        self._check_observations()
        return self._observed.arrays

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per environment, [E, ...], or resets it if its episode had ended."""
        if self._marked:
            self._unmark()
        ended, self._ended = self._ended, []
        actions = self._actions.each(action)
        for e, env in enumerate(self._envs):
            try:
                if e in ended:
                    self._begin(e, env.reset())
                    self._only_begins(e)
                else:
                    self._record(e, env.step(actions[e]))
            except Exception as error:  # of anybody's simulator
                self._lose(e, error)
        self._check_observations()
        return self._step

    def space_terms(self) -> Terms:
        """What its single environments call an observation and an action."""
        return Terms(self._envs[0].observation_space, self._envs[0].action_space)

    def mend(self, mishaps: Mishaps) -> None:
        """From now on an environment that breaks loses its episode, and the others go on."""
        self._mishaps = mishaps

    @property
    def fps(self) -> float:
        """Pictures per second at which the first environment runs as it should."""
        return fps_of(self._envs[0])

    def picture(self) -> Picture:
        """The first environment as it is now, if it was made with `Rendering.PICTURES`."""
        return picture_of(self._name, self._envs[0])

    def close(self) -> None:
        """Closes every environment."""
        for env in self._envs:
            env.close()

    def state(self) -> State | None:
        """What every environment remembers, and the last step; None if one of them cannot say."""
        singles = [single_state(env) for env in self._envs]
        if any(single is None for single in singles):
            return None
        return {
            "envs": singles,
            "step": self._arrays,
            "length": self._length,
            "ended": self._ended,
            "marked": self._marked,
        }

    def restore(self, state: State) -> None:
        """Goes on within the same episodes; nothing is reset."""
        described = [Field(n, a.dtype.name, a.shape) for n, a in self._arrays.items()]
        Schema(tuple(described)).check(state["step"], f"saved state of {self._name}")
        for env, single in zip(self._envs, state["envs"], strict=True):
            restore_single(self._name, env, single)
        for name, array in self._arrays.items():
            array[...] = state["step"][name]
        self._length, self._ended = list(state["length"]), list(state["ended"])
        self._marked = state["marked"]
        np.logical_not(self._valid, out=self._first)

    def _record(self, e: int, result: Any) -> None:
        if result.__class__ is not tuple or len(result) != 5:
            raise wrong_form(self._name, "step()", result, STEP_FORM)
        obs, reward, terminated, truncated, _ = result
        if reward.__class__ is not float:
            reward = number(self._name, e, reward)
        self._length[e] += 1
        if not -FLOAT32_MAX <= reward <= FLOAT32_MAX:
            raise not_finite(self._name, e, "reward", self._length[e])
        self._observed.put(e, obs)
        self._reward[e] = reward
        if terminated or truncated:
            self._terminated[e], self._truncated[e], self._marked = terminated, truncated, True
            self._ended.append(e)

    def _begin(self, e: int, result: Any) -> None:
        if result.__class__ is not tuple or len(result) != 2:
            raise wrong_form(self._name, "reset()", result, "(observation, info)")
        self._length[e] = 0
        self._observed.put(e, result[0])

    def _only_begins(self, e: int) -> None:
        """Environment e was not stepped: its row is not valid."""
        self._reward[e], self._valid[e], self._first[e] = 0.0, False, True
        self._marked = True

    def _lose(self, e: int, error: Exception) -> None:
        """Environment e broke: its row only begins another episode, and no end of one is told."""
        if self._mishaps is None or self._make is None:
            raise error
        while True:
            when = f"environment {e} of {self._name} at step {self._length[e] + 1} of its episode"
            self._mishaps.add(error, when)
            try:
                self._begin_anew(e, fresh=not isinstance(error, NotFinite) or not self._length[e])
                break
            except Exception as another:
                error = another
        self._terminated[e] = self._truncated[e] = False
        self._only_begins(e)
        if e in self._ended:
            self._ended.remove(e)

    def _begin_anew(self, e: int, fresh: bool) -> None:
        """An episode of environment e, or of a `fresh` one in its place."""
        assert self._mishaps is not None and self._make is not None
        if not fresh:
            return self._begin(e, self._envs[e].reset())
        with suppress(Exception):  # it is broken already
            self._envs[e].close()
        self._envs[e] = self._make(e)
        seed = fresh_seed(self._seed, e, self._mishaps.n)
        return self._begin(e, self._envs[e].reset(seed=seed))

    def _unmark(self) -> None:
        self._valid.fill(True)
        self._first.fill(False)
        self._terminated.fill(False)
        self._truncated.fill(False)
        self._marked = False

    def _check_observations(self) -> None:
        while (broken := self._observed.broken()) is not None:
            e, field = broken
            self._lose(e, not_finite(self._name, e, field, self._length[e]))


def wrong_form(name: str, method: str, result: Any, want: str) -> TianJiError:
    """The error for a `reset` or `step` that returned something else than it should."""
    if isinstance(result, tuple | list):
        kinds = ", ".join(type(part).__name__ for part in result[:8])
        got = f"{type(result).__name__} of {len(result)}: ({kinds})"
    else:
        got = f"{type(result).__name__} {result!r:.80}"
    return TianJiError(f"{name}: {method} returned {got}\nWant {want}.")
