"""On-policy storage: a pool of whole trajectories, each handed out once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import State, random_state, restore_random
from tianji.core.store import Amount


@dataclass(frozen=True)
class Rollouts:
    """Whole trajectories, each handed out once: a batch is drawn from a pool of `pool` of them.

    With pool == batch every sample is new; a pool of k batches is the paper's Lag-k (Appendix D.1).
    """

    batch: int  # trajectories per update
    pool: int  # trajectories in the pool when a batch is drawn
    steps: int  # rows of one trajectory, T * E
    max_lag: int | None = None  # updates that a trajectory may be older than the learner
    per_version: int | None = None  # synchronous: trajectories that each actor sends per version

    unit: ClassVar[str] = "rollouts"
    once: ClassVar[bool] = True
    reweighs: ClassVar[bool] = False
    placeable: ClassVar[bool] = False
    room: ClassVar[None] = None

    @property
    def batch_units(self) -> int:
        """A batch consumes the rows of its trajectories."""
        return self.batch * self.steps

    @property
    def warmup(self) -> int:
        """Rows that stay in the pool."""
        return (self.pool - self.batch) * self.steps

    @property
    def serial_ratio(self) -> float:
        """Each sample is consumed once; epochs are not counted."""
        return 1.0

    def batch_schema(self, trajectory: Schema) -> Schema:
        """`batch` trajectories side by side, with what is known of each."""
        about = (Field("version", "int64"), Field("age", "int64"), Field("new", "bool"))
        return Schema((*trajectory.fields, *about)).stacked(self.batch)

    @property
    def freshness(self) -> float:
        """P = B_s / N_s."""
        return self.batch / self.pool

    def n_entries(self, slack: int) -> int:
        """Trajectories that may wait at once: the pool, what may come ahead, and the one coming."""
        return self.pool + math.ceil(slack / self.steps) + 1

    def build(self, trajectory: Schema, n_sources: int, slack: int, seed: int) -> RolloutStore:
        """The pool, empty."""
        return RolloutStore(self, trajectory, slack, seed)

    def n_bytes(self, trajectory: Schema, n_sources: int, slack: int) -> int:
        """Bytes of the pool."""
        return self.n_entries(slack) * trajectory.n_bytes


class RolloutStore:
    """A pool of trajectories in the order in which they came."""

    def __init__(self, sampling: Rollouts, trajectory: Schema, slack: int, seed: int) -> None:
        if sampling.pool < sampling.batch:
            raise TianJiError(
                f"buffer_size: a pool of {sampling.pool} rollouts cannot give "
                f"batches of {sampling.batch}"
            )
        self._sampling = sampling
        self._layout = trajectory
        self._entries = [trajectory.empty() for _ in range(sampling.n_entries(slack))]
        self._version = [0] * len(self._entries)
        self._born = [0] * len(self._entries)  # steps received by then
        self._free = list(range(len(self._entries)))
        self._waiting: list[int] = []
        self._received = 0
        self._random = np.random.default_rng(seed)

    def add(self, source: int, trajectory: Arrays, version: int) -> Amount:
        """Copies one trajectory into the pool; rows that were not filled are not valid."""
        assert self._free, "the balance lets no more come than there is room for"
        entry = self._free.pop()
        for name, array in self._entries[entry].items():
            array[...] = trajectory[name]
        length = int(trajectory["length"])
        self._entries[entry]["valid"][length:] = False
        steps = int(np.count_nonzero(trajectory["valid"][:length]))
        self._received += steps
        self._version[entry], self._born[entry] = version, self._received
        self._waiting.append(entry)
        return Amount(steps, self._sampling.steps)

    def size(self) -> int:
        """Rows of the trajectories in the pool."""
        return len(self._waiting) * self._sampling.steps

    def ready(self) -> bool:
        """Whether the pool is full."""
        return len(self._waiting) >= self._sampling.pool

    def expire(self, learner_version: int) -> Amount:
        """Drops what is more than `max_lag` versions old."""
        if self._sampling.max_lag is None:
            return Amount(0, 0)
        oldest = learner_version - self._sampling.max_lag
        return self._drop([entry for entry in self._waiting if self._version[entry] < oldest])

    def clear(self) -> Amount:
        """Drops every trajectory; ages go on being counted from when one came."""
        return self._drop(self._waiting)

    def rejoin(self, n_lost: int) -> Amount:
        """Loses what the batches held.

        In step with the learner also what is waiting is lost; and if the learner was ahead
        (`n_lost` < 0), for it has learned from some of that already.
        """
        units = n_lost * self._sampling.batch_units
        keeps = self._sampling.per_version is None and n_lost >= 0
        waiting = Amount(0, 0) if keeps else self.clear()
        return Amount(max(0, units) + waiting.steps, units + waiting.units)

    def _drop(self, entries: list[int]) -> Amount:
        self._free += entries
        self._waiting = [entry for entry in self._waiting if entry not in entries]
        steps = sum(int(np.count_nonzero(self._entries[entry]["valid"])) for entry in entries)
        return Amount(steps, len(entries) * self._sampling.steps)

    def draw(self, out: Arrays) -> None:
        """Takes `batch` trajectories out of the pool, without replacement."""
        n, chosen = self._sampling.batch, self._waiting
        if len(chosen) > n:
            places = np.sort(self._random.choice(len(chosen), n, replace=False))
            chosen = [chosen[place] for place in places]
        for i, entry in enumerate(chosen):
            for name, array in self._entries[entry].items():
                out[name][i] = array
            out["version"][i] = self._version[entry]
            out["age"][i] = self._received - self._born[entry]
            out["new"][i] = True
        self._free += chosen
        self._waiting = [entry for entry in self._waiting if entry not in chosen]

    def reweigh(self, feedback: Arrays) -> int:
        """Each trajectory is handed out once: nobody sends priorities."""
        raise NotImplementedError

    def state(self) -> State:
        """The trajectories that wait, one array [n, ...] per field, and where drawing stands."""
        waiting = self._layout.stacked(len(self._waiting)).empty()
        for i, entry in enumerate(self._waiting):
            for name, array in self._entries[entry].items():
                waiting[name][i] = array
        return {
            "waiting": waiting,
            "version": [self._version[entry] for entry in self._waiting],
            "born": [self._born[entry] for entry in self._waiting],
            "received": self._received,
            "random": random_state(self._random),
        }

    def restore(self, state: State) -> None:
        """Holds what waited in a pool of the same layout, in the same order."""
        n, waiting = len(state["version"]), state["waiting"]
        if n > len(self._entries):
            raise TianJiError(
                f"rollouts: {n} were saved, and this pool has room for {len(self._entries)}: "
                "resume with the same hyp.buffer_size and buffer_cfg.slack"
            )
        self._layout.stacked(n).check(waiting, "saved rollouts")
        for entry in range(n):
            for name, array in self._entries[entry].items():
                array[...] = waiting[name][entry]
        self._version[:n], self._born[:n] = state["version"], state["born"]
        self._waiting, self._free = list(range(n)), list(range(n, len(self._entries)))
        self._received = state["received"]
        restore_random(self._random, state["random"])
