"""Off-policy storage of sequences: chunks of trajectories, drawn again and again, for memories.

A chunk is what one environment did in one trajectory: T steps with the T+1 observations around
them, and what the policy remembered before the first. It needs nothing outside itself, so the
newest simply takes the place of the oldest, whoever made it, and nothing is ever padded. An episode
goes on from chunk to chunk; `is_first` says where another begins. Whole episodes are chunks as long
as the longest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tianji.core.errors import TianJiError
from tianji.core.frames import FIRST, MEMORY
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import State, random_state, restore_random
from tianji.core.store import Amount, Overwritten, axes_of, observed_fields, step_fields

IS_FIRST = "is_first"

ABOUT = (
    Field("version", "int64"),  # of the policy that acted
    Field("born", "int64"),  # environment steps received by then
    Field("drawn", "bool"),  # at least once
    Field("steps", "int64"),  # that are valid
)
"""What is kept of every chunk besides its fields."""


@dataclass(frozen=True)
class Sequences:
    """Uniform draws, without replacement within a batch, from the last `capacity` steps.

    The balance counts rows: `steps` for each chunk, whether all of them are valid or not.
    """

    batch: int  # chunks per update
    capacity: int  # rows kept (N_s)
    warmup: int  # rows before the first update
    steps: int  # rows of a chunk, T
    ratio: float = 1.0  # rows consumed per row produced, in serial training

    unit: ClassVar[str] = "sequences"
    once: ClassVar[bool] = False
    reweighs: ClassVar[bool] = False
    placeable: ClassVar[bool] = False
    per_version: ClassVar[None] = None  # off-policy: an actor never waits for a version
    max_lag: ClassVar[None] = None  # a chunk of any age will do

    @property
    def room(self) -> int:
        """The capacity."""
        return self.capacity

    @property
    def batch_units(self) -> int:
        """A batch consumes the rows of its chunks."""
        return self.batch * self.steps

    @property
    def serial_ratio(self) -> float:
        """What the algorithm says."""
        return self.ratio

    @property
    def freshness(self) -> float:
        """P = B_s / N_s, in rows."""
        return self.batch_units / self.capacity

    def chunk(self, trajectory: Schema) -> Schema:
        """One chunk: the trajectory's fields without their axis E."""
        length, _ = axes_of(trajectory)
        told = {field.name for field in observed_fields(trajectory)}
        longer = Schema(tuple(observed_fields(trajectory))).stacked(length + 1).fields
        per_step = [f for n, f in step_fields(trajectory).items() if n not in told | {FIRST}]
        named = {field.name: field for field in trajectory.fields}
        first = (Field(IS_FIRST, "bool", (length + 1,)),) if FIRST in named else ()
        memory: tuple[Field, ...] = ()
        if MEMORY in named:
            memory = (Field(MEMORY, named[MEMORY].dtype, named[MEMORY].shape[1:]),)
        return Schema((*longer, *Schema(tuple(per_step)).stacked(length).fields, *first, *memory))

    def batch_schema(self, trajectory: Schema) -> Schema:
        """`batch` chunks, with what is known of each."""
        about = (Field("version", "int64"), Field("age", "int64"), Field("new", "bool"))
        return Schema((*self.chunk(trajectory).fields, *about)).stacked(self.batch)

    def n_chunks(self, trajectory: Schema) -> int:
        """Chunks that are kept: those of whole trajectories."""
        _, n_envs = axes_of(trajectory)
        return n_envs * max(1, math.ceil(self.capacity / (self.steps * n_envs)))

    def build(self, trajectory: Schema, n_sources: int, slack: int, seed: int) -> SequenceStore:
        """The chunks, empty."""
        return SequenceStore(self, trajectory, seed)

    def n_bytes(self, trajectory: Schema, n_sources: int, slack: int) -> int:
        """Bytes of all chunks."""
        fields = (*self.chunk(trajectory).fields, *ABOUT)
        return self.n_chunks(trajectory) * sum(field.n_bytes for field in fields)


