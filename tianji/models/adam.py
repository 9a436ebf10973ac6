"""Adam on one flat tensor, without what `torch.optim` loads.

Making a `torch.optim.Adam` imports torch's compiler, a second of start-up that a training run of a
few seconds feels. The arithmetic is torch's own fused kernel, the same that
`torch.optim.Adam(fused=True)` calls.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tianji.core.state import State
from tianji.models.tensors import array_of, copy_into


class Adam:
    """Kingma and Ba's optimiser for one vector and its gradient."""

    def __init__(
        self,
        vector: Tensor,
        gradient: Tensor,
        lr: float,
        eps: float = 1e-8,
    ) -> None:
        self.lr = lr
        self._eps = eps
        self._vector = vector.detach()
        self._gradient = gradient
        self.mean = torch.zeros_like(self._vector)
        self.square = torch.zeros_like(self._vector)
        self.count = torch.zeros((), device=vector.device)

    @torch.no_grad()
    def step(self) -> None:
        """Moves the vector against its gradient."""
        self.count += 1
        torch._fused_adam_(
            [self._vector],
            [self._gradient],
            [self.mean],
            [self.square],
            [],
            [self.count],
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
        )

    def state(self) -> State:
        """Both moments and the number of steps; the learning rate is the algorithm's to say."""
        return {
            "mean": array_of(self.mean),
            "square": array_of(self.square),
            "count": float(self.count),
        }

    def restore(self, state: State) -> None:
        """Goes on from the moments of another run."""
        copy_into(self.mean, state["mean"], "optimiser mean")
        copy_into(self.square, state["square"], "optimiser square")
        self.count.fill_(state["count"])
