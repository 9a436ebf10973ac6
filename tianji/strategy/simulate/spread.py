"""Nobody is as fast as the others every time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST_SHARE = 0.05  # of a cost that a random spread leaves


@dataclass(frozen=True)
class Spread:
    """What costs are, around what they are said to be."""

    share: float  # standard deviation, of a cost
    random: np.random.Generator

    def of(self, seconds: float) -> float:
        """A cost as it is this time."""
        if not self.share:
            return seconds
        return seconds * max(LEAST_SHARE, 1.0 + self.share * float(self.random.standard_normal()))
