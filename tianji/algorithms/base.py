"""What the built-in algorithms share: one flat vector of parameters, advantages, checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tianji.config.binder import key
from tianji.core.algorithm import Algorithm, Task, Weights, learning_rate
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.core.state import State
from tianji.core.wording import count_of
from tianji.models.layout import Floats
from tianji.models.normaliser import Normaliser, Sums
from tianji.models.tensors import array_of, copy_into

if TYPE_CHECKING:
    from tianji.models.flat import FlatParameters
    from tianji.models.optimisers import Adam


MEASURED = 256  # actions of a batch by which it is seen how far a fusion moves a policy


@dataclass(frozen=True)
class FallingRate:
    """The learning rate, which may fall in a line."""

    lr: float = key(1e-3, "learning rate", above=0)
    lr_decay: int | None = key(
        None, "updates over which lr falls in a line to lr_final; None: it stays", at_least=1
    )
    lr_final: float = key(
        0.0, "learning rate after lr_decay updates", at_least=0, needs={"lr_decay": ...}
    )

    def rate(self, n_updates: int) -> float:
        """After so many updates."""
        return learning_rate(self.lr, self.lr_final, self.lr_decay, n_updates)


class GradientAlgorithm(Algorithm):
    """An algorithm that steps one flat vector, of which actors need the first part.

    A subclass calls `_own` with its parameters and an optimiser, and defines `updates`. Everything
    that follows from the vector is here: weights, groups, checkpoints.
    """

    _optimiser: Adam
    networks: Any = None  # an actor-critic, where actions are drawn by one

    def _own(
        self,
        parameters: list[torch.nn.Parameter],
        device: str,
        normalisers: Sequence[Normaliser] = (),
    ) -> None:
        """Lays the parameters into one vector; the normalisers' numbers travel behind them."""
        from tianji.models.flat import FlatParameters
        from tianji.models.staging import Stage

        behind = sum(len(each.numbers) for each in normalisers)
        self._flat = FlatParameters(parameters, device, behind)
        self._device, self._normalisers = device, normalisers
        self.overlaps = device != "cpu"
        self._stage = Stage(device)
        self._n_updates = 0
        self._n_published = self.n_weights(self.task) - behind

    def stage(self, batch: Arrays) -> Any:
        """Copies the batch to the device, while that is busy with the one before."""
        return self._stage(batch)

    def _descend(self, loss: Any, max_norm: float | None) -> Generator[Weights, None, None]:
        """One step of the optimiser, made by all learners of a group; None: nothing to add."""
        if loss is None:
            self._flat.gradient.zero_()
        else:
            self._flat.backward(loss)
        if self.task.n_learners > 1:
            yield from self._flat.exchanged()
        self._flat.clip(max_norm)
        self._optimiser.step()

    def _mean_of_all(
        self, numbers: Sequence[float] | Sums
    ) -> Generator[Weights, None, list[float]]:
        """Of the learners of a group; the vector of a gradient carries the numbers."""
        gradient = self._flat.gradient.zero_()
        gradient[: len(numbers)] = torch.as_tensor(numbers, dtype=torch.float32)
        yield from self._flat.exchanged()
        mean: list[float] = gradient[: len(numbers)].tolist()
        return mean

    def n_left_out(self) -> int:
        """Steps that the optimiser has not made, for a loss or gradient with NaN or Inf."""
        return self._optimiser.n_left_out

    def weights(self) -> Weights:
        """What actors need, which lies first in the vector, and the normalisers."""
        return self._with_normalisers(array_of(self._flat.vector[: self._n_published]))

    def load(self, weights: Weights) -> None:
        """Sets what actors need; the rest is left as it is."""
        n = self._n_published
        self._flat.vector[:n] = torch.from_numpy(weights[:n])
        self._set_normalisers(weights[n:])

    def parameters(self) -> Weights:
        """Everything that is learned, and the normalisers, so that groups can be averaged."""
        parts = [each.averageable() for each in self._normalisers]
        return np.concatenate([array_of(self._flat.vector), *parts])

    def shift(self, delta: Weights) -> None:
        """Moves everything that is learned."""
        n = len(self._flat.vector)
        self._flat.vector += torch.from_numpy(delta[:n]).to(self._device)
        for each in self._normalisers:
            each.shift(delta[n : n + len(each.numbers)])
            n += len(each.numbers)

    def log_probabilities(self, batch: Arrays) -> Floats | None:
        """Of `MEASURED` actions of a batch of rollouts, where an actor-critic drew them."""
        from tianji.models.actor_critic import ActorCritic

        if not isinstance(self.networks, ActorCritic):
            return None
        arrays, inputs = self.stage(batch)
        valid = np.flatnonzero(arrays["valid"])
        if not len(valid):  # an actor that was lost sends an empty rollout in its turn
            return np.empty(0, np.float32)
        rows = torch.from_numpy(valid[:: -(-len(valid) // MEASURED) or 1])
        chosen = arrays["raw" if self.task.env.choices is None else "action"]
        action = torch.from_numpy(chosen).flatten(0, 2)[rows].to(self._device)
        rows = rows.to(self._device)
        with torch.no_grad():
            return array_of(self.networks.log_probability_at(inputs, rows, action))

    def _with_normalisers(self, vector: Weights) -> Weights:
        if not self._normalisers:
            return vector
        return np.concatenate([vector, *(each.numbers for each in self._normalisers)])

    def _set_normalisers(self, numbers: Weights) -> None:
        start = 0
        for each in self._normalisers:
            each.numbers[...] = numbers[start : start + len(each.numbers)]
            start += len(each.numbers)

    def state(self) -> State:
        """The parameters, the optimiser, the normalisers and the number of updates."""
        state: State = {
            "parameters": array_of(self._flat.vector),
            "optimiser": self._optimiser.state(),
            "updates": self._n_updates,
        }
        if self._normalisers:
            state["normalisers"] = np.concatenate([each.numbers for each in self._normalisers])
        return state

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        copy_into(self._flat.vector, state["parameters"], "parameters")
        self._optimiser.restore(state["optimiser"])
        self._n_updates = state["updates"]
        if self._normalisers:
            self._set_normalisers(state["normalisers"])

    def _choose_precision(self, network: torch.nn.Module, batch: int) -> None:
        """Convolutions compute in the fastest number format; says in the role's log which it is."""
        from tianji.models.cnn import CNN
        from tianji.models.precision import choose

        if isinstance(network, CNN):
            network.precision = choose(network, batch)
            print(f"updates compute in {network.precision}", flush=True)


class TargetAlgorithm(GradientAlgorithm):
    """The same with target networks, whose parameters lie in `_target_flat`."""

    _target_flat: FlatParameters

    def _learned(self, tau: float | None, every: int) -> None:
        """Counts an update; the target moves by the share `tau`, or is copied now and then."""
        self._n_updates += 1
        if tau is not None or self._n_updates % every == 0:
            self._target_flat.follow(self._flat, tau or 1.0)

    def load(self, weights: Weights) -> None:
        """Sets the online networks, and the target networks with them."""
        super().load(weights)
        self._target_flat.follow(self._flat)

    def state(self) -> State:
        """All networks, the optimiser and the number of updates."""
        return {**super().state(), "target": array_of(self._target_flat.vector)}

    def restore(self, state: State) -> None:
        """Learns on where another stopped."""
        super().restore(state)
        copy_into(self._target_flat.vector, state["target"], "target parameters")


def advantages(
    batch: Arrays,
    value: Floats,
    final_value: Floats | None,
    gamma: float,
    gae_lambda: float,
) -> tuple[Floats, Floats]:
    """Advantage and value target of every step; arrays are [n, T, E] and `value` is [n, T+1, E].

    A terminated step has no future. A truncated one has the value of its last observation, but no
    advantage flows back over the boundary. Steps that are not valid only reset: nothing flows
    through.
    """
    delta, onward = _errors(batch, value, final_value, gamma)
    advantage = _summed(delta * batch["valid"], gae_lambda * onward)
    target = advantage + value[:, :-1]
    return advantage.astype(np.float32), target.astype(np.float32)


def vtrace(
    batch: Arrays,
    value: Floats,
    final_value: Floats | None,
    gamma: float,
    ratio: Floats,
    clips: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> tuple[Floats, Floats]:
    """The policy's advantage and the value target of every step (Espeholt et al. 2018).

    `ratio` is the probability of each action under the learner's policy over that under the
    actor's. `clips` are the largest rho, the largest c, and the lambda that c is multiplied by.
    Boundaries are those of `advantages`.
    """
    rho: Floats = np.minimum(ratio, np.float32(clips[0]))
    c: Floats = np.float32(clips[2]) * np.minimum(ratio, np.float32(clips[1]))
    delta, onward = _errors(batch, value, final_value, gamma)
    above = _summed((rho * delta) * batch["valid"], c * onward)  # v - V
    gain = rho * delta
    gain[:, :-1] += (rho * onward)[:, :-1] * above[:, 1:]
    return gain.astype(np.float32), (above + value[:, :-1]).astype(np.float32)


def _errors(
    batch: Arrays, value: Floats, final_value: Floats | None, gamma: float
) -> tuple[Floats, Floats]:
    """TD errors, and `gamma` where the next step belongs to the same episode, 0 elsewhere."""
    ended = batch["terminated"] | batch["truncated"]
    following = value[:, 1:]
    if final_value is not None:
        following = np.where(batch["truncated"], final_value, following)
    delta = batch["reward"] + gamma * following * ~batch["terminated"] - value[:, :-1]
    onward = gamma * (~ended).astype(np.float32)
    onward[:, :-1] *= batch["valid"][:, 1:]
    return delta, onward


def _summed(errors: Floats, through: Floats) -> Floats:
    """What is in `errors` [n, T, E], with `through` times the same of the step after; in place."""
    for t in range(errors.shape[1] - 2, -1, -1):
        errors[:, t] += through[:, t] * errors[:, t + 1]
    return errors


def equal_share(batch: int, n_actors: int, advice: str = "") -> int:
    """Rollouts of each actor in a synchronous batch."""
    if batch % n_actors:
        raise TianJiError(
            f"hyp.batch_size: {count_of(batch, 'rollout')} per update cannot come in equal shares "
            f"from {n_actors} actors: use a multiple of {n_actors}{advice}"
        )
    return batch // n_actors


def other_default(kind: type[Any], name: str, default: Any) -> Any:
    """A key of another algorithm's `Hyp` with a default of one's own."""
    return dataclasses.field(default=default, metadata=kind.__dataclass_fields__[name].metadata)


def one_choice(task: Task, name: str) -> int:
    """The number of actions; raises where an action is no single choice."""
    if task.env.n_actions is None:
        raise TianJiError(
            f"{name} needs a discrete action space; this environment's actions are "
            f"{_in_words(task.env)}: use {_instead(task.env)}"
        )
    return task.env.n_actions


def _in_words(env: EnvSpec) -> str:
    """As in `one of 3 choices`, `vectors of 2 choices` or `vectors of 6 numbers`."""
    if env.n_actions is not None:
        return f"one of {count_of(env.n_actions, 'choice')}"
    if env.choices is not None:
        return f"vectors of {count_of(len(env.choices), 'choice')}"
    shape = env.action.shape[1:] if env.agents else env.action.shape
    return f"vectors of {count_of(int(np.prod(shape, dtype=int)), 'number')}"


def _instead(env: EnvSpec) -> str:
    """What takes such actions."""
    instead = "agent = dict(type='PPO', ...)"
    return instead if env.choices is not None else f"{instead}, or type='SAC' or 'TD3'"


def vector_actions(task: Task, name: str) -> int:
    """How many numbers an action has; raises where it is a choice."""
    if task.env.choices is None:
        return int(np.prod(task.env.action.shape, dtype=int))
    instead = "agent = dict(type='PPO', ...)"
    if task.env.n_actions is not None:
        instead += ", or type='DQN'"
    raise TianJiError(
        f"{name} needs actions that are vectors of numbers; this environment's actions are "
        f"{_in_words(task.env)}: use {instead}"
    )
