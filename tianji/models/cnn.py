"""Convolutions over stacked frames, in the number format that this machine computes fastest."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from tianji.models.layout import CNNLayout
from tianji.models.mlp import duelling
from tianji.models.precision import Precision


class CNN(nn.Module):
    """The network that `CNNLayout` describes, its parameters in the same order.

    Its body may compute in bfloat16 (`precision`); the last layer and all weights are float32.
    """

    def __init__(self, layout: CNNLayout) -> None:
        super().__init__()
        self.layout = layout
        self.precision = Precision()
        self.convs, self.dense = nn.ModuleList(), nn.ModuleList()
        channels, size = layout.input_shape[0], layout.n_features
        for out, kernel, stride in layout.convs:
            norms = [nn.GroupNorm(1, out)] if layout.norm_convs else []
            self.convs.append(nn.Sequential(nn.Conv2d(channels, out, kernel, stride), *norms))
            channels = out
        for out in layout.hidden:
            norm = [nn.LayerNorm(out)] if layout.norm else []
            self.dense.append(nn.Sequential(nn.Linear(size, out), *norm))
            size = out
        self.last = nn.Linear(size, layout.n_outputs + layout.atoms * layout.dueling)
        self._act = torch.relu if layout.act == "relu" else torch.tanh

    def start(self, generator: torch.Generator, last_gain: float | None) -> CNN:
        """Draws first weights: orthogonal with `last_gain`, else uniform as torch's layers do."""
        for layer in self.modules():
            if not isinstance(layer, nn.Conv2d | nn.Linear):
                continue
            weight, bias = layer.weight, layer.bias
            assert bias is not None
            if last_gain is None:
                bound = 1 / math.sqrt(weight[0].numel())
                nn.init.uniform_(weight, -bound, bound, generator=generator)
                nn.init.uniform_(bias, -bound, bound, generator=generator)
                continue
            inner = math.sqrt(2) if self.layout.act == "relu" else 5 / 3
            gain = last_gain if layer is self.last else inner
            nn.init.orthogonal_(weight, gain, generator=generator)
            nn.init.zeros_(bias)
        return self

    def prepared(self, frames: Tensor) -> Tensor:
        """Frames as the first layer reads them; what is prepared already is passed through."""
        x = frames.to(self.precision.dtype, memory_format=self.precision.memory_format)
        return x * (1 / 255) if frames.dtype == torch.uint8 else x

    def forward(self, frames: Tensor) -> Tensor:
        """Outputs [B, n_outputs] for frames [B, C, H, W]; uint8 counts as 0 to 1."""
        kind, own = self.precision.dtype, self.last.weight.dtype
        with torch.autocast(frames.device.type, kind, enabled=kind != own):
            x = self.prepared(frames)
            for conv in self.convs:
                x = self._act(conv(x))
            x = x.flatten(1)
            for layer in self.dense:
                x = self._act(layer(x))
        x = self.last(x.to(own))
        return duelling(x, self.layout.atoms) if self.layout.dueling else x
