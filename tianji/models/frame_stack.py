"""Stacks of frames: as a policy sees them, and out of rollouts that hold every frame once.

    self._frames = FrameStack(task.env)                       # in a policy
    x = self._frames.see(obs["obs"], first)                   # [E, k, H, W], oldest first

    places = RolloutPlaces(batch)                             # in a learner, numpy only
    x = stacks(frames, places.rows(picked))                   # [n, k, H, W] on the device

`picked` are the rows of `valid` flattened: index ((n * T) + t) * E + e.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.env import BoolArray, EnvSpec
from tianji.core.frames import BEFORE, FIRST, places_of, stacked_shape
from tianji.core.lazy import torch
from tianji.core.schema import Arrays
from tianji.core.state import State

Frames = npt.NDArray[Any]
Index = npt.NDArray[np.int64]


class FrameStack:
    """The newest frames of every environment; with a stack of 1 they pass through."""

    def __init__(self, spec: EnvSpec) -> None:
        self._k = spec.stack
        self._seen: Frames | None = None  # [E, k, ...], oldest first
        self._spare: Frames | None = None  # what the one before lies in

    def see(self, frames: Frames, first: BoolArray) -> Frames:
        """The stacks [E, k, H, W] that end with `frames` [E, H, W], oldest frame first.

        The array is written anew by the call after the next one. Frames [E, C, H, W] give stacks
        [E, k * C, H, W].
        """
        if self._k == 1:
            return frames
        seen, spare = self._seen, self._spare
        if seen is None or spare is None or len(seen) != len(frames):
            seen = np.empty((len(frames), self._k, *frames.shape[1:]), frames.dtype)
            spare, first = np.empty_like(seen), np.ones(len(frames), np.bool_)
        spare[:, :-1] = seen[:, 1:]
        spare[:, -1] = frames
        begun = np.flatnonzero(first)
        spare[begun, :-1] = frames[begun, None]
        self._seen, self._spare = spare, seen
        return spare.reshape(len(frames), *stacked_shape(self._k, frames.shape[1:]))

    def state(self) -> State:
        """The frames that were seen."""
        return {"seen": self._seen}

    def restore(self, state: State) -> None:
        """Goes on after the same frames."""
        seen = state["seen"]
        self._seen = None if seen is None else np.array(seen)
        self._spare = None if seen is None else np.array(seen)


class RolloutPlaces:
    """Where the frames of every stack of a batch of rollouts lie, among the batch's frames.

    These are `before` and `obs` one behind the other in time, and then the last observations.

    Each answer is an array [n, k] of indices into the first axis, oldest frame first.
    """

    def __init__(self, batch: Arrays) -> None:
        first = batch[FIRST]
        n, rows, n_envs = first.shape
        self._k = batch[BEFORE].shape[1] + 1
        place = places_of(first, self._k)
        at = np.arange(n)[:, None, None, None] * (rows + self._k - 1) + place
        self._of = at * n_envs + np.arange(n_envs)[:, None]  # [N, T+1, E, k]
        self._finals = n * (rows + self._k - 1) * n_envs  # where the last observations begin

    def all(self) -> Index:
        """Of all T+1 rows, in the order [N, T+1, E]: what values are needed of."""
        places: Index = self._of.reshape(-1, self._k)
        return places

    def rows(self, picked: Index) -> Index:
        """Of rows of the flattened [N, T, E], where actions were taken."""
        places: Index = self._of[:, :-1].reshape(-1, self._k)[picked]
        return places

    def finals(self) -> Index:
        """Of `final_obs`, in the order [N, T, E], where environments reset within the step."""
        older = self._of[:, :-1, :, 1:].reshape(-1, self._k - 1)
        return np.column_stack((older, self._finals + np.arange(len(older))))


def stacks(frames: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Stacks [n, k, H, W] of these places, which lie on the same device; one gather."""
    n, k = places.shape
    found = frames.index_select(0, places.reshape(-1))
    return found.reshape(n, *stacked_shape(k, tuple(frames.shape[1:])))
