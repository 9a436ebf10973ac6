"""Rings in time, side by side in flat arrays: which row holds what, and what was seen there."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.frames import FIRST, STACKED
from tianji.core.schema import Arrays, Schema
from tianji.models.device_frames import DeviceFrames

Index = npt.NDArray[np.int64]


class Rings:
    """Ring a, position p, environment e is row (a * length + p) * E + e of every array.

    Memory is committed when it is first written. With `frames`, those of `obs` lie there.
    """

    def __init__(
        self,
        row: Schema,
        n_rings: int,
        length: int,
        n_envs: int,
        stack: int,
        frames: DeviceFrames | None = None,
    ) -> None:
        self.length = length  # positions of one ring
        self._n_envs, self._stack, self.frames = n_envs, stack, frames
        fields = row.stacked(n_rings, length, n_envs).fields
        self.by_time: Arrays = {f.name: np.zeros(f.shape, f.dtype) for f in fields}
        self.flat: Arrays = {name: a.reshape(-1, *a.shape[3:]) for name, a in self.by_time.items()}

    def rows(self, ring: int, positions: Index) -> Index:
        """The rows of all environments at these positions of a ring."""
        first = (ring * self.length + positions % self.length) * self._n_envs
        return (first[:, None] + np.arange(self._n_envs)).ravel()

    def after(self, row: Index) -> Index:
        """The rows one step later in the same environment."""
        return self._moved(row, row + self._n_envs, -1)

    def before(self, row: Index) -> Index:
        """The rows one step earlier in the same environment."""
        return self._moved(row, row - self._n_envs, 1)

    def _moved(self, row: Index, moved: Index, turn: int) -> Index:
        """`moved`, put back into the ring of `row` where it has left it."""
        n = self.length * self._n_envs
        moved[moved // n != row // n] += turn * n
        return moved

    def write(self, name: str, ring: int, positions: Index, values: npt.NDArray[Any]) -> None:
        """Copies `values` [n, E, ...] to these positions of a ring."""
        if self.frames is not None and name == STACKED:
            self.frames.write(self.rows(ring, positions), values)
        else:
            self.by_time[name][ring, positions] = values

    def read(self, name: str, rows: Index) -> npt.NDArray[Any]:
        """What is kept in some rows."""
        if self.frames is not None and name == STACKED:
            return self.frames.read(rows)
        return self.flat[name][rows]

    def places(self, row: Index) -> Index:
        """The rows [n, k] of the frames that were seen at each row, oldest first."""
        places = np.empty((len(row), self._stack), np.int64)
        places[:, -1] = row
        for k in range(self._stack - 1, 0, -1):
            newer = places[:, k]
            begins = self.flat[FIRST][newer]
            places[:, k - 1] = np.where(begins, newer, self.before(newer))
        return places

    def has_another_past(self, head: Index, before: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Where other frames stand before the newest than `before` [k - 1, E, ...]: some are lost.

        What a screen shows may stand still, and so look as if it followed.
        """
        older = self.places(head)[:, :-1].T
        differ = (self.read(STACKED, older) != before).reshape(*older.shape, -1).any(2).any(0)
        another: npt.NDArray[np.bool_] = differ & ~self.flat[FIRST][head]
        return another

    def show(self, name: str, row: Index, out: npt.NDArray[Any]) -> None:
        """Writes what was to be seen at each row: the newest frames of `obs`, and all else once."""
        here = self.flat[name]
        if self._stack > 1 and name == STACKED:
            row = self.places(row).ravel()
        here.take(row, 0, out.reshape(len(row), *here.shape[1:]), "clip")  # "raise" copies twice

    def show_final(self, name: str, row: Index, out: npt.NDArray[Any], at: Index) -> None:
        """Writes into out[at] what was seen after these rows, of which only the end is kept."""
        final = self.flat[f"final_{name}"][row]
        if self._stack > 1 and name == STACKED:
            stack = out.reshape(len(out), self._stack, *final.shape[1:])
            stack[at, :-1] = self.flat[name][self.places(row)[:, 1:]]
            stack[at, -1] = final
        else:
            out[at] = final
