"""Environments written in JAX: all E of them in one compiled step, on one thread of the CPU.

JAX is imported where such an environment is made, and so in the processes of actors: a learner
never loads it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tianji.core.env import EnvSpec, Step
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.core.state import State
from tianji.envs.agents import Choices, RewardShares, Sharing, library, spec_of_all
from tianji.envs.spaces import check_finite

SETTINGS = {
    "JAX_PLATFORMS": "cpu",  # the learner's GPU is not for environments
    "NPROC": "1",  # threads that XLA computes with
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


class JaxGame(Protocol):
    """One environment as functions that JAX can compile; `spec` is without the axis E."""

    spec: EnvSpec

    def reset(self, key: Any) -> tuple[Any, Any]:
        """What is seen at the start of an episode, by name, and the game's state."""

    def step(self, key: Any, state: Any, action: Any) -> tuple[Any, Any, dict[str, Any]]:
        """What is seen then, the new state, and `reward`, `over`, `cut` (by time) and `won`."""


def load_jax(name: str, extra: str) -> Any:
    """JaxMARL, with JAX on one thread and what it compiles kept in the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = {"JAX_COMPILATION_CACHE_DIR": str(Path(home, "tianji", "jax"))}
    before = {key: os.environ.get(key) for key in (*SETTINGS, *cache)}
    for key, value in {**SETTINGS, **cache}.items():
        os.environ.setdefault(key, value)
    try:
        with _quiet():
            jaxmarl = library("jaxmarl", name, extra)
            library("jax", name, extra).devices()  # reads the settings now
    finally:
        for key, was in before.items():
            if was is None:
                del os.environ[key]
    return jaxmarl


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps JaxMARL's greetings to itself: it prints, and puts `sys.stdout` back in between."""
    streams = sys.stdout, sys.stderr, sys.__stdout__
    sink: Any = io.StringIO()
    sys.stdout, sys.__stdout__ = sink, sink  # type: ignore[misc]  # it is final, for typing only
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its dependencies complain about each other
            yield
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = streams  # type: ignore[misc]


