"""A worker process whose environments obey the orders of a chaos test.

It is `tianji.engines.worker` with one difference: before each of its steps, what `tianji.envs.make`
returned looks whether it is to be slow, to hang, to raise an exception or to pay NaN.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tianji import envs
from tianji.core.env import Env, SplitEnv, Step
from tianji.engines import worker
from tianji.tools.chaos.env_orders import FOLDER, Orders, Word, orders_of
from tianji.tools.chaos.fault_injection import CODES
from tianji.tools.chaos.schedule import Fault

FAULTS = {code: fault for fault, code in CODES.items()}


class ChaosError(Exception):
    """What an environment raises on order: no mistake of the user's, and of nobody else."""


class OrderedFaults:
    """Looks for orders before each step of an environment, and carries them out."""

    def __init__(self, env: Env, orders: Orders) -> None:
        self._env, self._words = env, orders.words
        self._seen = self._words[Word.NUMBER]  # older ones were for whoever was here before

    def look(self) -> None:
        """What costs a step a microsecond as long as there is nothing to obey."""
        words = self._words
        words[Word.STEPS] += 1
        if words[Word.PAUSE]:
            time.sleep(words[Word.PAUSE])
        if words[Word.NUMBER] != self._seen:
            self._seen = words[Word.NUMBER]
            self._obey(FAULTS[int(words[Word.FAULT])])

    def _obey(self, fault: Fault) -> None:
        game = _game_of(self._env)
        able = game is not None or fault is not Fault.NAN
        self._words[Word.OBEYED_AT] = time.monotonic()
        self._words[Word.OBEYED] = self._seen if able else -self._seen  # last: now it is seen
        if fault is Fault.HANG:
            while True:
                time.sleep(1.0)
        if fault is Fault.RAISE and game is None:
            raise ChaosError("the environment was told to raise this")
        if game is not None:
            _break_next(game, _raise if fault is Fault.RAISE else _pay_nan)


def with_ordered_faults(env: Env, orders: Orders) -> Env:
    """The same environment, which obeys from now on."""
    look, name = OrderedFaults(env, orders).look, "begin" if isinstance(env, SplitEnv) else "step"
    step = getattr(env, name)

    def obeying(*words: Any) -> Any:
        look()
        return step(*words)

    setattr(env, name, obeying)
    return env


def _game_of(env: Any) -> Any:
    """The first game as its own author wrote it; None where TianJi itself plays it."""
    for name in ("_envs", "_games"):
        if games := getattr(env, name, None):
            return games[0]
    return getattr(env, "_env", None)


def _break_next(game: Any, broken: Callable[[Any, tuple[Any, ...]], Any]) -> None:
    """Has the next step of a game go wrong, and none after it."""
    name = "finish" if isinstance(game, SplitEnv) else "step"
    whole = getattr(game, name)

    def step(*words: Any) -> Any:
        setattr(game, name, whole)
        return broken(whole(*words), words)

    setattr(game, name, step)


def _raise(result: Any, words: tuple[Any, ...]) -> Any:
    raise ChaosError("the environment was told to raise this")


def _pay_nan(result: Any, words: tuple[Any, ...]) -> Any:
    """Pays NaN; a game of several agents shows it, in the rows that it was to fill."""
    if isinstance(result, Step):
        return replace(result, reward=np.full_like(result.reward, math.nan))
    if isinstance(result, tuple) and len(result) == 5:
        obs, reward, *rest = result
        reward = np.full_like(reward, math.nan) if isinstance(reward, np.ndarray) else math.nan
        return (obs, reward, *rest)
    rows = next(word for word in words if isinstance(word, dict))
    rows["obs"].flat[0] = math.nan
    return result


def main() -> int:
    """What `tianji.engines.worker` does, among environments that obey."""
    home, folder = sys.argv[1], Path(os.environ[FOLDER])
    make = envs.make

    def faulty_make(*words: Any, **more: Any) -> Env:
        return with_ordered_faults(make(*words, **more), orders_of(folder, home))

    if (folder / f"{home}.orders").exists():
        envs.make = faulty_make
    return worker.main()


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # as the worker does
