"""Running means and deviations by which an on-policy learner scales inputs, rewards and values."""

from __future__ import annotations

from collections.abc import Callable, Generator

import numpy as np
import numpy.typing as npt

from tianji.algorithms.base import advantages
from tianji.core.algorithm import Weights
from tianji.core.env import EnvSpec
from tianji.core.schema import Arrays
from tianji.models.layout import Floats
from tianji.models.normaliser import LIMIT, Normaliser, Sums

Exchange = Callable[[Sums], Generator[Weights, None, list[float]]]


class Scales:
    """Of inputs and of returns, where they are asked for; each team has returns of its own.

    All numbers lie in the `normalisers`, which travel with the weights.
    """

    def __init__(
        self, env: EnvSpec, inputs: bool = False, reward: bool = False, value: bool = False
    ) -> None:
        self.inputs = Normaliser.of_inputs(env) if inputs else None
        n_returns = max(1, env.n_teams) if reward or value else 0
        self._returns = [Normaliser(()) for _ in range(n_returns)]
        self._reward, self._value = reward, value
        self.normalisers = [*([] if self.inputs is None else [self.inputs]), *self._returns]
        self.whose = np.zeros(1, np.int64)  # the team that each value is of

    @property
    def n_numbers(self) -> int:
        """Of all normalisers."""
        return sum(len(each.numbers) for each in self.normalisers)

    def sums(
        self, inputs: npt.NDArray[np.generic] | None, returns: Floats, valid: npt.NDArray[np.bool_]
    ) -> list[Sums]:
        """What the normalisers are to learn; `inputs` are None where nothing scales them."""
        seen = [] if self.inputs is None or inputs is None else [self.inputs.sums(inputs)]
        whose = enumerate(self._returns)
        return seen + [each.sums(returns[valid & (self.whose == team)]) for team, each in whose]

    def pooled(
        self, sums: list[Sums], mean_of_all: Exchange
    ) -> Generator[Weights, None, list[Sums]]:
        """The mean over several learners of their sums, which travel in float32.

        It cannot tell squares about a mean that is far away from the spread that they are made of.
        So squares travel about the mean of all samples, when that is known.
        """
        if not sums:
            return []
        each, own = self.normalisers, sums
        totals = yield from _together([*map(Normaliser.totals, each, own)], mean_of_all)
        about = [*map(Normaliser.about_the_mean, each, own, totals)]
        return [*map(Normaliser.whole, each, totals, (yield from _together(about, mean_of_all)))]

    def add(self, sums: list[Sums]) -> None:
        """Learns that; nothing where there are none."""
        for normaliser, each in zip(self.normalisers if sums else (), sums, strict=True):
            normaliser.add(each)

    def advantages(
        self, batch: Arrays, value: Floats, final: Floats | None, gamma: float, gae_lambda: float
    ) -> tuple[Floats, Floats, Floats]:
        """Advantages, targets as the value network is to say them, and plain returns."""
        if not self._returns:
            gain, target = advantages(batch, value, final, gamma, gae_lambda)
            return gain, target, target
        unit, shift, spread = self._units()
        if self._reward:
            batch = batch | {"reward": np.clip(batch["reward"] / unit, -LIMIT, LIMIT)}
        value = value * spread + shift
        final = None if final is None else final * spread + shift
        gain, target = advantages(batch, value, final, gamma, gae_lambda)
        return gain, ((target - shift) / spread).astype(np.float32), target * unit

    def _units(self) -> Floats:
        """The unit of rewards, and what scaled values are shifted by and multiplied with."""
        units = []
        for each in self._returns:
            mean, deviation = float(each.mean), float(each.deviation[0])
            unit = deviation if self._reward else 1.0
            scaled = (mean / unit, deviation / unit) if self._value else (0.0, 1.0)
            units.append((unit, *scaled))
        found: Floats = np.array(units, np.float32)[self.whose].T
        return found


def _together(parts: list[Sums], mean_of_all: Exchange) -> Generator[Weights, None, list[Sums]]:
    """Several arrays that travel as one."""
    found = yield from mean_of_all(np.concatenate(parts))
    return np.split(np.array(found), np.cumsum([len(part) for part in parts[:-1]]))
