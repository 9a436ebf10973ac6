"""The network of agents that may remember, in torch: whole sequences at once, and gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tianji.models.recurrent import AgentGroup, AgentsLayout, RecurrentLayout


class AgentNetwork(nn.Module):
    """Dense layers, a GRU if there is one, a linear layer; parameters in the layout's order."""

    def __init__(self, layout: RecurrentLayout) -> None:
        super().__init__()
        self.layout = layout
        self.weights = nn.ParameterList(torch.zeros(shape) for shape in layout.shapes)

    def start(self, generator: torch.Generator, last_gain: float | None = None) -> AgentNetwork:
        """Draws first weights: uniform as torch's own, or orthogonal with biases of 0."""
        n_dense, n_memory = 2 * len(self.layout.hidden), self.layout.n_memory
        last = len(self.weights) - 2
        for i, weight in enumerate(self.weights):
            of_gru = n_dense <= i < last
            if last_gain is None:
                fan_in = n_memory if of_gru else self.weights[i - i % 2].shape[1]
                bound = 1 / math.sqrt(fan_in)
                weight.data.uniform_(-bound, bound, generator=generator)
            elif weight.ndim == 1:
                weight.data.zero_()
            else:
                gain = last_gain if i == last else 1.0 if of_gru else math.sqrt(2)
                parts = weight.data.split(n_memory) if of_gru else [weight.data]
                for part in parts:
                    nn.init.orthogonal_(part, gain, generator)
        return self

    def forward(self, inputs: Tensor, memory: Tensor | None, going: Tensor | None) -> Tensor:
        """Outputs [T, N, n_outputs] for inputs [T, N, n].

        `memory` [N, n_memory] is what was remembered before the first row, and `going` [T, N] is
        1 where the row goes on from the one before, 0 where an episode begins.
        """
        weights, act = [*self.weights], torch.relu if self.layout.act == "relu" else torch.tanh
        linear, x = nn.functional.linear, inputs
        for _ in self.layout.hidden:
            x = act(linear(x, weights.pop(0), weights.pop(0)))
        if self.layout.n_memory:
            w_in, w_memory, b_in, b_memory = (weights.pop(0) for _ in range(4))
            assert memory is not None and going is not None
            gates = linear(x, w_in, b_in)
            x = _Unrolled.apply(gates, memory, going, w_memory, b_memory)  # type: ignore[no-untyped-call]
        return linear(x, *weights)


class AgentsNetworks(nn.Module):
    """The networks of all agents, as the layout groups them."""

    def __init__(
        self, layout: AgentsLayout, generator: torch.Generator, last_gain: float | None = None
    ) -> None:
        super().__init__()
        self._layout = layout
        network = layout.network
        self.networks = nn.ModuleList(network.module(generator, last_gain) for _ in layout.groups)

    def forward(
        self, obs: Tensor, memory: Tensor | None = None, first: Tensor | None = None
    ) -> Tensor:
        """Outputs [B, T, A, n_outputs] for what is seen [B, T, A, ...].

        With a GRU `memory` [B, A, n_memory] was remembered before the first row, and `first`
        [B, T] says where episodes begin.
        """
        batch, length, n_agents = obs.shape[:3]
        seen = floats_of(obs.reshape(batch, length, n_agents, -1).transpose(0, 1))
        going = None
        if first is not None:
            going = (~first).t().float()
        outputs: list[Tensor] = []
        for group, network in zip(self._layout.groups, self.networks, strict=True):
            inputs, n = self._inputs(seen, group), batch * len(group.agents)
            kept = None if memory is None else memory[:, group.index].reshape(n, -1)
            on = None if going is None else going.repeat_interleave(len(group.agents), 1)
            out = network(inputs.reshape(length, n, -1), kept, on)
            outputs.append(out.view(length, batch, len(group.agents), -1))
        if len(outputs) == 1:
            return outputs[0].transpose(0, 1)
        order = [a for group in self._layout.groups for a in group.agents]
        places = torch.tensor(order, device=obs.device).argsort()
        return torch.cat(outputs, 2)[:, :, places].transpose(0, 1)

    def _inputs(self, seen: Tensor, group: AgentGroup) -> Tensor:
        """What the agents of a group see [T, B, A, n], and which of them each is."""
        n_ids = self._layout.network.n_ids
        own: Tensor = seen[:, :, group.index]
        if not n_ids:
            return own
        ids = torch.eye(len(group.agents), n_ids, device=seen.device)
        return torch.cat([own, ids.expand(*own.shape[:2], -1, -1)], 3)


def floats_of(seen: Tensor) -> Tensor:
    """What is seen, as networks read it: bytes from 0 to 1, all else as it is."""
    return seen.float() * (1 / 255) if seen.dtype == torch.uint8 else seen.float()


class _Unrolled(torch.autograd.Function):
    """A GRU over all rows of a sequence in one node of the graph, its backward pass written out.

    On small networks most of the time is spent between torch's operations: of these there are a
    dozen for each row, and the weights' gradients are one product over all rows.
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, memory: Tensor, going: Tensor, weight: Tensor, bias: Tensor
    ) -> Tensor:
        """All memories [T, N, H], for the inputs' part of the gates [T, N, 3H]."""
        length, n, size = len(gates), *memory.shape
        before = gates.new_empty(length, n, size)  # what each row remembers of the past
        both = gates.new_empty(length, n, 2 * size)  # r and z
        old, new = gates.new_empty(length, n, size), gates.new_empty(length, n, size)
        out = gates.new_empty(length, n, size)
        transposed, h = weight.t(), memory
        for t in range(length):
            torch.mul(h, going[t, :, None], out=before[t])
            part = torch.addmm(bias, before[t], transposed)
            torch.add(gates[t, :, : 2 * size], part[:, : 2 * size], out=both[t]).sigmoid_()
            r, z = both[t, :, :size], both[t, :, size:]
            old[t] = part[:, 2 * size :]
            torch.addcmul(gates[t, :, 2 * size :], r, old[t], out=new[t]).tanh_()
            h = torch.lerp(new[t], before[t], z, out=out[t])
        ctx.save_for_backward(before, both, old, new, going, weight)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Of the gates, the first memory, the weight and the bias."""
        before, both, old, new, going, weight = ctx.saved_tensors
        length, n, size = new.shape
        r, z = both[..., :size], both[..., size:]
        # What does not depend on the rows after, for all rows at once.
        to_new, to_z = (1 - z) * (1 - new * new), (before - new) * z * (1 - z)
        to_r = old * r * (1 - r)
        of_gates = new.new_empty(length, n, 3 * size)
        of_part = new.new_empty(length, n, 3 * size)
        following = torch.zeros_like(new[0])
        for t in range(length - 1, -1, -1):
            here = gradient[t] + following
            of_new = here * to_new[t]
            of_gates[t, :, 2 * size :] = of_new
            torch.mul(here, to_z[t], out=of_gates[t, :, size : 2 * size])
            torch.mul(of_new, to_r[t], out=of_gates[t, :, :size])
            of_part[t, :, : 2 * size] = of_gates[t, :, : 2 * size]
            torch.mul(of_new, r[t], out=of_part[t, :, 2 * size :])
            following = torch.addmm(here * z[t], of_part[t], weight)
            following *= going[t, :, None]
        flat = of_part.view(length * n, -1)
        of_weight = flat.t() @ before.view(length * n, -1)
        return of_gates, following, None, of_weight, flat.sum(0)
