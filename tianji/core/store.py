"""Local storage of a buffer: what a trajectory is, and what any store promises.

An algorithm's `sampling` says how batches are made, by its properties: whether a sample is handed
out once (on-policy) or again and again, how many make a batch, whether the learner weighs them
anew. Each kind is a file in `stores/`; nobody else asks which kind it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.frames import BEFORE, FIRST, MEMORY
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import State


class Amount(NamedTuple):
    """How much came, or went, in the two ways of counting."""

    steps: int  # valid environment steps
    units: int  # what the balance counts: steps, or rows of whole trajectories


class Store(Protocol):
    """What a buffer needs of its storage.

    Optionally it has `state` and `restore` as well (see `core/state.py`): with them a checkpoint
    can keep the samples, and without them a resumed run fills the store anew.
    """

    def add(self, source: int, trajectory: Arrays, version: int) -> Amount:
        """Copies a trajectory of actor `source`; the arrays may be reused afterwards."""

    def size(self) -> int:
        """Samples to draw from, in the balance's units."""

    def ready(self) -> bool:
        """Whether there is enough to draw from."""

    def expire(self, learner_version: int) -> Amount:
        """Drops what would be too old for a learner of this version."""

    def clear(self) -> Amount:
        """Drops everything, and says how much that was."""

    def rejoin(self, n_lost: int) -> Amount:
        """Goes on without the last `n_lost` batches, which nobody learned from; what is gone.

        A negative number says that the learner had that many more than were handed out by then.
        """

    def draw(self, out: Arrays) -> None:
        """Fills `out` with a batch; there must be enough to draw from."""

    def reweigh(self, feedback: Arrays) -> int:
        """Takes the learner's priorities of samples it drew; returns how many came too late.

        Called only where the sampling `reweighs`; `feedback` is as `feedback_schema` lays it out.
        """


class Overwritten:
    """A store of which everything stays until newer samples take its place; draws are uniform."""

    def expire(self, learner_version: int) -> Amount:
        """Nothing: a sample stays until it is overwritten."""
        return Amount(0, 0)

    def rejoin(self, n_lost: int) -> Amount:
        """Loses nothing: what a lost batch held is still here."""
        return Amount(0, 0)

    def reweigh(self, feedback: Arrays) -> int:
        """Draws are uniform: nobody sends priorities."""
        raise NotImplementedError


@runtime_checkable
class Recoverable(Protocol):
    """A store that can go on from what was saved of another, some time before that was lost."""

    def restore(self, state: State) -> None:
        """Holds what the other held when it was saved."""

    def miss(self, n_steps: int) -> None:
        """Is told how many steps the other took after that: what they had overwritten goes too."""


class Sampling(Protocol):
    """How batches are made: plain numbers from which any process can derive shapes and sizes."""

    @property
    def batch(self) -> int:
        """Samples, or trajectories, of one batch: the length of its first axis."""

    @property
    def unit(self) -> str:
        """What `batch` counts, in the user's words: "samples", "rollouts"."""

    @property
    def once(self) -> bool:
        """Whether each sample is handed out once: then fresh counts more than fast."""

    @property
    def room(self) -> int | None:
        """Samples kept before newer ones take their place; None: as many as are needed."""

    @property
    def placeable(self) -> bool:
        """Whether its field `device` says where frames are kept."""

    @property
    def reweighs(self) -> bool:
        """Whether the learner sends priorities back: `learn` returns them beside its scalars."""

    @property
    def warmup(self) -> int:
        """Units that are received before the first batch is drawn."""

    @property
    def batch_units(self) -> int:
        """What one batch takes from the balance."""

    @property
    def serial_ratio(self) -> float:
        """Samples consumed per sample produced in serial training."""

    @property
    def per_version(self) -> int | None:
        """Synchronous training: trajectories that each actor sends per version; otherwise None."""

    def batch_schema(self, trajectory: Schema) -> Schema:
        """The layout of one batch."""

    @property
    def max_lag(self) -> int | None:
        """Updates that a sample may be behind the learner when it is drawn; None: any number."""

    @property
    def freshness(self) -> float:
        """P of equation 2: the batch over what it is drawn from."""

    def build(self, trajectory: Schema, n_sources: int, slack: int, seed: int) -> Store:
        """The storage itself; `slack` units may come before those there are drawn."""

    def n_bytes(self, trajectory: Schema, n_sources: int, slack: int) -> int:
        """Bytes that `build` will take."""


@runtime_checkable
class Placed(Protocol):
    """A sampling whose store may take memory of a device."""

    @property
    def room(self) -> int | None:
        """As of any `Sampling`."""

    def n_device_bytes(self, trajectory: Schema, n_sources: int) -> int:
        """Bytes that `build` will take there."""


