"""The versions of trajectories that are handed out once, as `rollouts.py` keeps them."""

from __future__ import annotations

import numpy as np

from tianji.strategy.simulate.layout import Costs


class Pool:
    """Begins with what a warm-up leaves there, of the first version."""

    def __init__(self, costs: Costs, random: np.random.Generator) -> None:
        self._n = costs.batch // costs.units
        self._versions = [0] * ((costs.pool - costs.batch) // costs.units)
        self._random = random

    def add(self, version: int) -> None:
        """Notes a trajectory that has come."""
        self._versions.append(version)

    def draw(self) -> list[int]:
        """A batch: any of them, none twice."""
        if self._n >= len(self._versions):
            drawn, self._versions = self._versions, []
            return drawn
        chosen = set(self._random.choice(len(self._versions), self._n, replace=False).tolist())
        drawn = [self._versions[i] for i in sorted(chosen)]
        self._versions = [v for i, v in enumerate(self._versions) if i not in chosen]
        return drawn
