"""Policies: from what an environment shows, through a network, to actions.

They compute in numpy or in torch, as the network and `actor_cfg.device` say, and import torch only
in the second case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tianji.core.algorithm import Task, Weights
from tianji.core.env import BoolArray, EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.core.state import State, random_state, restore_random
from tianji.models.acting import Acting
from tianji.models.layout import Floats, Network

if TYPE_CHECKING:
    from tianji.models.recurrent import ActingAgents

IMPOSSIBLE = -1e9  # the logit, or value, of an action that cannot be taken
LOG_2PI = float(np.log(2 * np.pi))
LOG_STD = (-5.0, 2.0)  # between which a network's own spread lies


def chosen(
    logits: Floats, random: np.random.Generator | None
) -> tuple[npt.NDArray[np.int64], Floats]:
    """One option of each row of `logits`, drawn or the likeliest, and its log-probability."""
    logits = logits - logits.max(1, keepdims=True)
    weight = np.exp(logits)
    if random is not None:
        upto = weight.cumsum(1)
        mark = random.random((len(logits), 1), np.float32) * upto[:, -1:]  # below the last
        action = (upto <= mark).sum(1)  # never an option without weight
    else:
        action = logits.argmax(1)
    return action, logits[np.arange(len(logits)), action] - np.log(weight.sum(1))


Outputs = TypeVar("Outputs", "Acting", "ActingAgents")


class Remembering(Generic[Outputs]):
    """What policies remember: their networks' weights, a stream of draws, and steps made so far."""

    def __init__(self, outputs: Outputs, seed: int) -> None:
        self.outputs: Outputs = outputs
        self._random = np.random.default_rng(seed)
        self._steps = 0  # that a schedule may depend on

    def load(self, weights: Weights, version: int) -> None:
        """Copies the weights that a learner published."""
        self.outputs.load(weights)

    def state(self) -> State:
        """All of it."""
        drawn = {"random": random_state(self._random), "steps": self._steps}
        return {**self.outputs.state(), **drawn}

    def restore(self, state: State) -> None:
        """Acts on where another policy stopped."""
        self.outputs.restore(state)
        restore_random(self._random, state["random"])
        self._steps = state.get("steps", 0)


class CategoricalPolicy(Remembering[Acting]):
    """Draws one of n actions; the network's first n outputs are their logits."""

    def __init__(
        self, task: Task, network: Network, n_actions: int, seed: int, normalise: bool = False
    ) -> None:
        super().__init__(Acting(task, network, normalise=normalise), seed)
        self._n_actions, self._masked = n_actions, task.env.masked

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """Actions and the logarithms of their probabilities."""
        logits = self.outputs(obs, first)[:, : self._n_actions]
        if self._masked:
            logits = np.where(obs["mask"], logits, np.float32(IMPOSSIBLE))
        action, logp = chosen(logits, self._random if explore else None)
        return {"action": action, "logp": logp}


class SeveralChoicesPolicy(CategoricalPolicy):
    """Makes several choices at once, each from logits of its own."""

    def __init__(
        self,
        task: Task,
        network: Network,
        choices: tuple[int, ...],
        seed: int,
        normalise: bool = False,
    ) -> None:
        super().__init__(task, network, sum(choices), seed, normalise)
        self._shape = task.env.action.shape
        self._ends = np.cumsum(choices)

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """Actions [E, ...] and the logarithms of their joint probabilities."""
        logits = self.outputs(obs, first)[:, : self._n_actions]
        random = self._random if explore else None
        parts = np.split(logits, self._ends[:-1], 1)
        actions, logps = zip(*(chosen(part, random) for part in parts), strict=True)
        action = np.stack(actions, 1).reshape(len(logits), *self._shape)
        return {"action": action, "logp": np.sum(logps, 0)}


class GaussianPolicy(Remembering[Acting]):
    """Draws vectors of numbers around the network's first outputs."""

    def __init__(self, task: Task, network: Network, seed: int, normalise: bool = False) -> None:
        env = task.env
        self._shape = env.action.shape
        self._n = int(np.prod(self._shape, dtype=int))
        super().__init__(Acting(task, network, n_more=self._n, normalise=normalise), seed)
        self._low = np.asarray(env.action_low, np.float32)
        self._high = np.asarray(env.action_high, np.float32)

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """Actions within the space's bounds, what was drawn before the bounds, and its density."""
        raw, log_std = self.outputs(obs, first)[:, : self._n], self.outputs.more
        logp = np.full(len(raw), -0.5 * LOG_2PI * self._n - log_std.sum(), np.float32)
        if explore:
            noise = self._random.standard_normal(raw.shape, np.float32)
            raw = raw + noise * np.exp(log_std)
            logp -= 0.5 * np.square(noise).sum(1)
        action = np.clip(raw, self._low, self._high).reshape(len(raw), *self._shape)
        return {"action": action, "raw": raw, "logp": logp}


