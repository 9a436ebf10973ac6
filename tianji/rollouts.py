"""On-policy storage: a pool of whole trajectories, each handed out once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tianji.errors import TianJiError
from tianji.schema import Arrays, Field, Schema
from tianji.store import Added


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

    def build(self, trajectory: Schema, n_sources: int, seed: int) -> RolloutStore:
        """The pool, empty."""
        return RolloutStore(self, trajectory, seed)

    def n_bytes(self, trajectory: Schema, n_sources: int) -> int:
        """Bytes of the pool."""
        return (self.pool + self.batch) * trajectory.n_bytes


class RolloutStore:
    """A pool of trajectories in the order in which they came."""

    def __init__(self, sampling: Rollouts, trajectory: Schema, seed: int) -> None:
        if sampling.pool < sampling.batch:
            raise TianJiError(
                f"buffer_size: a pool of {sampling.pool} rollouts cannot give "
                f"batches of {sampling.batch}"
            )
        self._sampling = sampling
        self._entries = [trajectory.empty() for _ in range(sampling.pool + sampling.batch)]
        self._about = [(0, 0, 0)] * len(
            self._entries
        )  # version, steps received before, valid steps
        self._free = list(range(len(self._entries)))
        self._waiting: list[int] = []
        self._received = 0
        self._random = np.random.default_rng(seed)
        self.batch_units = sampling.batch_units
        self.dropped = 0

    def add(self, source: int, trajectory: Arrays, version: int) -> Added:
        """Copies one trajectory into the pool; rows that were not filled are not valid."""
        entry = self._free.pop() if self._free else self._grow(trajectory)
        for name, array in self._entries[entry].items():
            array[...] = trajectory[name]
        length = int(trajectory["length"])
        self._entries[entry]["valid"][length:] = False
        steps = int(np.count_nonzero(trajectory["valid"][:length]))
        self._received += steps
        self._about[entry] = (version, self._received, steps)
        self._waiting.append(entry)
        return Added(steps, self._sampling.steps)

    def _grow(self, trajectory: Arrays) -> int:
        self._entries.append({name: np.empty_like(array) for name, array in trajectory.items()})
        self._about.append((0, 0, 0))
        return len(self._entries) - 1

    def size(self) -> int:
        """Rows of the trajectories in the pool."""
        return len(self._waiting) * self._sampling.steps

    def ready(self) -> bool:
        """Whether the pool is full."""
        return len(self._waiting) >= self._sampling.pool

    def draw(self, out: Arrays, learner_version: int) -> int | None:
        """Takes `batch` trajectories out of the pool, without replacement."""
        self._drop_older_than(learner_version)
        if not self.ready():
            return None
        n, consumed = self._sampling.batch, 0
        if len(self._waiting) == n:
            chosen = list(range(n))
        else:
            chosen = sorted(self._random.choice(len(self._waiting), n, replace=False).tolist())
        for i, place in enumerate(chosen):
            entry = self._waiting[place]
            version, born, steps = self._about[entry]
            for name, array in self._entries[entry].items():
                out[name][i] = array
            out["version"][i], out["age"][i], out["new"][i] = version, self._received - born, True
            consumed += steps
            self._free.append(entry)
        for place in reversed(chosen):
            del self._waiting[place]
        return consumed

    def _drop_older_than(self, learner_version: int) -> None:
        """Refuses and counts what is more than `max_lag` versions old."""
        if self._sampling.max_lag is None:
            return
        oldest = learner_version - self._sampling.max_lag
        for entry in [e for e in self._waiting if self._about[e][0] < oldest]:
            self._waiting.remove(entry)
            self._free.append(entry)
            self.dropped += self._sampling.steps
