"""A torch network that acts: no gradients, its own copy of the weights, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tianji.models.cnn import CNN
from tianji.models.device import device_for
from tianji.models.flat import fill
from tianji.models.layout import Floats, Network
from tianji.models.precision import Precision, for_acting


class ModuleForward:
    """The forward pass of any `Network` in torch; convolutions in the fastest number format."""

    def __init__(self, network: Network, device: str) -> None:
        self.flat = np.zeros(network.n_weights, np.float32)
        self.device = device_for(device, "actor_cfg.device")
        module = network.module(torch.Generator().manual_seed(0))
        self._module = module.to(self.device).requires_grad_(False)
        if isinstance(self._module, CNN):
            self._use(self._module, for_acting(self._module, self.device))

    def load(self, flat: Floats) -> None:
        """Copies a flat vector of weights."""
        self.flat[...] = flat
        with torch.inference_mode():
            fill(self._module.parameters(), torch.from_numpy(self.flat))

    def __call__(self, inputs: npt.NDArray[Any] | torch.Tensor) -> Floats:
        """Outputs [B, n_outputs] for inputs [B, ...], which may lie on the device already."""
        with torch.inference_mode():
            if not isinstance(inputs, torch.Tensor):
                inputs = torch.from_numpy(inputs).to(self.device)
            outputs = self._module(inputs)
            found: Floats = outputs.float().cpu().numpy()
        return found

    def _use(self, network: CNN, precision: Precision) -> None:
        """Turns the weights into the format: autocast would do so at every call."""
        network.precision = precision
        if precision.bf16:
            network.convs.bfloat16()
            network.dense.bfloat16()
        if precision.channels_last:
            network.convs.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
