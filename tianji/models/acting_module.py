"""A torch network that acts: no gradients, its own copy of the weights, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tianji.models.cnn import CNN
from tianji.models.device import device_for
from tianji.models.layout import Floats, Network
from tianji.models.precision import choose


class ModuleForward:
    """The forward pass of any `Network` in torch; convolutions in the fastest number format."""

    def __init__(self, network: Network, device: str) -> None:
        self.flat = np.zeros(network.n_weights, np.float32)
        self._device = device_for("cpu" if device == "auto" else device, "actor_cfg.device")
        module = network.module(torch.Generator().manual_seed(0))
        self._module = module.to(self._device).requires_grad_(False)
        self._chosen = not isinstance(module, CNN)

    def load(self, flat: Floats) -> None:
        """Copies a flat vector of weights."""
        self.flat[...] = flat
        start, weights = 0, torch.from_numpy(self.flat)
        with torch.inference_mode():
            for parameter in self._module.parameters():
                stop = start + parameter.numel()
                parameter.copy_(weights[start:stop].view_as(parameter))
                start = stop

    def __call__(self, inputs: npt.NDArray[Any]) -> Floats:
        """Outputs [B, n_outputs] for inputs [B, ...]."""
        if not self._chosen:
            self._choose(len(inputs))
        with torch.inference_mode():
            outputs = self._module(torch.from_numpy(inputs).to(self._device))
            found: Floats = outputs.float().cpu().numpy()
        return found

    def _choose(self, batch: int) -> None:
        """Decides how to compute, once it is known how many environments act together."""
        assert isinstance(self._module, CNN)
        self._chosen, self._module.precision = True, choose(self._module, batch, learns=False)
        if self._module.precision.bf16:  # autocast would turn the weights around at every call
            self._module.convs.bfloat16()
            self._module.dense.bfloat16()
        if self._module.precision.channels_last:
            self._module.convs.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