def trajectory_schema(env: EnvSpec, extra: tuple[Field, ...], length: int) -> Schema:
    """The layout of a trajectory: T = `length` steps of E environments.

    What is observed has T+1 rows, so that the successor of every step is there once. `extra` is
    what the policy returns besides its actions. `length` holds the number of rows that are filled.
    Where a policy sees several frames at once, two fields tell which: see `core/frames.py`. There
    is `memory` as well: what is called so is kept once, as it was before the first row.
    """
    memory = tuple(field for field in extra if field.name == MEMORY)
    per_step = (
        Field("action", env.action.dtype, env.action.shape),
        *(field for field in extra if field.name != MEMORY),
        env.reward,
        Field("terminated", "bool"),
        Field("truncated", "bool"),
        Field("valid", "bool"),
        *(_named("final_", f) for f in env.observations if env.same_step),
    )
    return Schema(
        (
            Field("length", "int64"),
            *Schema(env.observations).stacked(length + 1, env.n_envs).fields,
            *Schema(per_step).stacked(length, env.n_envs).fields,
            *_history(env, length, memory),
        )
    )


def n_valid(trajectory: Arrays) -> int:
    """Valid environment steps in the rows that are filled."""
    return int(np.count_nonzero(trajectory["valid"][: int(trajectory["length"])]))


def _history(env: EnvSpec, length: int, memory: tuple[Field, ...]) -> tuple[Field, ...]:
    """Where episodes begin, the frames before the first, and what was remembered of the past.

    Nothing where no frames are stacked and nothing is remembered.
    """
    if env.stack == 1 and not memory:
        return ()
    e = env.n_envs
    first = Field(FIRST, "bool", (length + 1, e))
    kept = Schema(memory).stacked(e).fields
    if env.stack == 1:
        return first, *kept
    frame = env.inputs[0]
    return first, Field(BEFORE, frame.dtype, (env.stack - 1, e, *frame.shape)), *kept


def keep(decision: Arrays, rows: Arrays, t: int) -> None:
    """Copies what a policy decided into row `t` of a trajectory."""
    for name, array in decision.items():
        if name != MEMORY:
            rows[name][t] = array
        elif t == 0:
            rows[name][...] = array


def stack_of(trajectory: Schema) -> int:
    """How many frames a policy sees at once, by a trajectory's layout."""
    return next((f.shape[0] for f in trajectory.fields if f.name == BEFORE), 0) + 1


def _named(prefix: str, field: Field) -> Field:
    return Field(prefix + field.name, field.dtype, field.shape)


def axes_of(trajectory: Schema) -> tuple[int, int]:
    """(T, E) of a trajectory's layout."""
    shape = next(f.shape for f in trajectory.fields if f.name == "valid")
    return shape[0], shape[1]


def step_fields(trajectory: Schema) -> dict[str, Field]:
    """Per-step fields of a trajectory without their axes T and E, what is observed first."""
    fields = [f for f in trajectory.fields if f.name not in ("length", BEFORE, MEMORY)]
    return {f.name: Field(f.name, f.dtype, f.shape[2:]) for f in fields}


def observed_fields(trajectory: Schema) -> list[Field]:
    """What is observed, without the axes T and E: the fields that have T+1 rows."""
    length, _ = axes_of(trajectory)
    told = (BEFORE, FIRST, MEMORY)
    fields = [f for f in trajectory.fields if f.shape[:1] == (length + 1,) and f.name not in told]
    return [Field(f.name, f.dtype, f.shape[2:]) for f in fields]


def feedback_schema(batch: int) -> Schema:
    """What goes back from a learner to its buffer: which samples, and their new priorities.

    `generation` tells whether a row still holds the sample that was drawn from it.
    """
    fields = (Field("row", "int64"), Field("generation", "int64"), Field("priority", "float32"))
    return Schema(fields).stacked(batch)


def feedback_of(batch: Arrays, priorities: Any) -> Arrays:
    """The rows of a batch with what `learn` returned as its priorities, numbers or a tensor."""
    if priorities is None:
        raise TianJiError("learn must return 'priorities', because its sampling reweighs")
    if hasattr(priorities, "detach"):
        priorities = priorities.detach().cpu()
    priority = np.asarray(priorities, np.float32)
    if priority.shape != batch["row"].shape:
        want, got = list(batch["row"].shape), list(priority.shape)
        raise TianJiError(f"learn returned priorities {got}: want one for each sample, {want}")
    return {"row": batch["row"], "generation": batch["generation"], "priority": priority}
