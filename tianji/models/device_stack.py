"""Stacks of frames that a policy keeps where its network computes: every frame is uploaded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.env import BoolArray, EnvSpec
from tianji.core.frames import stacked_shape
from tianji.core.lazy import torch
from tianji.core.state import State
from tianji.models.normaliser import LIMIT, Normaliser


class DeviceStack:
    """The newest frames of every environment on a device, and what they are normalised with.

    What a `FrameStack` and a `Normaliser` give, in the same numbers; one frame of each environment
    crosses to the device per step, as it comes, and not `stack` of them in float32.
    """

    def __init__(self, spec: EnvSpec, device: str) -> None:
        self._k, self._device = spec.stack, device
        self._seen: torch.Tensor | None = None  # [E, k, ...], oldest first
        self._spare: torch.Tensor | None = None  # what the one before lies in
        self._numbers: tuple[torch.Tensor, torch.Tensor] | None = None

    def normalise_with(self, normaliser: Normaliser) -> None:
        """Copies mean and scale; they are used until the next call."""
        numbers = torch.from_numpy(normaliser.mean), torch.from_numpy(normaliser.scale)
        self._numbers = numbers[0].to(self._device), numbers[1].to(self._device)

    def see(self, frames: npt.NDArray[Any], first: BoolArray) -> torch.Tensor:
        """The stacks [E, k, H, W] that end with `frames` [E, H, W], oldest frame first, normalised.

        Frames [E, C, H, W] give stacks [E, k * C, H, W].
        """
        newest = torch.from_numpy(np.ascontiguousarray(frames)).to(self._device)
        seen, spare = self._seen, self._spare
        if seen is None or spare is None or len(seen) != len(newest):
            seen = newest[:, None].repeat_interleave(self._k, 1)
            spare = torch.empty_like(seen)
        spare[:, :-1], spare[:, -1] = seen[:, 1:], newest
        begun = np.flatnonzero(first)
        if len(begun):
            rows = torch.from_numpy(begun).to(self._device)
            spare[rows] = newest[rows][:, None].expand(-1, self._k, *newest.shape[1:])
        self._seen, self._spare = spare, seen
        stacks = spare.view(len(newest), *stacked_shape(self._k, tuple(newest.shape[1:])))
        if self._numbers is None:
            return stacks
        mean, scale = self._numbers
        return torch.sub(stacks, mean).mul_(scale).clamp_(-LIMIT, LIMIT)

    def state(self) -> State:
        """The frames that were seen."""
        return {"seen": None if self._seen is None else self._seen.cpu().numpy()}

    def restore(self, state: State) -> None:
        """Goes on after the same frames."""
        seen = state["seen"]
        if seen is None:
            self._seen = self._spare = None
        else:
            self._seen = torch.tensor(seen, device=self._device)
            self._spare = torch.empty_like(self._seen)
