"""Trajectories on their way into a channel, filled in place, one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.channel import Outbox
from tianji.core.env import BoolArray, Step
from tianji.core.frames import BEFORE, FIRST, MEMORY, older
from tianji.core.schema import Arrays
from tianji.core.state import State
from tianji.core.store import keep


class TrajectoryWriter:
    """Fills trajectories where the buffer will read them; nothing half-filled is ever sent."""

    def __init__(self, outbox: Outbox) -> None:
        self.length = 0  # steps in the trajectory that is open
        self.sent = 0  # trajectories
        self._outbox = outbox
        self._rows: Arrays | None = None
        self.version = 0  # of the policy that began it
        self._first: BoolArray | None = None  # of the open one, where it is kept
        self._before: npt.NDArray[Any] | None = None  # the frames before the next one

    @property
    def is_open(self) -> bool:
        """Whether a trajectory has been begun."""
        return self._rows is not None

    @property
    def refused(self) -> int:
        """How often the channel had no room."""
        return self._outbox.refused

    def begin(self, obs: Arrays, first: BoolArray, version: int) -> bool:
        """Opens the next trajectory at `obs`; False while the channel has no room for it."""
        self._rows = rows = self._outbox.slot()
        if rows is None:
            return False
        for name, array in obs.items():
            rows[name][0] = array
        self._first = rows.get(FIRST)
        if self._first is not None:
            self._first[0] = first
            if self._before is not None:
                rows[BEFORE][...] = self._before
        self.length, self.version = 0, version
        return True

    def add(self, decision: Arrays, step: Step) -> Arrays:
        """Keeps what was decided and what came of it; returns the observations to act on next."""
        rows, t = self._rows, self.length
        assert rows is not None
        keep(decision, rows, t)
        step.write(rows, t)
        if self._first is not None:
            self._first[t + 1] = step.first
        self.length = t + 1
        return {name: rows[name][t + 1] for name in step.obs}

    def repeat(self) -> None:
        """Writes the last step once more, for who needs a full trajectory and not what is in it."""
        rows, t = self._rows, self.length
        assert rows is not None and t
        length = len(rows["valid"])
        for name, array in rows.items():
            if name in ("length", BEFORE, MEMORY):
                continue
            row = t + 1 if len(array) > length else t  # what is observed has a row more
            array[row] = array[row - 1]
        self.length = t + 1

    @property
    def n_valid(self) -> int:
        """Valid steps of the trajectory that is open."""
        rows = self._rows
        assert rows is not None
        return int(np.count_nonzero(rows["valid"][: self.length]))

    def send(self) -> None:
        """Sends the open trajectory."""
        rows = self._rows
        assert rows is not None
        rows["length"][...] = self.length
        self._before = self._older()
        self._outbox.commit(self.version)
        self._rows = None
        self.sent += 1

    def close(self) -> None:
        """Ends the stream."""
        self._outbox.close()

    def give_up(self) -> None:
        """Forgets what was begun."""
        self._rows = None

    def _older(self) -> npt.NDArray[Any] | None:
        """The frames before the newest; None where none are stacked."""
        if self._rows is None or BEFORE not in self._rows:
            return self._before
        return older(self._rows, self.length)

    def state(self) -> State:
        """Where it stands; the rows themselves lie in the channel."""
        return {
            "open": self.is_open,
            "length": self.length,
            "sent": self.sent,
            "version": self.version,
            "refused": self._outbox.refused,
            "before": self._older(),
        }

    def restore(self, state: State) -> None:
        """Goes on in a channel that was restored before."""
        self.length, self.sent = state["length"], state["sent"]
        self.version, self._outbox.refused = state["version"], state["refused"]
        self._before = state.get("before")
        self._rows = self._outbox.slot() if state["open"] else None
        if self._rows is not None:
            self._first = self._rows.get(FIRST)