class SequenceStore(Overwritten):
    """Chunks in the order in which they came; a trajectory's lie side by side."""

    def __init__(self, sampling: Sequences, trajectory: Schema, seed: int) -> None:
        length, self._n_envs = axes_of(trajectory)
        assert length == sampling.steps, "a chunk is as long as a trajectory"
        self._sampling = sampling
        self._n = sampling.n_chunks(trajectory)
        self._chunk = sampling.chunk(trajectory)
        # Memory is committed when it is first written.
        self._kept = {f.name: np.zeros(f.shape, f.dtype) for f in self._layout(self._n).fields}
        self._observed = [field.name for field in observed_fields(trajectory)]
        self._written = 0  # trajectories
        self._received = 0  # environment steps
        self._random = np.random.default_rng(seed)

    def _layout(self, n: int) -> Schema:
        return Schema((*self._chunk.fields, *ABOUT)).stacked(n)

    def add(self, source: int, trajectory: Arrays, version: int) -> Amount:
        """Copies the E chunks of a trajectory over the oldest; rows not filled are not valid."""
        start = self._written * self._n_envs % self._n
        place = {name: a[start : start + self._n_envs] for name, a in self._kept.items()}
        for field in self._chunk.fields:
            array = trajectory[FIRST if field.name == IS_FIRST else field.name]
            place[field.name][...] = array if field.name == MEMORY else array.swapaxes(0, 1)
        self._blank(place, int(trajectory["length"]))
        steps = place["valid"].sum(1)
        self._received += int(steps.sum())
        place["version"][...], place["born"][...] = version, self._received
        place["drawn"][...], place["steps"][...] = False, steps
        self._written += 1
        return Amount(int(steps.sum()), self._sampling.steps * self._n_envs)

    def _blank(self, place: Arrays, length: int) -> None:
        """What a trajectory that was sent early does not hold is nothing, seen from its end."""
        if length == self._sampling.steps:
            return
        place["valid"][:, length:] = False
        for name in ("terminated", "truncated"):
            place[name][:, length:] = False
        if IS_FIRST in place:
            place[IS_FIRST][:, length + 1 :] = False
        for name in self._observed:
            place[name][:, length + 1 :] = place[name][:, length : length + 1]

    @property
    def _used(self) -> int:
        """Chunks to draw from."""
        return min(self._written * self._n_envs, self._n)

    def size(self) -> int:
        """Rows of all chunks."""
        return self._used * self._sampling.steps

    def ready(self) -> bool:
        """Whether any chunk can be drawn."""
        return self._written > 0

    def clear(self) -> Amount:
        """Drops every chunk; ages go on being counted from when one came."""
        dropped = Amount(int(self._kept["steps"][: self._used].sum()), self.size())
        self._written = 0
        return dropped

    def draw(self, out: Arrays) -> None:
        """Draws `batch` chunks; the same one twice only while there are fewer."""
        n, used = self._sampling.batch, self._used
        chosen: npt.NDArray[np.int64] = self._random.choice(used, n, replace=n > used)
        kept = self._kept
        for field in self._chunk.fields:
            kept[field.name].take(chosen, 0, out[field.name], "clip")  # "raise" copies twice
        kept["version"].take(chosen, 0, out["version"])
        np.subtract(self._received, kept["born"][chosen], out=out["age"])
        np.logical_not(kept["drawn"][chosen], out=out["new"])
        kept["drawn"][chosen] = True

    def state(self) -> State:
        """Views of the chunks that are kept, and where writing and drawing stand."""
        return {
            "chunks": {name: array[: self._used] for name, array in self._kept.items()},
            "room": self._n,
            "written": self._written,
            "received": self._received,
            "random": random_state(self._random),
        }

    def restore(self, state: State) -> None:
        """Copies the chunks of a store of the same size."""
        if state["room"] != self._n:
            raise TianJiError(
                f"sequences: room for {state['room']} chunks was saved, and this store has room "
                f"for {self._n}: resume with the same hyp.buffer_size, hyp.step_len and "
                "environments"
            )
        self._written, self._received = state["written"], state["received"]
        self._layout(self._used).check(state["chunks"], "saved sequences")
        for name, array in state["chunks"].items():
            self._kept[name][: self._used] = array
        restore_random(self._random, state["random"])
