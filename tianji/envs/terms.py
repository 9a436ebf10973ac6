"""What an environment's own spaces call an observation and an action, for whoever plays with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.schema import Arrays
from tianji.envs.spaces import Observed, leaves_of, part_of


class Terms:
    """What an environment's own spaces call an observation and an action.

    A policy sees arrays by field and counts choices from 0; whoever plays with the environment
    itself has what `observation_space` describes and wants what `action_space` holds.
    """

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self._space = observation_space
        self._start = np.asarray(getattr(action_space, "start", 0))

    def observed(self, who: str, obs: Any) -> tuple[Arrays, bool]:
        """The arrays [n, ...] of one observation, or of n as a vector environment has them.

        Beside them, whether it was one. `who` asks, for messages.
        """
        leaf = leaves_of(who, self._space)[0]
        array = np.asarray(part_of(who, obs, leaf))
        single = array.ndim == len(leaf.space.shape)
        rows = Observed(who, self._space, 1 if single else len(array))
        if single:
            rows.put(0, obs)
        else:
            rows.put_all(obs)
        return rows.arrays, single

    def action(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the space calls actions that count from 0."""
        return action + self._start if self._start.any() else action
