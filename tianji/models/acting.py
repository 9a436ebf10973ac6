"""From what an environment shows through a network: what all policies begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tianji.core.algorithm import Task, Weights
from tianji.core.env import BoolArray, EnvSpec
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.core.state import State
from tianji.models.frame_stack import FrameStack
from tianji.models.layout import Floats, Forward, Network
from tianji.models.normaliser import Normaliser

if TYPE_CHECKING:
    from tianji.models.device_stack import DeviceStack


class Acting:
    """What all policies begin with: inputs put together and normalised, then the network.

    Weights are the network's, then `n_more` numbers of the policy's own, then those of normalisers.
    """

    def __init__(
        self, task: Task, network: Network, n_more: int = 0, normalise: bool = False
    ) -> None:
        self._gather, self.forward = task.env.gather, network.forward(task.device)
        self._stacks = task.env.stack > 1
        self._frames = _stack_of(task.env, self.forward)
        self._n_network, self._n_more = network.n_weights, n_more
        self.ahead: Floats | None = None  # the next outputs, where others' came with them
        self._borrows = False  # another's network, which that loads
        self.more = np.zeros(n_more, np.float32)
        self._normaliser = Normaliser.of_inputs(task.env) if normalise else None

    def load(self, weights: Weights) -> None:
        """Copies the weights that a learner published."""
        end = self._n_network + self._n_more
        if not self._borrows:
            self.forward.load(weights[: self._n_network])
        self.more[...] = weights[self._n_network : end]
        if self._normaliser is not None:
            numbers = self._normaliser.numbers
            numbers[...] = weights[end : end + len(numbers)]  # others are behind it
            self._normalise_with(self._normaliser)

    def __call__(self, obs: Arrays, first: BoolArray) -> Floats:
        """The network's outputs [E, n] for what is observed."""
        if (ahead := self.ahead) is not None:
            self.ahead = None
            return ahead
        return self.forward(self.inputs(obs, first))

    def inputs(self, obs: Arrays, first: BoolArray) -> Any:
        """What the network reads: an array, or a tensor on the device."""
        inputs: Any = self._frames.see(self._gather(obs), first)
        if self._normaliser is not None and isinstance(self._frames, FrameStack):
            inputs = self._normaliser(inputs)
        return inputs

    def lend(self, others: Sequence[Acting]) -> None:
        """Has others use this network."""
        for other in others:
            other.forward, other._borrows = self.forward, True

    def _normalise_with(self, normaliser: Normaliser) -> None:
        """Stacks on a device are normalised there."""
        if not isinstance(self._frames, FrameStack):
            self._frames.normalise_with(normaliser)

    def state(self) -> State:
        """The weights, and the frames that were seen last."""
        state: State = {"weights": self.forward.flat}
        if self._stacks:
            state["frames"] = self._frames.state()
        if self._n_more:
            state["more"] = self.more
        if self._normaliser is not None:
            state["normaliser"] = self._normaliser.numbers
        return state

    def restore(self, state: State) -> None:
        """Acts on with the weights of another."""
        if not self._borrows:
            self.forward.load(state["weights"])
        if self._stacks:
            self._frames.restore(state["frames"])
        if self._n_more:  # version 0.2 called it by what it was
            self.more[...] = state["more"] if "more" in state else state["log_std"]
        if self._normaliser is not None:
            self._normaliser.numbers[...] = state["normaliser"]
            self._normalise_with(self._normaliser)


def _stack_of(env: EnvSpec, forward: Forward) -> FrameStack | DeviceStack:
    """Where the network computes, if that is torch."""
    device = getattr(forward, "device", None)
    if env.stack == 1 or device is None:
        return FrameStack(env)
    from tianji.models.device_stack import DeviceStack

    return DeviceStack(env, device)


def share_network(policies: Sequence[Any]) -> bool:
    """Has policies use one torch network, so that `look_ahead` may be asked; False if they cannot.

    They can if each begins with an `Acting` called `outputs`. Weights are loaded once for all.
    """
    acting = [policy.outputs for policy in policies if acts_with_others(policy)]
    if not len(acting) == len(policies) > 1:
        return False
    acting[0].lend(acting[1:])
    return True


def acts_with_others(policy: Any) -> bool:
    """Whether its network is torch's, and may act for others in one pass; numpy's gain nothing."""
    outputs = getattr(policy, "outputs", None)
    return isinstance(outputs, Acting) and hasattr(outputs.forward, "device")


def look_ahead(asked: Sequence[tuple[Any, Arrays, BoolArray]]) -> None:
    """Computes in one pass what policies that share a network will be asked for next."""
    acting: list[Acting] = [policy.outputs for policy, _, _ in asked]
    inputs = [each.inputs(o, f) for each, (_, o, f) in zip(acting, asked, strict=True)]
    together = acting[0].forward(_side_by_side(inputs))
    ends = np.cumsum([len(each) for each in inputs])
    for each, part in zip(acting, np.split(together, ends[:-1]), strict=True):
        each.ahead = part


def _side_by_side(inputs: Sequence[Any]) -> Any:
    """Inputs of several policies as those of one, wherever they lie."""
    if len(inputs) == 1:
        return inputs[0]
    if isinstance(inputs[0], np.ndarray):
        return np.concatenate(inputs)
    return torch.cat(list(inputs))
