"""What an algorithm is: one class in one file, with an acting half and a learning half."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tianji.core.env import BoolArray, EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays, Field
from tianji.core.state import State
from tianji.core.store import Sampling

Weights = npt.NDArray[np.float32]
"""What travels from a learner to its actors: one flat vector."""


Scalars = dict[str, Any]
"""What `learn` returns by name: numbers, or tensors of one number."""


@dataclass(frozen=True)
class Saved:
    """Weights and what is known of them."""

    weights: Weights
    version: int  # updates behind them
    env_steps: int | None = None  # that had been made by then
    score: float | None = None  # mean return of the evaluation that they were kept for
    win_ratio: float | None = None  # of the same, where anybody can win


@dataclass(frozen=True)
class Task:
    """Everything that an algorithm may know about the job it is made for."""

    env: EnvSpec
    model: Any  # the section `model` of the config
    hyp: Any  # an instance of the algorithm's own `Hyp`
    n_actors: int = 1  # in a group
    n_learners: int = 1  # that each learn from a part of every batch
    device: str = "auto"  # where policies compute: `actor_cfg.device`
    own_network: type | None = None  # the class that `model.type` names as `module:Class`


@dataclass(frozen=True)
class PolicyGraph:
    """A policy without exploration, for other programs: what `tianji export` writes."""

    model: bytes  # ONNX: `obs` float32 [batch, ...] in; `action` and one output more out
    scores: Callable[..., npt.NDArray[np.float32]]  # obs -> the other, without ONNX
    inputs: tuple[str, ...] = ("obs",)  # of several agents also `mask`, `memory` and `first`


class Policy(Protocol):
    """The acting half: observations in, actions out.

    Optionally it has `state` and `restore` as well (see `core/state.py`): its random stream, how
    far its exploration has come, and its weights. Without them a resumed actor loads the newest
    weights and begins its streams and schedules anew. Where the state has `steps`, the policy's own
    so far, one that replaces it goes on with that number of them.
    """

    def act(self, obs: Arrays, first: BoolArray, explore: bool = True) -> Arrays:
        """`action` [E, ...] and what `Algorithm.fields` names, for what is observed [E, ...].

        `first` says in which environments an episode begins here: a policy that remembers forgets
        there.
        """

    def load(self, weights: Weights, version: int) -> None:
        """Copies the weights that a learner published."""


class Algorithm(ABC):
    """The learning half, made in the learner's process; any process calls the class methods.

    A learner uses it so:

        algorithm = MyAlgorithm(task, seed=0)
        scalars = algorithm.learn(batch)            # one update; the version grows by one
        outbox.push({"weights": algorithm.weights()}, version)
    """

    Hyp: ClassVar[type]  # a frozen dataclass: the keys of the config's `hyp`, with their defaults
    scalars: ClassVar[tuple[str, ...]] = ("loss",)  # the names of what `learn` returns
    overlaps: bool = False  # `learn` returns while a device still computes: see `stage`
    several_agents: ClassVar[bool] = False  # it learns where an environment has an axis of agents
    masks: ClassVar[bool] = False  # it chooses only what a single agent's `mask` says is possible

    def __init__(self, task: Task, seed: int, device: str = "cpu") -> None:
        self.task = task

    @classmethod
    def fields(cls, task: Task) -> tuple[Field, ...]:
        """What `act` returns besides `action` and the learner needs, per step and environment.

        A field called `memory` is kept once per trajectory, as it was before its first step.
        """
        return ()

    @classmethod
    def rollout_length(cls, task: Task) -> int | None:
        """Steps per trajectory (T); None leaves it to `actor_cfg.send_size`."""
        return None

    @classmethod
    def alternates(cls, hyp: Any, n_actors: int) -> bool:
        """Whether acting and learning take turns, so that they may be given the same cores."""
        return False

    @classmethod
    def correction(cls, task: Task) -> str | None:
        """What makes up for the age of samples, by its name; None: nothing does."""
        return None

    @classmethod
    @abstractmethod
    def policy(cls, task: Task, actor: int, seed: int) -> Policy:
        """The policy of actor number `actor`; must not need the learning half."""

    @classmethod
    @abstractmethod
    def sampling(cls, task: Task) -> Sampling:
        """How the buffer makes batches out of trajectories."""

    @classmethod
    @abstractmethod
    def n_weights(cls, task: Task) -> int:
        """Length of the vector that `weights` returns."""

    @classmethod
    def exported(cls, task: Task, weights: Weights) -> PolicyGraph:
        """The policy with these weights as an ONNX graph; optional, see docs/export.md."""
        raise TianJiError(
            f"{cls.__name__} does not say how its policy is exported: define its class method "
            "exported(task, weights) with tianji.exported(network, ...), or tianji.traced(module, "
            "...) for any torch module"
        )

    @classmethod
    def n_parameters(cls, task: Task) -> int:
        """Length of the vector that `parameters` returns, and of those that `updates` yields."""
        return cls.n_weights(task)

    def stage(self, batch: Arrays) -> Any:
        """Takes a batch out of its channel: what it returns is given to `learn` or `updates`.

        An algorithm that computes on a GPU begins to copy here. If it `overlaps`, it is given the
        next batch, where one waits, before anybody looks at what the last `learn` came to. By
        default the arrays themselves.
        """
        return batch

    def learn(self, batch: Any) -> Scalars:
        """One update from one batch; returns the `scalars` to log, as numbers or as tensors.

        A tensor is read when somebody wants to see it, so that a GPU need not be waited for. If
        its sampling `reweighs`, `priorities` are returned with them, one for each sample. Defined
        here for an algorithm that has `updates`; another defines this one instead.
        """
        update = self.updates(batch)
        while True:
            try:
                next(update)  # alone, what it yields is the mean of all
            except StopIteration as end:
                return dict(end.value)

    def updates(self, batch: Any) -> Generator[Weights, None, Scalars]:
        """One update that several learners can make together, each from a part of the batch.

        It yields float32 vectors [n_parameters] in the CPU's memory, which are averaged in place:
        when it goes on, the mean over all learners lies in the same array. Before every step of the
        optimiser that is its gradient; PPO yields other sums before its first. Returns what `learn`
        returns. All learners must yield equally often, whatever their parts hold, and nothing may
        be changed before the first yield.
        """
        raise NotImplementedError(f"{type(self).__name__} has no updates")

    def n_left_out(self) -> int | None:
        """Steps that were not made so far, for a loss or gradient with NaN or Inf.

        None: nobody looks at gradients. Then a scalar that is NaN or Inf ends the run; otherwise
        such an update is counted as skipped, and several in a row end it.
        """
        return None

    @classmethod
    def shares_updates(cls) -> bool:
        """Whether several learners can make an update together."""
        return cls.updates is not Algorithm.updates

    @abstractmethod
    def weights(self) -> Weights:
        """What the policy needs, flat; a view is fine, the channel copies it."""

    @abstractmethod
    def load(self, weights: Weights) -> None:
        """The inverse of `weights`."""

    def parameters(self) -> Weights:
        """Everything that is learned, flat: what groups average. By default the weights alone."""
        return self.weights()

    def shift(self, delta: Weights) -> None:
        """Adds `delta` to `parameters`; what else there is, as a target network, stays."""
        self.load(self.weights() + delta)

    def log_probabilities(self, batch: Arrays) -> npt.NDArray[np.float32] | None:
        """Of some of a batch's actions, under the policy as it stands; the same ones every time.

        So a learner sees how far a fusion with other groups moves its policy. None: actions have
        no probabilities, or nobody computes them.
        """
        return None

    def state(self) -> State:
        """What a checkpoint keeps; by default the weights alone.

        Then a resumed run has lost the optimiser's moments, target networks, schedules, the random
        streams, and whatever else `weights` leaves out. An algorithm that overrides this and
        `restore` goes on as if it had never stopped.
        """
        return {"weights": self.weights().copy()}

    def restore(self, state: State) -> None:
        """The inverse of `state`, on an algorithm made for the same task."""
        self.load(np.array(state["weights"]))  # a copy: what was saved may be read-only


def learning_rate(first: float, final: float, decay: int | None, updates: int) -> float:
    """Falls in a line from `first` to `final` over `decay` updates; constant without `decay`."""
    if decay is None:
        return first
    return first + (final - first) * min(1.0, updates / decay)
