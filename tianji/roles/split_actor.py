"""An actor in two halves: one half's environments move while the policy acts in the other's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.algorithm import Policy, Weights
from tianji.core.env import BoolArray, SplitEnv, Step
from tianji.core.schema import Arrays
from tianji.core.state import State, restore_to, state_of
from tianji.roles.actor import Actor
from tianji.roles.env_restart import MovingEnvs


class EnvHalves:
    """Two environments side by side, as one; the second half's rows follow the first's."""

    def __init__(self, halves: Sequence[SplitEnv]) -> None:
        self.halves = list(halves)
        self.size = halves[0].spec.n_envs
        self.spec = replace(halves[0].spec, n_envs=self.size * len(halves))

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew; environment e is seeded as if they were one."""
        seeds = [None if seed is None else seed + i * self.size for i in range(len(self.halves))]
        return joined([half.reset(each) for half, each in zip(self.halves, seeds, strict=True)])

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per environment."""
        for i, half in enumerate(self.halves):
            half.begin(action[i * self.size : (i + 1) * self.size])
        return joined_step([half.finish() for half in self.halves])

    def close(self) -> None:
        """Closes both."""
        for half in self.halves:
            half.close()


class PolicyHalves:
    """A policy for each half, with the same weights: each remembers its own environments."""

    def __init__(self, halves: Sequence[Policy]) -> None:
        self.halves = halves

    def load(self, weights: Weights, version: int) -> None:
        """Copies the weights that a learner published, for both."""
        for half in self.halves:
            half.load(weights, version)

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """What both decide."""
        n = len(first) // len(self.halves)
        parts = [slice(i * n, (i + 1) * n) for i in range(len(self.halves))]
        decisions = [
            half.act({name: array[part] for name, array in obs.items()}, first[part], explore)
            for half, part in zip(self.halves, parts, strict=True)
        ]
        return joined(decisions)

    def state(self) -> State:
        """Of both, where they have one."""
        return {"halves": [state_of(half) for half in self.halves]}

    def restore(self, state: State) -> None:
        """Acts on where others stopped."""
        for half, saved in zip(self.halves, state["halves"], strict=True):
            restore_to(half, saved)


class SplitActor(Actor):
    """An `Actor` whose step acts in one half, while the other half's environments still move.

        policy    act A | wait B | act B | wait A | act A | wait B
        A moves         ===========================       ========
        B moves   ==============         ===========================

    A row of the trajectory is complete when both halves have made it.
    """

    def __init__(self, name: str, env: EnvHalves, policy: PolicyHalves, *rest: Any, **more: Any):
        super().__init__(name, env, policy, *rest, **more)
        moving = [MovingEnvs(env.halves, i, self._restart) for i in range(len(env.halves))]
        self._halves = [_Half(*each) for each in zip(moving, policy.halves, strict=True)]
        self._size, self._turn = env.size, 0

    def step(self) -> bool:
        """Takes newer weights if there are any, then acts in one half."""
        if self.weights.closed:
            return self._finish()
        if not (self._large and self.trajectory.is_open):
            self.take_weights()
        if not self.trajectory.is_open and not self._begin():
            return False
        half, other = self._halves[self._turn], self._halves[1 - self._turn]
        self.tracer.begin()
        if half.n_made < self._length:
            half.act()
        self.tracer.decided()
        if other.moving:
            other.finish()  # half moves meanwhile, and goes on while the other is acted in
        self.tracer.acted()
        if half.made is not None and other.made is not None:
            self._keep_row()
        self._turn = 1 - self._turn
        if self.trajectory.length == self._length:
            self._push()
        return True

    def _begin(self) -> bool:
        if not super()._begin():
            return False
        for i, half in enumerate(self._halves):
            part = slice(i * self._size, (i + 1) * self._size)
            half.begin({name: a[part] for name, a in self.obs.items()}, self.first[part])
        self._turn = 0
        return True

    def _keep_row(self) -> None:
        """Both halves have moved: what they decided, and what came of it."""
        decisions, steps = [], []
        for half in self._halves:
            assert half.made is not None
            decision, step = half.made
            half.made = None
            decisions.append(decision)
            steps.append(step)
        step = joined_step(steps)
        self.obs, self.first = self.trajectory.add(joined(decisions), step), step.first
        self.log.add(step, self.version)


class _Half:
    """Environments, their policy, and where the two stand in the open trajectory."""

    def __init__(self, envs: MovingEnvs, policy: Policy) -> None:
        self._envs, self._policy = envs, policy
        self.moving = False
        self.n_made = 0  # rows of the open trajectory that are made or under way
        self.made: tuple[Arrays, Step] | None = None  # the newest row, until the other half's
        self._decision: Arrays = {}
        self._obs: Arrays = {}
        self._first: BoolArray = np.zeros(0, np.bool_)

    def begin(self, obs: Arrays, first: BoolArray) -> None:
        """A trajectory begins here."""
        self.moving, self.n_made, self.made = False, 0, None
        self._obs, self._first = obs, first

    def act(self) -> None:
        """Decides, and lets the environments move."""
        self._decision = self._policy.act(self._obs, self._first)
        self._envs.begin(self._decision["action"])
        self.moving, self.n_made = True, self.n_made + 1

    def finish(self) -> None:
        """Waits for them: the other half's actions were chosen meanwhile."""
        step = self._envs.finish()
        self.moving = False
        self.made = self._decision, step
        self._obs, self._first = step.obs, step.first


def joined(parts: Sequence[Arrays]) -> Arrays:
    """Arrays of several environments side by side, as of all."""
    if len(parts) == 1:
        return parts[0]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def joined_step(steps: Sequence[Step]) -> Step:
    """Steps of several environments side by side, as one of all."""
    if len(steps) == 1:
        return steps[0]
    values = {field.name: [getattr(s, field.name) for s in steps] for field in fields(Step)}
    return Step(**{name: _joined_values(parts) for name, parts in values.items()})


def _joined_values(parts: list[Any]) -> Any:
    if parts[0] is None:
        return None
    return joined(parts) if isinstance(parts[0], dict) else np.concatenate(parts)
