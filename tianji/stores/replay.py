"""Off-policy sampling: how many of the last samples are kept, and what is drawn of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tianji.core.frames import FIRST, STACKED, TICKET, shape_seen
from tianji.core.schema import Field, Schema
from tianji.core.store import axes_of, observed_fields, stack_of, step_fields
from tianji.models.device_frames import DeviceFrames
from tianji.stores.replay_store import ReplayStore

ABOUT = (
    Field("ends", "bool"),  # terminated or truncated
    Field("version", "int64"),  # of the policy that acted
    Field("born", "int64"),  # environment steps received by then
    Field("drawn", "bool"),  # at least once
)
"""What is kept of every sample besides its trajectory's fields."""

MADE_OF = {"reward", "terminated", "truncated", "valid"}  # what `reward` and `discount` come from


@dataclass(frozen=True)
class Replay:
    """Uniform draws, with replacement, from the last `capacity` samples, with n-step returns."""

    batch: int  # samples per update (B_s)
    capacity: int  # samples kept (N_s)
    warmup: int  # samples before the first update
    gamma: float = 0.99
    n_step: int = 1
    updates_per_step: float = 1.0  # of serial training
    device: str | None = None  # where the frames of `obs` are kept; None: beside all else

    unit: ClassVar[str] = "samples"
    once: ClassVar[bool] = False
    reweighs: ClassVar[bool] = False
    placeable: ClassVar[bool] = True
    per_version: ClassVar[None] = None  # off-policy: an actor never waits for a version
    max_lag: ClassVar[None] = None  # a sample of any age will do

    @property
    def room(self) -> int:
        """The capacity."""
        return self.capacity

    @property
    def batch_units(self) -> int:
        """A batch consumes its samples."""
        return self.batch

    @property
    def serial_ratio(self) -> float:
        """Samples consumed per sample produced in serial training."""
        return self.batch * self.updates_per_step

    @property
    def freshness(self) -> float:
        """P = B_s / N_s."""
        return self.batch / self.capacity

    def drawn(self, trajectory: Schema) -> list[Field]:
        """Fields that go into a batch as they are: the action and what the policy added to it."""
        observed = {field.name for field in observed_fields(trajectory)}
        made_of = {*observed, *(f"final_{name}" for name in observed), *MADE_OF, FIRST}
        return [field for name, field in step_fields(trajectory).items() if name not in made_of]

    def batch_schema(self, trajectory: Schema) -> Schema:
        """One row per sample."""
        stack = stack_of(trajectory)
        fields = [f for f in observed_fields(trajectory) if not self._apart(f)]
        observed = [Field(f.name, f.dtype, shape_seen(f, stack)) for f in fields]
        ticket = () if self.device is None else (Field(TICKET, "int64"),)
        rows = (
            *ticket,
            *observed,
            *(Field(f"next_{f.name}", f.dtype, f.shape) for f in observed),
            *self.drawn(trajectory),
            step_fields(trajectory)["reward"],  # discounted sum over the steps up to next_obs
            Field("discount", "float32"),  # gamma ** steps, 0 where the task ended
            Field("version", "int64"),  # of the policy that acted
            Field("age", "int64"),  # environment steps received since
            Field("new", "bool"),  # drawn for the first time
        )
        return Schema(rows).stacked(self.batch)

    def build(self, trajectory: Schema, n_sources: int, slack: int, seed: int) -> ReplayStore:
        """The rings, empty."""
        return ReplayStore(self, trajectory, n_sources, seed)

    def steps_per_source(self, trajectory: Schema, n_sources: int) -> int:
        """Steps kept for each actor, each of E samples."""
        _, n_envs = axes_of(trajectory)
        return max(1, math.ceil(self.capacity / (n_sources * n_envs)))

    def n_rows(self, trajectory: Schema, n_sources: int) -> int:
        """Rows of all rings: those that are kept, the newest of each, and what is seen with them.

        A policy that sees k frames needs k - 1 frames before the oldest step.
        """
        _, n_envs = axes_of(trajectory)
        kept = self.steps_per_source(trajectory, n_sources)
        return n_sources * n_envs * (kept + stack_of(trajectory))

    def row(self, trajectory: Schema) -> Schema:
        """What is kept of each sample in the CPU's memory."""
        fields = [f for f in step_fields(trajectory).values() if not self._apart(f)]
        return Schema((*fields, *ABOUT))

    def _apart(self, field: Field) -> bool:
        return self.device is not None and field.name == STACKED

    def n_bytes(self, trajectory: Schema, n_sources: int, slack: int) -> int:
        """Bytes of all rings."""
        fields = self.row(trajectory).fields
        return self.n_rows(trajectory, n_sources) * sum(field.n_bytes for field in fields)

    def n_device_bytes(self, trajectory: Schema, n_sources: int) -> int:
        """Bytes of the frames, and of the batches drawn from them, on a device."""
        if self.device is None:
            return 0
        n_rows, frame = self.n_rows(trajectory, n_sources), step_fields(trajectory)[STACKED]
        return DeviceFrames.n_bytes(frame, n_rows, stack_of(trajectory), self.batch)
