"""Running mean and variance of what is observed, kept in numpy so that every role can use them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.env import EnvSpec
from tianji.models.layout import Floats

Sums = npt.NDArray[np.float64]

CHUNK = 512  # samples that are looked at together
LIMIT = 10.0  # of what is normalised
LEAST = 1e-8  # variance that is divided by
FLOAT32_MAX = float(np.finfo(np.float32).max)
MOST = 1e7  # samples that the past counts for at most: float32 could not count on for ever


class Normaliser:
    """Mean and variance of `shape` numbers; all of it lies in `numbers`, which travels as weights.

    Pictures have a mean for every pixel and one variance, and count as four standard
    deviations wide: what moves stands out, and nothing is divided by the variance of a background.
    Until the first `add`, bytes are divided by 255 and everything else stays as it is.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        pictures: bool = False,
        repeat: int = 1,
        unit: float = 255.0,
    ) -> None:
        """`repeat` says how often `shape` stands side by side in what is normalised.

        Pictures are divided by `unit` at first.
        """
        self._shape, self._n, self._pictures = shape, math.prod(shape), pictures
        self._repeat = repeat
        n_variances = 1 if pictures else self._n
        self.numbers = np.zeros(self._n + n_variances + 1, np.float32)
        self._mean = self.numbers[: self._n]
        self._variance = self.numbers[self._n : -1]
        self._variance.fill((unit / 4) ** 2 if pictures else 1.0)

    @staticmethod
    def of_inputs(env: EnvSpec) -> Normaliser:
        """For what networks read of an environment; for one frame where frames are stacked."""
        inputs = env.inputs
        pictures = len(inputs) == 1 and len(inputs[0].shape) > 1
        if not pictures:
            return Normaliser((env.n_inputs,))
        shape, unit = inputs[0].shape, 255.0 if inputs[0].dtype == "uint8" else 1.0
        return Normaliser(shape, True, env.stack if len(shape) == 3 else 1, unit)

    def sums(self, samples: npt.NDArray[Any]) -> Sums:
        """Sum, sum of squares about the present mean, and number: of [n, *shape] samples."""
        rows, total = samples.reshape(-1, self._n), np.zeros((2, self._n))
        for start in range(0, len(rows), CHUNK):
            about = rows[start : start + CHUNK].astype(np.float64) - self._mean
            total += about.sum(0), np.square(about).sum(0)
        return np.concatenate([total[0], self._each(total[1]), [len(rows)]])

    def add(self, sums: Sums) -> None:
        """Goes on with samples of which these are the sums."""
        n, seen = float(sums[-1]), float(self.numbers[-1])
        if not n or not np.isfinite(sums).all():
            return
        shift, squares = sums[: self._n] / n, sums[self._n : -1] / n
        share, moved = n / (seen + n), np.square(shift)
        spread = np.maximum(squares - (moved.mean() if self._pictures else moved), 0.0)
        if seen:
            between = (1 - share) * share * (moved.mean() if self._pictures else moved)
            spread = (1 - share) * self._variance + share * spread + between
        if not (spread < FLOAT32_MAX).all():
            return  # what runs away is told by its loss
        self._variance[...] = spread
        self._mean += share * shift
        self.numbers[-1] = min(seen + n, MOST)

    def totals(self, sums: Sums) -> Sums:
        """All sums but those of squares."""
        return np.append(sums[: self._n], sums[-1])

    def about_the_mean(self, sums: Sums, totals: Sums) -> Sums:
        """The sums of squares about the mean of more samples, which have these `totals`."""
        mean, total = totals[:-1] / (totals[-1] or 1.0), sums[: self._n]
        return sums[self._n : -1] + self._each(sums[-1] * np.square(mean) - 2 * mean * total)

    def whole(self, totals: Sums, about_the_mean: Sums) -> Sums:
        """The sums of which these are the parts."""
        squares = about_the_mean + self._each(np.square(totals[:-1])) / (totals[-1] or 1.0)
        return np.concatenate([totals[:-1], squares, totals[-1:]])

    def _each(self, squares: Sums) -> Sums:
        """Of every variance: pictures have one."""
        return squares.mean(keepdims=True) if self._pictures else squares

    def averageable(self) -> Floats:
        """All numbers with the logarithm of the variance in its place, which `shift` moves.

        What groups have learned apart is moved by the mean of all, and stays above 0 so.
        """
        numbers = self.numbers.copy()
        numbers[self._n : -1] = np.log(np.maximum(self._variance, LEAST))
        return numbers

    def shift(self, delta: Floats) -> None:
        """Moves what `averageable` says."""
        self._mean += delta[: self._n]
        self._variance[...] = np.maximum(self._variance, LEAST) * np.exp(delta[self._n : -1])
        self.numbers[-1] += delta[-1]

    @property
    def mean(self) -> Floats:
        """What is subtracted."""
        mean = self._mean.reshape(self._shape)
        return mean if self._repeat == 1 else np.concatenate([mean] * self._repeat)

    @property
    def scale(self) -> Floats:
        """What is multiplied with afterwards: `shape` numbers, or one for pictures."""
        if self._pictures:
            return (1 / (4 * self.deviation)).astype(np.float32)
        return (1 / self.deviation).reshape(self._shape).astype(np.float32)

    @property
    def deviation(self) -> Floats:
        """The standard deviation of each of `shape` numbers, flat, or of pictures."""
        return np.sqrt(np.maximum(self._variance, LEAST))

    def __call__(self, inputs: npt.NDArray[Any]) -> Floats:
        """Inputs [..., *shape] as networks are to see them."""
        centred = np.asarray(inputs, np.float32) - self.mean
        centred *= self.scale
        return np.clip(centred, -LIMIT, LIMIT, out=centred)
