"""Stochastic policies in numpy: what an actor of PPO, or of an algorithm of your own, acts with."""

from __future__ import annotations

import numpy as np

from tianji.core.algorithm import Weights
from tianji.core.env import BoolArray, EnvSpec
from tianji.core.schema import Arrays
from tianji.core.state import State, random_state, restore_random
from tianji.models.layout import MLPLayout, NumpyMLP

LOG_2PI = float(np.log(2 * np.pi))


class CategoricalPolicy:
    """Draws one of n actions, in numpy."""

    def __init__(self, layout: MLPLayout, env: EnvSpec, seed: int) -> None:
        self._network, self._gather = NumpyMLP(layout), env.gather
        self._random = np.random.default_rng(seed)

    def load(self, weights: Weights, version: int) -> None:
        """Copies the policy network's weights."""
        self._network.load(weights)

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """Actions and the logarithms of their probabilities."""
        logits = self._network(self._gather(obs))
        logits -= logits.max(1, keepdims=True)
        weight = np.exp(logits)
        total = weight.sum(1, keepdims=True)
        if explore:
            mark = self._random.random((len(logits), 1), np.float32) * total
            action = (weight.cumsum(1) < mark).sum(1)
            np.minimum(action, logits.shape[1] - 1, out=action)
        else:
            action = logits.argmax(1)
        rows = np.arange(len(logits))
        return {"action": action, "logp": logits[rows, action] - np.log(total[:, 0])}

    def state(self) -> State:
        """The weights and the stream of draws."""
        return {"weights": self._network.flat, "random": random_state(self._random)}

    def restore(self, state: State) -> None:
        """Draws on where another policy stopped."""
        self._network.load(state["weights"])
        restore_random(self._random, state["random"])


class GaussianPolicy:
    """Draws vectors of numbers around the network's output, in numpy."""

    def __init__(self, layout: MLPLayout, env: EnvSpec, seed: int) -> None:
        self._network, self._gather = NumpyMLP(layout), env.gather
        self._log_std = np.zeros(self._network.layout.n_outputs, np.float32)
        self._random = np.random.default_rng(seed)
        self._shape = env.action.shape
        self._low = np.asarray(env.action_low, np.float32)
        self._high = np.asarray(env.action_high, np.float32)

    def load(self, weights: Weights, version: int) -> None:
        """Copies the policy network's weights and the logarithm of the spread."""
        self._network.load(weights[: -self._log_std.size])
        self._log_std[...] = weights[-self._log_std.size :]

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """Actions within the space's bounds, what was drawn before the bounds, and its density."""
        raw = self._network(self._gather(obs))
        logp = np.full(
            len(raw), -0.5 * LOG_2PI * self._log_std.size - self._log_std.sum(), np.float32
        )
        if explore:
            noise = self._random.standard_normal(raw.shape, np.float32)
            raw = raw + noise * np.exp(self._log_std)
            logp -= 0.5 * np.square(noise).sum(1)
        action = np.clip(raw, self._low, self._high).reshape(len(raw), *self._shape)
        return {"action": action, "raw": raw, "logp": logp}

    def state(self) -> State:
        """The weights, the spread and the stream of draws."""
        return {
            "weights": self._network.flat,
            "log_std": self._log_std,
            "random": random_state(self._random),
        }

    def restore(self, state: State) -> None:
        """Draws on where another policy stopped."""
        self._network.load(state["weights"])
        self._log_std[...] = state["log_std"]
        restore_random(self._random, state["random"])
