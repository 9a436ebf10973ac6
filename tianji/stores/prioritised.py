"""Prioritised replay: samples with larger errors are drawn more often (Schaul et al. 2016).

A sample is drawn with probability p ** alpha / sum, where p is the priority that the learner sent
back last, or the largest so far until it did. Batches carry `weight`, the importance-sampling
weights (N * P) ** -beta over their largest, and `row` and `generation`, which come back with the
priorities: one that arrives after its sample was overwritten is counted and forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import State
from tianji.core.store import Amount
from tianji.stores.replay import Replay
from tianji.stores.replay_store import ReplayStore
from tianji.stores.ring_memory import Index

Priorities = npt.NDArray[np.float64]

LEAST = 1e-6  # priority: a sample without error can still be drawn


@dataclass(frozen=True)
class Prioritised(Replay):
    """Draws by priority from the last `capacity` samples, with n-step returns."""

    alpha: float = 0.6  # 0: uniform
    beta: float = 0.4  # of the importance-sampling weights; 1: they correct in full
    anneal: int | None = None  # batches over which beta rises to 1 in a line; None: it stays
    reweighs: ClassVar[bool] = True

    def batch_schema(self, trajectory: Schema) -> Schema:
        """A replay's rows, with where each came from and how much it counts."""
        about = (Field("row", "int64"), Field("generation", "int64"), Field("weight", "float32"))
        return Schema(
            (*super().batch_schema(trajectory).fields, *Schema(about).stacked(self.batch).fields)
        )

    def build(self, trajectory: Schema, n_sources: int, slack: int, seed: int) -> PrioritisedStore:
        """The rings and the tree of priorities, empty."""
        return PrioritisedStore(self, trajectory, n_sources, seed)

    def n_bytes(self, trajectory: Schema, n_sources: int, slack: int) -> int:
        """Bytes of all rings and of the tree."""
        rows = self.n_rows(trajectory, n_sources)
        return super().n_bytes(trajectory, n_sources, slack) + rows * 8 + SumTree.n_bytes(rows)


class PrioritisedStore(ReplayStore):
    """A replay store whose draws follow a sum tree over its rows."""

    def __init__(
        self, sampling: Prioritised, trajectory: Schema, n_sources: int, seed: int
    ) -> None:
        super().__init__(sampling, trajectory, n_sources, seed)
        n_rows = len(self._rows["valid"])
        self._alpha, self._first_beta, self._anneal = sampling.alpha, sampling.beta, sampling.anneal
        self._batches = 0  # drawn so far
        self._tree = SumTree(n_rows)
        self._generation = np.zeros(n_rows, np.int64)
        self._largest = 1.0  # priority ** alpha of a sample that nobody has learned from

    @property
    def beta(self) -> float:
        """The exponent of the next batch's weights."""
        if self._anneal is None:
            return self._first_beta
        return self._first_beta + (1 - self._first_beta) * min(1.0, self._batches / self._anneal)

    def _rewritten(self, rows: Index) -> None:
        self._generation[rows] += 1
        self._tree.set(rows, np.where(self._rows["valid"][rows], self._largest, 0.0))

    def _choose(self, n: int, out: Arrays) -> Index:
        """`n` rows by priority, one from each of `n` equal parts of the sum."""
        total = self._tree.total
        marks = (np.arange(n) + self._random.random(n)) * (total / n)
        row = self._tree.find(marks)
        probability = self._tree.values(row) / total
        weight = (self.size() * probability) ** -self.beta
        self._batches += 1
        out["weight"][...] = weight / weight.max()
        out["row"][...] = row
        self._generation.take(row, 0, out["generation"])
        return row

    def reweigh(self, feedback: Arrays) -> int:
        """Sets the priorities of samples that are still here; one that is no number is the largest.

        So a learner that fails cannot spoil the sum of all others.
        """
        rows, priority = feedback["row"], feedback["priority"].astype(np.float64)
        here = (self._generation[rows] == feedback["generation"]) & self._rows["valid"][rows]
        weighed = np.maximum(np.abs(priority[here]), LEAST) ** self._alpha
        weighed[~np.isfinite(weighed)] = self._largest
        if weighed.size:
            self._largest = max(self._largest, float(weighed.max()))
            self._tree.set(rows[here], weighed)
        return len(rows) - int(np.count_nonzero(here))

    def clear(self) -> Amount:
        """Drops every sample."""
        self._generation += 1
        self._tree.clear()
        return super().clear()

    def state(self) -> State | None:
        """A replay's, with the priorities; generations start anew, for nothing is in flight."""
        about = {"priority": self._tree.leaves, "largest": self._largest, "batches": self._batches}
        state = super().state()
        return None if state is None else {**state, **about}

    def restore(self, state: State) -> None:
        """Draws on with the priorities of that time."""
        super().restore(state)
        self._generation += 1
        self._largest, self._batches = state["largest"], state["batches"]
        rows = np.arange(len(self._generation))
        self._tree.set(rows, np.where(self._rows["valid"], state["priority"], 0.0))


class SumTree:
    """Numbers >= 0 in the leaves of a binary tree whose nodes hold the sum of what is below."""

    def __init__(self, n: int) -> None:
        self._depth = max(1, (n - 1).bit_length())
        self._first = 1 << self._depth  # node of leaf 0; node k has the children 2k and 2k + 1
        self._n = n
        self._nodes = np.zeros(2 * self._first)

    @staticmethod
    def n_bytes(n: int) -> int:
        """Bytes of a tree with `n` leaves."""
        return 16 << max(1, (n - 1).bit_length())

    @property
    def total(self) -> float:
        """The sum of all leaves."""
        return float(self._nodes[1])

    @property
    def leaves(self) -> Priorities:
        """A view of the numbers themselves."""
        return self._nodes[self._first : self._first + self._n]

    def values(self, leaf: Index) -> Priorities:
        """The numbers of these leaves."""
        return self._nodes[self._first + leaf]

    def set(self, leaf: Index, value: Priorities) -> None:
        """Sets leaves; of one that is named twice, one of its values stays."""
        node = self._first + leaf
        self._nodes[node] = value
        for _ in range(self._depth):
            node = node >> 1  # named twice, it is computed twice: cheaper than to look for it
            self._nodes[node] = self._nodes[2 * node] + self._nodes[2 * node + 1]

    def clear(self) -> None:
        """Sets all leaves to 0."""
        self._nodes.fill(0.0)

    def find(self, mark: Priorities) -> Index:
        """The leaf at which the running sum passes each mark; never one that is 0."""
        node = np.ones(len(mark), np.int64)
        mark = mark.copy()
        for _ in range(self._depth):
            node *= 2
            left = self._nodes[node]
            right = (mark >= left) & (self._nodes[node + 1] > 0)
            mark -= np.where(right, left, 0.0)
            node += right
        return node - self._first
