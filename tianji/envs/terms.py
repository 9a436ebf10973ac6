"""What an environment's own spaces call an observation and an action, for whoever plays with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.envs.spaces import Observed, leaves_of, part_of


class Terms:
    """Puts into fields what a space describes, and into an action space what counts from 0.

    A policy sees arrays by field and counts choices from 0; whoever plays with the environment
    itself has what `observation_space` describes and wants what `action_space` holds.
    """

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self._space = observation_space
        self._leaf = leaves_of("observation", observation_space)[0]
        self._start = np.asarray(getattr(action_space, "start", 0))
        self._rows: dict[int, Observed] = {}  # by the number of observations

    def observed(self, obs: Any) -> tuple[Arrays, bool] | None:
        """The arrays [n, ...] of one observation, or of n as a vector environment has them.

        Beside them, whether it was one. None: the space's own array is the field already.
        """
        leaf = self._leaf
        if isinstance(self._space, spaces.Tuple) and not isinstance(obs, tuple):
            raise TianJiError(f"act: want a tuple of {len(self._space)} parts, got {obs!r:.80}")
        array = np.asarray(part_of("act", obs, leaf))
        numbers = isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete)
        if not leaf.path and not (numbers and array.dtype.kind in "iu"):
            return None
        single = array.ndim == len(leaf.space.shape)
        n = 1 if single else len(array)
        if n not in self._rows:
            self._rows[n] = Observed("act", self._space, n)
        if single:
            self._rows[n].put(0, obs)
        else:
            self._rows[n].put_all(obs)
        return self._rows[n].arrays, single

    def action(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the space calls actions that count from 0."""
        return action + self._start if self._start.any() else action