class JaxEnv:
    """An `Env` over a `JaxGame`; the step after an episode's end only resets.

    Environment e is seeded with `seed + e`, whatever E is. `reset` and `step` return new arrays
    each time, which are read-only.
    """

    def __init__(
        self,
        name: str,
        game: JaxGame,
        n_envs: int,
        *,
        max_step: int | None,
        time_limit_terminal: bool,
        sharing: Sharing | None = None,
        can_win: bool = False,
    ) -> None:
        jax: Any = importlib.import_module("jax")  # loaded by `load_jax`
        shares = None if sharing is None else RewardShares(name, game.spec, sharing)
        self.spec = spec_of_all(game.spec, n_envs, max_step, shares)
        self._name, self._shares, self._can_win = name, shares, can_win
        self._limit, self._limit_terminal = max_step or 0, time_limit_terminal
        self._choices = Choices(name, self.spec)
        self._jax, self._game = jax, game
        self._begin = jax.jit(jax.vmap(self._one_reset))
        self._advance = jax.jit(jax.vmap(self._one_step))
        self._keys: Any = None  # [E, ...] where each stream of random numbers stands
        self._state: Any = None
        self._mask: npt.NDArray[Any] | None = None
        self._ended = np.zeros(n_envs, np.bool_)
        self._length = np.zeros(n_envs, np.int64)  # steps in the current episode

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew and returns what is observed, [E, ...]."""
        if seed is None and self._keys is None:
            seed = int(np.random.default_rng().integers(2**31))
        if seed is not None:
            seeds = np.arange(seed, seed + self.spec.n_envs) % 2**32
            self._keys = self._jax.vmap(self._jax.random.PRNGKey)(seeds.astype(np.uint32))
        self._keys, seen, self._state = self._begin(self._keys)
        self._ended, self._length = np.zeros_like(self._ended), np.zeros_like(self._length)
        return self._shown(seen)

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per agent, [E, A, ...], or resets where an episode had ended."""
        resets = self._ended
        action = self._choices.check(action, self._mask, ~resets)
        if action.dtype == np.int64:
            action = action.astype(np.int32)
        self._keys, seen, self._state, outcome = self._advance(
            self._keys, self._state, action, resets
        )
        reward, over, cut, won = (
            np.asarray(outcome[name]) for name in ("reward", "over", "cut", "won")
        )
        self._length = np.where(resets, 0, self._length + 1)
        cut = (cut | (self._length == self._limit)) & ~resets if self._limit else cut
        terminated = over | cut if self._limit_terminal else over
        self._ended = terminated | cut
        score = None
        if self._shares is not None:
            reward, score = self._shares.of(reward)
        shown = self._shown(seen)
        check_finite(self._name, {"reward": reward}, self._length)
        return Step(
            shown,
            reward,
            terminated,
            cut & ~terminated,
            ~resets,
            resets,
            score=score,
            won=won & self._ended if self._can_win else None,
        )

    def close(self) -> None:
        """Forgets the games."""
        self._state = None

    def state(self) -> State | None:
        """Every number of the games, and where the random streams stand."""
        if self._state is None:
            return None
        leaves = [np.asarray(leaf) for leaf in self._jax.tree.leaves(self._state)]
        assert self._mask is not None or self.spec.choices is None
        mask = {} if self._mask is None else {"mask": self._mask}
        keys = {"keys": np.asarray(self._keys), "leaves": leaves}
        return {**keys, **mask, "ended": self._ended, "length": self._length}

    def restore(self, state: State) -> None:
        """Goes on within the same episodes."""
        if self._state is None:
            self.reset(0)  # for the layout of the state
        layout: Any = self._jax.tree.structure(self._state)
        if layout.num_leaves != len(state["leaves"]):
            raise TianJiError(
                f"{self._name}: the saved games have {len(state['leaves'])} arrays and these "
                f"{layout.num_leaves}: resume with the version of JaxMARL of that time"
            )
        numbers = self._jax.numpy
        self._keys = numbers.asarray(state["keys"])
        self._state = layout.unflatten([numbers.asarray(leaf) for leaf in state["leaves"]])
        self._mask = np.array(state["mask"]) if "mask" in state else None
        self._ended = np.array(state["ended"], np.bool_)
        self._length = np.array(state["length"], np.int64)

    def _shown(self, seen: Any) -> Arrays:
        shown = {field.name: np.asarray(seen[field.name]) for field in self.spec.observations}
        if "mask" in shown:
            self._mask = shown["mask"]
            self._choices.check_mask(self._mask, ~self._ended)
        check_finite(self._name, shown, self._length)
        return shown

    def _one_reset(self, key: Any) -> tuple[Any, Any, Any]:
        key, fresh = self._jax.random.split(key)
        seen, state = self._game.reset(fresh)
        return key, self._strong(seen), self._strong(state)

    def _one_step(self, key: Any, state: Any, action: Any, over: Any) -> tuple[Any, ...]:
        """One environment's step, or its reset where its episode was over."""
        key, stepping, fresh = self._jax.random.split(key, 3)
        after = self._game.step(stepping, state, action)
        begun = self._game.reset(fresh)

        def either(new: Any, old: Any) -> Any:
            return self._jax.numpy.where(over, new, old)

        seen, state = self._jax.tree.map(either, begun, after[:2])
        outcome = {name: either(0, value).astype(value.dtype) for name, value in after[2].items()}
        return key, self._strong(seen), self._strong(state), outcome

    def _strong(self, tree: Any) -> Any:
        """The same with definite types: a weak one would have all of it compiled a second time."""
        numbers = self._jax.numpy
        return self._jax.tree.map(lambda x: (y := numbers.asarray(x)).astype(y.dtype), tree)
