"""Environments of one's own that are `tianji.Env`s: they show a mask, a state and who is alive."""

from dataclasses import replace

import numpy as np

import tianji
from tianji import EnvSpec, Field, Step


class Doors(tianji.Env):
    """Two of four doors are open, three times in a row; the one with the higher number pays.

    Which are open is in `mask` alone. An action that is not possible is an error.
    """

    def __init__(self, n_envs, rounds=3):
        observations = (Field("obs", "float32", (4,)), Field("mask", "bool", (4,)))
        self.spec = EnvSpec(observations, Field("action", "int64"), (4,), n_envs)
        self.rounds, self.random = rounds, np.random.default_rng(0)

    def reset(self, seed=None):
        self.random = np.random.default_rng(seed)
        self.left = np.full(self.spec.n_envs, self.rounds)
        return self.show()

    def show(self):
        self.open = self.random.random((self.spec.n_envs, 4)).argsort(1) >= 2
        return {"obs": np.ones((self.spec.n_envs, 4), np.float32), "mask": self.open}

    def step(self, action):
        rows = np.arange(len(action))
        begins = self.left == 0
        if not self.open[rows, action].all():
            raise ValueError(f"closed doors: {action} of {self.open}")
        best = 3 - self.open[:, ::-1].argmax(1)
        reward = np.where(begins, 0, action == best).astype(np.float32)
        self.left = np.where(begins, self.rounds, self.left - 1)
        ended = (self.left == 0) & ~begins
        return Step(self.show(), reward, ended, np.zeros_like(ended), ~begins, begins)

    def close(self):
        pass


class Spoilt(Doors):
    """Its environment 2 shows or pays `what` in its `at`th step; every fourth only begins."""

    def __init__(self, n_envs, field="reward", at=103, what="nan"):
        super().__init__(n_envs)
        self.field, self.at, self.what, self.steps = field, at, float(what), 0

    def show(self):
        shown = super().show()
        return self.spoil(shown) if self.field == "obs" else shown

    def spoil(self, arrays):
        if self.steps == self.at:
            arrays[self.field][2] = self.what
        return arrays

    def step(self, action):
        self.steps += 1
        step = super().step(action)
        if self.field == "reward":
            reward = step.reward.astype(np.result_type(np.float32, np.min_scalar_type(self.what)))
            return replace(step, **self.spoil({"reward": reward}))
        return step


class Halved(Spoilt):
    """Steps in two halves, has a state, and knows of mishaps."""

    def begin(self, action):
        self.action = action.copy()

    def finish(self):
        return super().step(self.action)

    def step(self, action):
        raise AssertionError("it is asked for its halves")

    def mend(self, mishaps):
        self.mishaps = mishaps

    def space_terms(self):
        return "terms"

    def state(self):
        return {"left": self.left}

    def restore(self, state):
        self.left = state["left"]


class Pair(tianji.Env):
    """Two agents; the second is gone in every other step. They share a state and a reward."""

    def __init__(self, n_envs):
        observations = (
            Field("obs", "float32", (2, 3)),
            Field("mask", "bool", (2, 2)),
            Field("state", "float32", (5,)),
            Field("alive", "bool", (2,)),
        )
        action = Field("action", "int64", (2,))
        self.spec = EnvSpec(
            observations, action, (2, 2), n_envs, agents=("one", "two"), teams=(0, 0)
        )

    def reset(self, seed=None):
        self.t = np.zeros(self.spec.n_envs, np.int64)
        return self.show()

    def show(self):
        n = self.spec.n_envs
        alive = np.stack([self.t >= 0, self.t % 2 == 0], 1)
        mask = np.ones((n, 2, 2), np.bool_)
        mask[:, 1, 1] = alive[:, 1]
        return {
            "obs": np.zeros((n, 2, 3), np.float32),
            "mask": mask,
            "state": np.repeat(self.t[:, None], 5, 1).astype(np.float32),
            "alive": alive,
        }

    def step(self, action):
        begins = self.t == 6
        reward = np.where(begins, 0, action[:, 0]).astype(np.float32)
        self.t = np.where(begins, 0, self.t + 1)
        ended = self.t == 6
        return Step(self.show(), reward, ended, np.zeros_like(ended), ~begins, begins)

    def close(self):
        pass


class Within(Pair):
    """Says that it begins anew within the step that ends an episode."""

    def __init__(self, n_envs):
        super().__init__(n_envs)
        self.spec = replace(self.spec, same_step=True)


class Unspecified(Doors):
    """Says something else than it is."""

    def __init__(self, n_envs):
        super().__init__(n_envs + 1)


class Stepless(tianji.Env):
    """Lacks a method."""

    def reset(self, seed=None):
        return {}

    def close(self):
        pass


class Shapeless(Doors):
    """Shows an array of another type than its spec says."""

    def show(self):
        return super().show() | {"obs": np.ones((self.spec.n_envs, 4))}


class Broad(Doors):
    """Its mask is not of its actions."""

    def __init__(self, n_envs):
        super().__init__(n_envs)
        observations = (Field("obs", "float32", (4,)), Field("mask", "bool", (5,)))
        self.spec = EnvSpec(observations, Field("action", "int64"), (4,), n_envs)

    def show(self):
        shown, self.open = super().show(), np.ones((self.spec.n_envs, 4), np.bool_)
        return shown | {"mask": np.ones((self.spec.n_envs, 5), np.bool_)}
