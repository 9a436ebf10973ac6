"""QMIX's mixer: the value of a team, which grows with that of each agent (Rashid et al. 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tianji.core.lazy import torch


@dataclass(frozen=True)
class MixerLayout:
    """Sizes of a mixer: hyper-networks make its weights out of the global state."""

    n_agents: int
    n_state: int
    units: int  # between the agents' values and the team's
    hyper_units: int  # between the state and the weights

    @property
    def outputs(self) -> tuple[int, int, int]:
        """What the hyper-networks make: the two layers' weights, and the state's own value."""
        return self.n_agents * self.units, self.units, 1

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Weights and biases: three hyper-networks of two layers, and the first layer's bias."""
        shapes: list[tuple[int, ...]] = []
        for n in self.outputs:
            shapes += [(self.hyper_units, self.n_state), (self.hyper_units,)]
            shapes += [(n, self.hyper_units), (n,)]
        return [*shapes, (self.units, self.n_state), (self.units,)]

    @property
    def n_weights(self) -> int:
        """Numbers that are learned."""
        return sum(math.prod(shape) for shape in self.shapes)


class Mixer:
    """Mixes agents' values with weights that are never negative, so that all want the same.

    `scale` makes the first weights of every hyper-network's last layer smaller: with a large one
    the team's value is at first a random function of the state, and drowns what the agents do.
    """

    def __init__(self, layout: MixerLayout, generator: torch.Generator, scale: float) -> None:
        self.layout = layout
        self.parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in layout.shapes]
        for i, weight in enumerate(self.parameters):
            bound = 1 / math.sqrt(self.parameters[i - i % 2].shape[1])
            is_last = i % 4 >= 2 or i >= 12
            bound *= scale if is_last else 1.0
            weight.data.uniform_(-bound, bound, generator=generator)

    def __call__(self, values: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """The team's value [...] of the agents' [..., A] in a state [..., S]."""
        first, second, own = (self._made(i, state) for i in range(3))
        weight, bias = self.parameters[12:]
        layer = first.abs().view(*first.shape[:-1], self.layout.n_agents, self.layout.units)
        between = (values[..., None] * layer).sum(-2)
        between = between + torch.nn.functional.linear(state, weight, bias)
        return (torch.nn.functional.elu(between) * second.abs()).sum(-1) + own.squeeze(-1)

    def _made(self, i: int, state: torch.Tensor) -> torch.Tensor:
        """What hyper-network i makes of a state."""
        linear, (w1, b1, w2, b2) = torch.nn.functional.linear, self.parameters[4 * i : 4 * i + 4]
        return linear(torch.relu(linear(state, w1, b1)), w2, b2)
