"""Off-policy storage: keeps the last samples and draws them again and again.

Where a policy sees several frames, each is kept once, and stacks are put together when drawn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tianji.core.errors import TianJiError
from tianji.core.frames import BEFORE, FIRST, STACKED, TICKET
from tianji.core.schema import Arrays, Schema
from tianji.core.state import State, random_state, restore_random
from tianji.core.store import Amount, Overwritten, axes_of, observed_fields, stack_of, step_fields
from tianji.models.device_frames import DeviceFrames
from tianji.stores.ring_memory import Index, Rings

if TYPE_CHECKING:
    from tianji.stores.replay import Replay

Mask = npt.NDArray[np.bool_]


class ReplayStore(Overwritten):
    """One ring in time per actor; successors and n-step returns are put together when drawing.

    A ring has one position more than it keeps steps: the newest observation, which no action
    belongs to yet. Actor a fills ring a, until another has been silent: see `_ring_of`.

    Where k frames are stacked, a ring has k - 1 positions more, for the frames before its oldest
    step. A step of which some frames are missing, because the one before it is another actor's or
    was lost, is not valid.
    """

    def __init__(self, sampling: Replay, trajectory: Schema, n_sources: int, seed: int) -> None:
        length, self._n_envs = axes_of(trajectory)
        self._sampling = sampling
        self._silence = 2 * n_sources * length * self._n_envs  # steps: nobody is late for so long
        self._kept = sampling.steps_per_source(trajectory, n_sources)
        self._stack = stack_of(trajectory)
        self._ring = self._kept + self._stack
        fields = step_fields(trajectory)
        self._layout, frames = sampling.row(trajectory), None  # of one row
        if sampling.device is not None:
            about = sampling.n_rows(trajectory, n_sources), self._stack, sampling.batch
            frames = DeviceFrames(fields[STACKED], *about, sampling.device)
        self._rings = Rings(self._layout, n_sources, self._ring, self._n_envs, self._stack, frames)
        self._by_time, self._rows = self._rings.by_time, self._rings.flat
        self._filled_by = np.arange(n_sources)  # the ring of each actor
        self._cut = np.zeros(n_sources, bool)  # the next steps of a ring are of another actor
        self._newest = np.zeros(n_sources, np.int64)  # steps received when it was last written
        # Frames that are known before the newest one, and belong with it; stack - 1 are enough.
        self._known = np.zeros((n_sources, self._n_envs), np.int64)
        self._written = np.zeros(n_sources, np.int64)  # steps ever written
        self._rows_up_to = np.zeros(n_sources, np.int64)  # cumulative rows to draw from
        self._n_valid = 0
        self._received = 0
        self._random = np.random.default_rng(seed)
        self._observed = [field.name for field in observed_fields(trajectory)]
        self._shown = [name for name in self._observed if name in self._rows]
        self._followed = [*self._observed, *([FIRST] if self._stack > 1 else [])]  # T+1 rows
        self._copied = [name for name in fields if name not in self._followed]
        self._drawn = [field.name for field in sampling.drawn(trajectory)]
        self._same_step = f"final_{self._observed[0]}" in fields
        self._reward_axes = (slice(None),) + (None,) * len(fields["reward"].shape)

    def add(self, source: int, trajectory: Arrays, version: int) -> Amount:
        """Appends the steps to the actor's ring, over the oldest."""
        length = int(trajectory["length"])
        start = max(0, length - self._ring + 1)  # where a ring is too small, the newest stay
        steps = int(np.count_nonzero(trajectory["valid"][:length]))
        self._received += steps
        number = self._ring_of(source)
        ring = {name: array[number] for name, array in self._by_time.items()}
        written = int(self._written[number])
        broken = self._cut_where_broken(number, trajectory)
        new = np.arange(written, written + length - start)
        # Behind the newest position lie those of which only frames are needed.
        beyond = np.arange(written + len(new), written + len(new) + self._stack) % self._ring
        rows = new % self._ring
        changed = np.arange(written, written + len(new) + self._stack)[: self._ring] % self._ring
        self._n_valid -= int(np.count_nonzero(ring["valid"][changed]))
        for name in (*self._followed, *self._copied):
            self._rings.write(name, number, rows, trajectory[name][start:length])
        if self._stack > 1:
            ring["valid"][rows] &= self._whole(number, trajectory[FIRST][: length + 1])[start:]
        ring["ends"][rows] = ring["terminated"][rows] | ring["truncated"][rows]
        ring["version"][rows] = version
        ring["born"][rows] = self._received
        ring["drawn"][rows] = False
        for name in self._followed:
            self._rings.write(name, number, beyond[:1], trajectory[name][length : length + 1])
        ring["valid"][beyond] = False
        self._n_valid += int(np.count_nonzero(ring["valid"][changed]))
        self._written[number] += len(new)
        self._newest[number], self._cut[number] = self._received, False
        self._count_rows()
        self._rewritten(np.concatenate((broken, self._rings.rows(number, changed))))
        return Amount(steps, steps)

    def _whole(self, number: int, first: Mask) -> Mask:
        """Where all frames of a stack are known, [T, E] of `first` [T+1, E]."""
        known = self._known[number] + np.arange(len(first))[:, None]
        known[np.maximum.accumulate(first, 0)] = self._stack - 1
        whole: Mask = known >= self._stack - 1
        self._known[number] = np.minimum(known[-1], self._stack - 1)
        return whole[:-1]

    def _rewritten(self, rows: Index) -> None:
        """Is told which rows hold another sample than before, or may not be drawn any more."""

    def _ring_of(self, source: int) -> int:
        """The ring that an actor fills: its own, or that of one which is paused or lost.

        When all of its own is newer than all of another's, the two actors change rings. So what is
        overwritten is what is oldest, and all of the store is in use, however many actors work.
        """
        own, other = int(self._filled_by[source]), int(self._newest.argmin())
        silent = self._received - self._newest[other] > self._silence
        if silent and own != other and self._written[own] >= self._kept:
            oldest = self._by_time["born"][own, (self._written[own] - self._kept) % self._ring, 0]
            if oldest > self._newest[other]:
                self._filled_by[self._filled_by == other] = own
                self._filled_by[source] = other
                self._cut[[own, other]] = True
        return int(self._filled_by[source])

    def _count_rows(self) -> None:
        self._rows_up_to = np.cumsum(np.minimum(self._written, self._kept) * self._n_envs)

    def _cut_where_broken(self, number: int, trajectory: Arrays) -> Index:
        """Invalidates the last step where what is observed first does not follow: a new start.

        Returns the rows of the steps that were valid until now.
        """
        written = int(self._written[number])
        if not written:
            return np.empty(0, np.int64)
        head = self._rings.rows(number, np.array([written % self._ring]))
        broken = np.full(self._n_envs, self._cut[number])
        for name in self._followed:
            here, first = self._rings.read(name, head), trajectory[name][0]
            broken |= (here != first).reshape(self._n_envs, -1).any(1)
        if self._stack > 1:
            known = self._known[number] >= self._stack - 1
            broken |= known & self._rings.has_another_past(head, trajectory[BEFORE])
            self._known[number][broken] = 0
        last: Index = self._rings.before(head)[broken]
        last = last[self._rows["valid"][last]]
        self._rows["valid"][last] = False
        self._n_valid -= len(last)
        return last

    def size(self) -> int:
        """Valid samples."""
        return self._n_valid

    def ready(self) -> bool:
        """Whether any sample can be drawn."""
        return self._n_valid > 0

    def clear(self) -> Amount:
        """Drops every sample; ages go on being counted from when a sample came."""
        dropped, self._n_valid = self._n_valid, 0
        self._by_time["valid"].fill(False)
        self._written.fill(0)
        self._known.fill(0)
        self._count_rows()
        return Amount(dropped, dropped)

    def draw(self, out: Arrays) -> None:
        """Draws `batch` samples uniformly over everything kept."""
        row = self._choose(self._sampling.batch, out)
        rows = self._rows
        for name in self._shown:
            self._rings.show(name, row, out[name])
        for name in self._drawn:
            rows[name].take(row, 0, out[name], "clip")
        self._look_ahead(row, out)
        rows["version"].take(row, 0, out["version"])
        np.subtract(self._received, rows["born"][row], out=out["age"])
        np.logical_not(rows["drawn"][row], out=out["new"])
        rows["drawn"][row] = True

    def _choose(self, n: int, out: Arrays) -> Index:
        """`n` valid rows, uniformly and with replacement."""
        row = self._guess(n)
        while True:
            bad = np.flatnonzero(~self._rows["valid"][row])
            if not bad.size:
                return row
            row[bad] = self._guess(bad.size)

    def _guess(self, n: int) -> Index:
        """`n` rows that were written, valid or not."""
        ticket = self._random.integers(self._rows_up_to[-1], size=n)
        source = np.searchsorted(self._rows_up_to, ticket, side="right")
        back, e = np.divmod(self._rows_up_to[source] - 1 - ticket, self._n_envs)
        position = (self._written[source] - 1 - back) % self._ring
        return (source * self._ring + position) * self._n_envs + e

    def _look_ahead(self, row: Index, out: Arrays) -> None:
        """Writes reward, discount and next_obs over up to n steps, or to the end of the episode."""
        rows, gamma = self._rows, np.float32(self._sampling.gamma)
        last, following = row, self._rings.after(row)
        reward, factor = rows["reward"][row], np.full(row.size, gamma)
        for _ in range(self._sampling.n_step - 1):
            # The newest position of a ring is never valid, so nothing runs past it.
            going = rows["valid"][following] & ~rows["ends"][last]
            reward += (going * factor)[self._reward_axes] * rows["reward"][following]
            factor = np.where(going, factor * gamma, factor)
            last = np.where(going, following, last)
            following = self._rings.after(last)
        out["reward"][...] = reward
        np.multiply(factor, ~rows["terminated"][last], out=out["discount"])
        cut = np.flatnonzero(rows["truncated"][last]) if self._same_step else None
        if (frames := self._rings.frames) is not None:
            out[TICKET][...] = frames.draw(self._rings.places(row), self._rings.places(following))
        for name in self._shown:
            following_obs = out[f"next_{name}"]
            self._rings.show(name, following, following_obs)
            if cut is not None:
                self._rings.show_final(name, last[cut], following_obs, cut)

    def state(self) -> State | None:
        """Views of the positions that were ever written, and where writing and drawing stand.

        None with frames on a device: bringing them back takes as much memory as was to be saved.
        """
        if self._rings.frames is not None:
            return None
        used = min(int(self._written.max()) + 1, self._ring)
        return {
            "rows": {name: array[:, :used] for name, array in self._by_time.items()},
            "kept": self._kept,
            "written": self._written,
            "filled_by": self._filled_by,
            "cut": self._cut,
            "known": self._known,
            "n_valid": self._n_valid,
            "received": self._received,
            "random": random_state(self._random),
        }

    def restore(self, state: State) -> None:
        """Copies the samples of a store of the same size."""
        rows, used = state["rows"], state["rows"]["valid"].shape[1]
        self._check_same(state, used)
        for name, array in self._by_time.items():
            array[:, :used] = rows[name]
        self._by_time["valid"][:, used:] = False
        self._written[...] = state["written"]
        self._filled_by[...] = state.get("filled_by", self._filled_by)
        # Older checkpoints may say whose a ring is, and not whether it has just changed hands.
        self._cut[...] = state.get("cut", "filled_by" in state)
        self._known[...] = state.get("known", 0)
        self._newest[...] = self._by_time["born"].max((1, 2))
        self._n_valid, self._received = state["n_valid"], state["received"]
        restore_random(self._random, state["random"])
        self._count_rows()

    def miss(self, n_steps: int) -> None:
        """After `restore`: so many steps came since, and went with the store that had them.

        They leave a gap, an equal part of it in each ring, so that nothing stays longer for it.
        """
        self._received += n_steps
        gap = math.ceil(n_steps / (len(self._written) * self._n_envs))
        for number, written in enumerate(self._written.tolist()):
            n_places = min(gap + self._stack, self._ring)
            places = np.arange(written, written + n_places) % self._ring
            self._by_time["valid"][number, places] = False
            self._rewritten(self._rings.rows(number, places))
        self._n_valid = int(np.count_nonzero(self._rows["valid"]))
        self._written += gap
        self._cut[...], self._known[...] = True, 0  # the next steps do not follow
        self._count_rows()
        if 2 * self._n_valid < self._rows_up_to[-1]:  # the others would take long to find
            self.clear()

    def _check_same(self, state: State, used: int) -> None:
        if state["kept"] != self._kept:
            raise TianJiError(
                f"replay: {state['kept']} steps per actor were saved, and this store keeps "
                f"{self._kept}: resume with the same hyp.buffer_size, actors and environments"
            )
        n_sources = len(self._written)
        self._layout.stacked(n_sources, used, self._n_envs).check(state["rows"], "saved replay")
