"""From batches of rollouts to what a network reads: put together, normalised, on the device."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from tianji.core.env import EnvSpec
from tianji.core.frames import BEFORE
from tianji.core.schema import Arrays
from tianji.models.frame_stack import RolloutPlaces, stacks
from tianji.models.layout import Floats
from tianji.models.normaliser import LIMIT, Normaliser
from tianji.models.policies import IMPOSSIBLE
from tianji.models.staging import Stage

CHUNK = 2_048  # pictures that pass through a network at once, where no gradient is wanted
CACHED = 256  # the same on a CPU, whose caches are small
KEPT_BYTES = 512 * 2**20  # most that a batch's stacks may take as the network reads them


class Valuing(Protocol):
    """What says how much a state is worth, as an `ActorCritic` does."""

    def __call__(self, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The policy's outputs [B, n] and the values [B]."""

    def values(self, inputs: torch.Tensor) -> torch.Tensor:
        """The values [B] alone."""

    def prepared(self, inputs: torch.Tensor) -> torch.Tensor:
        """Inputs in the number format and order in which the networks begin to compute."""


class RolloutInputs:
    """The observations of a batch [n, T+1, E, ...], normalised when they are read.

    Stacks of frames are put together and prepared when all of them pass `through` the networks, and
    kept for the epochs that follow, unless they take more than `KEPT_BYTES`.
    """

    def __init__(
        self, env: EnvSpec, batch: Arrays, stage: Stage, normaliser: Normaliser | None
    ) -> None:
        self._env = env
        seen = {"obs": env.gather(batch)}
        if env.same_step:
            seen["final"] = env.gather(batch, "final_")
        if env.stack > 1:
            seen["before"] = batch[BEFORE]
        if env.masked:
            seen["mask"] = batch["mask"][:, :-1]
        staged = stage(seen)
        self._mask = staged["mask"].flatten(0, 2) if env.masked else None
        self._n, length, self._n_envs = staged["obs"].shape[:3]
        self._length = length - 1
        self._places = None if env.stack == 1 else RolloutPlaces(batch)
        self._final = staged["final"].flatten(0, 2) if env.same_step else None
        if self._places is None:
            self._all = staged["obs"].flatten(0, 2)
            self._acted_on = staged["obs"][:, :-1].flatten(0, 2)
        else:
            frames = torch.cat([staged["before"], staged["obs"]], 1).flatten(0, 2)
            final = self._final
            self._frames = frames if final is None else torch.cat([frames, final])
        self._mean = self._scale = None
        if normaliser is not None:
            device = staged["obs"].device
            self._mean = torch.from_numpy(normaliser.mean.copy()).to(device)
            self._scale = torch.from_numpy(np.asarray(normaliser.scale)).to(device)
        self._kept: _Kept | None = None

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """The inputs of these of the n * T * E steps."""
        if self._places is None:
            return self._normalised(self._acted_on[rows])
        if self._kept is not None:
            return self._kept(rows + rows // (self._length * self._n_envs) * self._n_envs)
        return self._stacked(self._places.rows(rows.cpu().numpy()))

    def possible(self, out: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """The logits of these steps, without those of actions that could not be taken."""
        return out if self._mask is None else out.masked_fill(~self._mask[rows], IMPOSSIBLE)

    def at(self, rows: torch.Tensor) -> torch.Tensor:
        """The inputs of these of the n * (T+1) * E observations."""
        if self._places is None:
            return self._normalised(self._all[rows.to(self._all.device)])
        return self._stacked(self._places.all()[rows.cpu().numpy()])

    def _stacked(self, places: npt.NDArray[np.int64]) -> torch.Tensor:
        """Stacks of frames at these places, put together on the device."""
        return self._normalised(
            stacks(self._frames, torch.from_numpy(places).to(self._frames.device))
        )

    def _parts(self) -> Iterator[torch.Tensor]:
        """The inputs of all n * (T+1) * E observations, not too many at once."""
        if self._places is not None:
            places = self._places.all()
            most = CACHED if self._frames.device.type == "cpu" else CHUNK
            for part in np.array_split(places, -(-len(places) // most)):
                yield self._stacked(part)
            return
        n_parts = -(-len(self._all) // CHUNK) if self._all.dtype == torch.uint8 else 1
        for inputs in self._all.tensor_split(n_parts):
            yield self._normalised(inputs)

    def _normalised(self, inputs: torch.Tensor) -> torch.Tensor:
        if self._mean is None or self._scale is None:
            return inputs
        return torch.sub(inputs, self._mean).mul_(self._scale).clamp_(-LIMIT, LIMIT)

    @torch.no_grad()
    def through(self, networks: Valuing, with_policy: bool) -> tuple[torch.Tensor | None, Floats]:
        """The policy's outputs for every step, if wanted, and the values [n, T+1, E] on the CPU."""
        shape = (self._n, self._length + 1, self._n_envs)
        outs, values = [], []
        kept = None if self._places is None else _Kept(math.prod(shape))
        for inputs in self._parts():
            part = networks.prepared(inputs)
            if kept is not None and not kept.add(part):
                kept = None
            if with_policy:
                out, value = networks(part)
                outs.append(out)
            else:
                value = networks.values(part)
            values.append(value)
        self._kept = kept
        found: Floats = torch.cat(values).view(shape).cpu().numpy()
        if not with_policy:
            return None, found
        policy = torch.cat(outs)
        return policy.view(*shape, -1)[:, :-1].flatten(0, 2), found

    @torch.no_grad()
    def final(self, networks: Valuing) -> Floats | None:
        """Values of last observations, where the environment resets within the step that ended."""
        if self._final is None:
            return None
        if self._places is not None:
            inputs = self._stacked(self._places.finals())
        else:
            inputs = self._normalised(self._final)
        shape = (self._n, self._length, self._n_envs)
        value: Floats = networks.values(inputs).view(shape).cpu().numpy()
        return value

    def numpy(self, batch: Arrays) -> npt.NDArray[Any]:
        """The inputs of all valid steps, for a normaliser's sums."""
        inputs = self._env.gather(batch)[:, :-1]
        return inputs[batch["valid"]]


class _Kept:
    """Pictures [n, C, H, W] as rows of memory, however their channels lie in it."""

    def __init__(self, n: int) -> None:
        self._n, self._filled = n, 0
        self._rows: torch.Tensor | None = None
        self._shape: tuple[int, ...] = ()
        self._last = False  # whether channels come last

    def add(self, pictures: torch.Tensor) -> bool:
        """Copies some behind those that there are; False if all of them would take too much."""
        if self._rows is None:
            size = pictures[0].numel()
            if self._n * size * pictures.element_size() > KEPT_BYTES:
                return False
            self._last = not pictures.is_contiguous()
            self._rows = pictures.new_empty(self._n, size)
        lying = pictures.permute(0, 2, 3, 1) if self._last else pictures
        self._shape = tuple(lying.shape[1:])
        end = self._filled + len(pictures)
        self._rows[self._filled : end] = lying.flatten(1)
        self._filled = end
        return True

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Those of these rows, as they were added."""
        assert self._rows is not None
        found = self._rows.index_select(0, rows).view(-1, *self._shape)
        return found.permute(0, 3, 1, 2) if self._last else found
