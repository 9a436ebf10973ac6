"""Tiny environments for the tests, named in configs as `echo:Echo` and so on."""

import ctypes
import math
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from traceback import extract_stack

import numpy as np
from gymnasium import spaces

from tianji.envs import BaseEnv


class Echo(BaseEnv):
    """Shows one of n pictures for ten steps; the number of the picture earns a point."""

    def init(self, n=4):
        self.n = n
        self.observation_space = spaces.Box(0, 1, (n,), np.float32)
        self.action_space = spaces.Discrete(n)
        self.random = np.random.default_rng(0)

    def seed(self, seed):
        self.random = np.random.default_rng(seed)

    def reset(self):
        self.t = 0
        return self._show()

    def step(self, action):
        reward = float(action == self.answer)
        self.t += 1
        return self._show(), reward, False, self.t == 10, {}

    def _show(self):
        self.answer = int(self.random.integers(self.n))
        return np.eye(self.n, dtype=np.float32)[self.answer]

    def render(self):
        return None

    def close(self):
        pass


class Several(Echo):
    """Shows two pictures; each choice that names its picture earns half a point."""

    def init(self, kind="discrete"):
        super().init(4)
        binary = kind == "binary"
        self.sizes = (2, 2) if binary else (4, 3)
        self.observation_space = spaces.Box(0, 1, (sum(self.sizes),), np.float32)
        self.action_space = spaces.MultiBinary(2) if binary else spaces.MultiDiscrete(self.sizes)

    def step(self, action):
        reward = float(np.mean(np.equal(action, self.answers)))
        self.t += 1
        return self._show(), reward, False, self.t == 10, {}

    def _show(self):
        self.answers = [int(self.random.integers(n)) for n in self.sizes]
        pictures = [np.eye(n)[k] for n, k in zip(self.sizes, self.answers, strict=True)]
        return np.concatenate(pictures, dtype=np.float32)


class Raises(Echo):
    """Breaks in its 50th step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 50:
            raise RuntimeError("the simulator lost its marbles")
        return super().step(action)


class RaisesOnce(Echo):
    """Breaks once in the life of its process."""

    broke = False

    def init(self, at=50, **options):
        super().init(**options)
        self.steps, self.at = 0, at

    def step(self, action):
        self.steps += 1
        if self.steps == self.at and not RaisesOnce.broke:
            RaisesOnce.broke = True
            raise RuntimeError("the simulator lost its marbles")
        return super().step(action)


class Sleeps(Echo):
    """Takes six seconds for its 200th step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 200:
            time.sleep(6.0)
        return super().step(action)


class NotANumber(Echo):
    """Pays NaN in its 50th step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, math.nan if self.steps == 50 else reward, terminated, truncated, info


class Uneven(Echo):
    """A hundred times slower in the first actor than in the others."""

    def step(self, action):
        time.sleep(0.1 if "actor-0.0" in sys.argv else 0.001)
        return super().step(action)


class Leaves(Echo):
    """Ends its process in its 50th step, as some simulators do."""

    steps = 0

    def init(self, how="sys", **options):
        super().init(**options)
        self.how = how

    def step(self, action):
        self.steps += 1
        if self.steps == 50:
            sys.exit() if self.how == "sys" else os._exit(0)
        return super().step(action)


class BreaksOnce(Echo):
    """Hangs or crashes in its 50th step, the first time that this happens beside `mark`."""

    steps = 0

    def init(self, how, mark):
        super().init()
        self.how, self.mark = how, Path(mark)

    def step(self, action):
        self.steps += 1
        if self.steps == 50:
            with suppress(FileExistsError):
                self.mark.touch(exist_ok=False)
                time.sleep(1000) if self.how == "hangs" else ctypes.string_at(0)
        return super().step(action)


class ExitsOnce(Echo):
    """Ends its process in its 100th step, the first time that this happens beside `mark`."""

    steps = 0

    def init(self, status, mark):
        super().init()
        self.status, self.mark = status, Path(mark)

    def step(self, action):
        self.steps += 1
        if self.steps == 100:
            with suppress(FileExistsError):
                self.mark.touch(exist_ok=False)
                os._exit(self.status)
        return super().step(action)


class HangsInEvaluation(Echo):
    """Hangs in the fourth step of an evaluation."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 4 and any(
            Path(frame.filename).name == "evaluation.py" for frame in extract_stack()
        ):
            time.sleep(1000)
        return super().step(action)


class HangsAtFirst(Echo):
    """Hangs in the first reset of one actor, the first time that this happens beside `mark`."""

    def init(self, mark, **options):
        super().init(**options)
        self.mark = Path(mark)

    def reset(self):
        if "actor-0.0" in sys.argv:
            with suppress(FileExistsError):
                self.mark.touch(exist_ok=False)
                time.sleep(1000)
        return super().reset()


class Starts(Echo):
    """Starts two programs, of which one is stubborn, as simulators do that are not Python."""

    def init(self, mark, **options):
        super().init(**options)
        words = (["sleep", "1000"], ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
        self.started = [subprocess.Popen(each) for each in words]
        with Path(mark).open("a") as file:
            file.write("".join(f"{sys.argv[-1]} {each.pid}\n" for each in self.started))

    def close(self):
        for each in self.started:
            each.kill()
            each.wait()


class SlowToStart(Echo):
    """Takes its time to begin an episode, and drops what is raised meanwhile."""

    def reset(self):
        with suppress(BaseException):
            time.sleep(200)
        time.sleep(200)
        return super().reset()