class GreedyPolicy(Remembering[Acting]):
    """Takes the action of the highest value, at random with a probability that falls over time."""

    def __init__(
        self,
        task: Task,
        network: Network,
        seed: int,
        final: float | Floats,
        decay: float,
        random_until: float = 0.0,
        values: Callable[[Floats], Floats] | None = None,
    ) -> None:
        """Epsilon falls from 1 to `final` over `decay` of this policy's own steps.

        `final` is of all environments alike, or holds one number for each of them.
        `values` makes the value of every action out of the network's outputs, where they are not.
        """
        self._final, self._decay, self._random_until = final, decay, random_until
        self._n_actions, self._masked = task.env.n_actions, task.env.masked
        super().__init__(Acting(task, network), seed)
        self._values = values

    @property
    def epsilon(self) -> float | Floats:
        """Probability of a random action at the current step, or that of each environment."""
        if self._steps < self._random_until:
            return 1.0
        if self._steps >= self._decay:
            return self._final
        return 1.0 + (self._final - 1.0) * self._steps / self._decay

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """One action per environment."""
        value = self.outputs(obs, first)
        if self._values is not None:
            value = self._values(value)
        if self._masked:
            value = np.where(obs["mask"], value, np.float32(IMPOSSIBLE))
        action = value.argmax(1)
        if explore:
            at_random = self._random.random(len(action)) < self.epsilon
            if at_random.any():
                assert self._n_actions is not None
                action[at_random] = self._random.integers(self._n_actions, size=at_random.sum())
                if self._masked:
                    action[at_random] = self._possible(obs["mask"][at_random])
            self._steps += len(action)
        return {"action": action}

    def _possible(self, mask: BoolArray) -> npt.NDArray[np.int64]:
        """One of the actions that are possible, for each row."""
        drawn: npt.NDArray[np.int64] = (self._random.random(mask.shape) * mask).argmax(1)
        return drawn


class ActionBounds:
    """Vectors of numbers between an action space's bounds, and the same between -1 and 1."""

    def __init__(self, env: EnvSpec) -> None:
        low, high = np.asarray(env.action_low), np.asarray(env.action_high)
        if not np.isfinite([low, high]).all():
            raise TianJiError(
                f"this environment's actions have no bounds ({env.action}, from {low.min():g} to "
                f"{high.max():g}): use agent = dict(type='PPO', ...), or an environment with bounds"
            )
        self._shape, self._low, self._high = env.action.shape, low, high
        self.centre: Floats = ((low + high) / 2).astype(np.float32)
        self.scale: Floats = ((high - low) / 2).astype(np.float32)

    def outer(self, action: Floats) -> Floats:
        """What environments take, [E, ...], for numbers [E, n] between -1 and 1."""
        scaled = np.clip(self.centre + self.scale * action, self._low, self._high)
        return scaled.astype(np.float32).reshape(len(action), *self._shape)

    @property
    def inverse(self) -> Floats:
        """What a distance from `centre` is multiplied with to lie between -1 and 1."""
        return np.divide(1, self.scale, out=np.ones_like(self.scale), where=self.scale > 0)


class SquashedPolicy(Remembering[Acting]):
    """Vectors of numbers within bounds: the tanh of the network's first outputs."""

    def __init__(
        self,
        task: Task,
        network: Network,
        seed: int,
        noise: float | None,
        random_until: float = 0.0,
        noise_kept: float = 0.0,
    ) -> None:
        """Explores by noise of this deviation, where bounds are -1 and 1.

        Without `noise` the network's other outputs say how far it spreads before the tanh. Until
        `random_until` of this policy's own steps every action within the bounds is equally likely.
        The noise of one step and the next correlate by `noise_kept`.
        """
        self._bounds, self._noise, self._random_until = ActionBounds(task.env), noise, random_until
        self._kept, self._last = np.float32(noise_kept), np.zeros((0, 0), np.float32)
        self._n = len(self._bounds.scale)
        super().__init__(Acting(task, network), seed)

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """One action per environment."""
        out = self.outputs(obs, first)
        action = np.tanh(out[:, : self._n])
        if explore:
            if self._steps < self._random_until:
                action = self._random.uniform(-1, 1, action.shape).astype(np.float32)
            else:
                action = self._explored(out, action)
            self._steps += len(action)
        return {"action": self._bounds.outer(action)}

    def _explored(self, out: Floats, action: Floats) -> Floats:
        drawn = self._random.standard_normal(action.shape, np.float32)
        if self._noise is None:
            low, high = LOG_STD
            log_std = low + (high - low) / 2 * (np.tanh(out[:, self._n :]) + 1)
            return np.tanh(out[:, : self._n] + np.exp(log_std) * drawn)
        if self._kept:
            last = self._last if self._last.shape == drawn.shape else drawn
            drawn = self._last = self._kept * last + np.sqrt(1 - self._kept**2) * drawn
        return np.clip(action + np.float32(self._noise) * drawn, -1, 1)

    def state(self) -> State:
        """The noise of the step before as well, where it lasts."""
        return super().state() | ({"noise": self._last} if self._last.size else {})

    def restore(self, state: State) -> None:
        """Acts on where another policy stopped."""
        super().restore(state)
        self._last = np.array(state.get("noise", self._last))
