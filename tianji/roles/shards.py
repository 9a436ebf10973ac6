"""One batch for several learners: the sending ends of their channels as if they were one."""

from __future__ import annotations

from collections.abc import Sequence

from tianji.core.channel import Copying, Outbox
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays, Field, Schema


def shard_schema(batch: Schema, n: int) -> Schema:
    """The layout of one of `n` equal parts of a batch, cut along its first axis."""
    for field in batch.fields:
        if not field.shape or field.shape[0] % n:
            raise TianJiError(
                f"learner_cfg.num: {n} learners cannot get equal parts of a batch whose {field} "
                f"has no first axis that is a multiple of {n}"
            )
    return Schema(
        tuple(Field(f.name, f.dtype, (f.shape[0] // n, *f.shape[1:])) for f in batch.fields)
    )


class Shards(Copying):
    """An outbox that sends each of several learners its part of every batch, or nobody anything."""

    def __init__(self, outboxes: Sequence[Outbox], batch: Schema) -> None:
        self._outboxes = outboxes
        self._whole = batch.empty()
        self._slots: list[Arrays] = []
        self.refused = 0

    @property
    def in_flight(self) -> int:
        """Batches that some learner is not finished with."""
        return max(outbox.in_flight for outbox in self._outboxes)

    def slot(self) -> Arrays | None:
        """Room for a whole batch, while every learner has room for its part."""
        slots = [outbox.slot() for outbox in self._outboxes]
        self._slots = [slot for slot in slots if slot is not None]
        if len(self._slots) < len(slots):
            self.refused += 1
            return None
        return self._whole

    def commit(self, version: int) -> None:
        """Cuts the batch into parts of equal size and sends them."""
        for i, (outbox, slot) in enumerate(zip(self._outboxes, self._slots, strict=True)):
            for name, part in slot.items():
                n = len(part)
                part[...] = self._whole[name][i * n : (i + 1) * n]
            outbox.commit(version)

    @property
    def abandoned(self) -> bool:
        """True when a learner has closed its end: the others can do nothing without it."""
        return any(outbox.abandoned for outbox in self._outboxes)

    def close(self) -> None:
        """Ends the stream of every learner."""
        for outbox in self._outboxes:
            outbox.close()
