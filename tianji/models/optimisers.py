"""Optimisers of one flat vector, without what `torch.optim` loads.

Making a `torch.optim.Adam` imports torch's compiler, a second of start-up that a training run of a
few seconds feels. Adam's arithmetic is torch's own fused kernel, the same that
`torch.optim.Adam(fused=True)` calls.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from tianji.core.state import State
from tianji.models.flat import FlatParameters, Part
from tianji.models.tensors import array_of, copy_into


class FiniteGradients:
    """Says before every step whether its gradient is finite; counts those that are not.

    On a GPU the answer is a tensor, so that nobody waits for it and a CUDA graph can hold it. On
    the CPU the look takes a twelfth of a step of Adam: one product, which is finite only where all
    numbers are. Numbers beyond 1e18 count as infinite.
    """

    def __init__(self, gradient: torch.Tensor) -> None:
        self._gradient = gradient
        self._array = gradient.numpy() if gradient.device.type == "cpu" else None
        self._left_out = torch.zeros((), device=gradient.device)

    def look(self) -> bool | torch.Tensor:
        """Whether a step may be made; of a GPU, what is 0 where it may be made, else 1."""
        if self._array is not None:
            sound = math.isfinite(self._array.dot(self._array))
            if not sound:
                self._left_out += 1
            return sound
        bad = (~torch.isfinite(self._gradient.square().sum())).float()
        self._left_out += bad
        return bad

    @property
    def n_left_out(self) -> int:
        """Steps that were not made; waits for a GPU."""
        return int(self._left_out)


class Adam:
    """Kingma and Ba's optimiser; `lr` may be set before every step.

    A step whose gradient, or that of the `whole` of which this is a part, has NaN or Inf changes
    nothing and is counted in `n_left_out`.
    """

    def __init__(
        self,
        flat: FlatParameters | Part,
        lr: float,
        eps: float = 1e-8,
        whole: FlatParameters | None = None,
    ) -> None:
        self._sound = FiniteGradients((whole or flat).gradient)
        self._lr, self._eps = lr, eps
        self._vector = flat.vector.detach()
        self._gradient = flat.gradient
        self.mean = torch.zeros_like(self._vector)
        self.square = torch.zeros_like(self._vector)
        self.count = torch.zeros((), device=flat.vector.device)
        self._rate = torch.full((), lr, device=flat.vector.device)  # what a CUDA graph reads

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        if value != self._lr:
            self._lr = value
            self._rate.fill_(value)

    @property
    def n_left_out(self) -> int:
        """Steps that were not made; waits for a GPU."""
        return self._sound.n_left_out

    @torch.no_grad()
    def step(self) -> None:
        """Moves the vector against its gradient."""
        sound = self._sound.look()
        if sound is False:
            return
        bad = None if sound is True else sound
        self.count += 1 if bad is None else 1 - bad
        torch._fused_adam_(
            [self._vector],
            [self._gradient],
            [self.mean],
            [self.square],
            [],
            [self.count],
            lr=self._rate if self._rate.is_cuda else self._lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=0.0,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
            found_inf=bad,
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


class RAdam(Adam):
    """Rectified Adam (Liu et al. 2020): no adaptive steps while their variance is too large."""

    BETA1, BETA2 = 0.9, 0.999
    LONGEST = 2 / (1 - BETA2) - 1  # steps that the moving average of squares comes to

    @torch.no_grad()
    def step(self) -> None:
        """Moves the vector against its gradient."""
        sound = self._sound.look()
        if sound is False:
            return
        if sound is not True:
            self._step_unseen(sound)
            return
        self.count += 1
        self.mean.lerp_(self._gradient, 1 - self.BETA1)
        self.square.mul_(self.BETA2).addcmul_(self._gradient, self._gradient, value=1 - self.BETA2)
        count = float(self.count)
        step, length = self.lr / (1 - self.BETA1**count), self._length(count)
        if length <= 5:
            self._vector.add_(self.mean, alpha=-step)
            return
        spread = self.square.sqrt().add_(self._eps)
        scale = math.sqrt(self._rectified(count, length))
        self._vector.addcdiv_(self.mean, spread, value=-step * scale)

    def _step_unseen(self, bad: torch.Tensor) -> None:
        """The same on a GPU, which nobody waits for; where `bad` is 1 nothing changes."""
        self.count += 1 - bad
        gradient = torch.where(bad > 0, 0.0, self._gradient)
        self.mean.lerp_(gradient, (1 - self.BETA1) * (1 - bad))
        self.square.mul_(torch.where(bad > 0, 1.0, self.BETA2))
        self.square.addcmul_(gradient, gradient, value=1 - self.BETA2)
        count = self.count.double().clamp(min=1)  # of differences of large numbers
        step, length = self._rate / (1 - self.BETA1**count), self._length(count)
        scale = self._rectified(count, length).clamp(min=0).sqrt()
        adapted = self.mean / self.square.sqrt().add_(self._eps) * scale
        move = torch.where(length > 5, adapted, self.mean)
        self._vector.sub_(torch.where(bad > 0, 0.0, move * step))

    def _length(self, count: Any) -> Any:
        """Of the moving average of squares after `count` steps, in steps."""
        decayed = self.BETA2**count
        return self.LONGEST - 2 * count * decayed / (1 - decayed)

    def _rectified(self, count: Any, length: Any) -> Any:
        """What the square of an adaptive step is multiplied with."""
        longest = self.LONGEST
        rectified = (length - 4) * (length - 2) * longest
        rectified /= (longest - 4) * (longest - 2) * length
        return rectified * (1 - self.BETA2**count)


class RMSProp(Adam):
    """Hinton's optimiser, as torch's: the squares decay by `alpha`; no momentum."""

    def __init__(
        self, flat: FlatParameters | Part, lr: float, eps: float = 1e-5, alpha: float = 0.99
    ) -> None:
        super().__init__(flat, lr, eps)
        self._alpha = alpha

    @torch.no_grad()
    def step(self) -> None:
        """Moves the vector against its gradient."""
        sound, gradient = self._sound.look(), self._gradient
        if sound is False:
            return
        if sound is True:
            self.count += 1
            self.square.mul_(self._alpha)
        else:  # nothing is added to a square that does not decay
            self.count += 1 - sound
            gradient = torch.where(sound > 0, 0.0, gradient)
            self.square.mul_(torch.where(sound > 0, 1.0, self._alpha))
        self.square.addcmul_(gradient, gradient, value=1 - self._alpha)
        spread = self.square.sqrt().add_(self._eps)
        self._vector.addcdiv_(gradient, spread, value=-self.lr)
