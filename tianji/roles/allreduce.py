"""The gradients of the learners of one group, averaged without anyone waiting.

Every learner has its part of the batch and the same parameters. Whenever an update has a gradient,
the learner pushes it to each of the others and goes on when all of theirs have come:

    exchange.begin(algorithm.updates(batch))
    while exchange.scalars is None:
        exchange.step()                  # never waits; False: the others have not come so far

All sum in the order of the learners' numbers, so all get the same mean to the last bit and hold the
same parameters for ever. That is why what else may change them, a fusion with other groups, goes
the same way: the first learner announces it beside its gradients and sends it after the update.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

import numpy as np

from tianji.core.algorithm import Scalars, Weights
from tianji.core.channel import Inbox, Message, Outbox
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.tracer import NULL, Tracer, What

Update = Generator[Weights, None, Scalars]


def exchange_schema(n_parameters: int) -> Schema:
    """What learners of one group send each other."""
    return Schema(
        (
            Field("vector", "float32", (n_parameters,)),  # a gradient, or a correction
            Field("correction", "bool"),  # one follows when the update is done
        )
    )


class AllReduce:
    """One learner's share in the updates of its group."""

    def __init__(
        self,
        index: int,
        outboxes: Mapping[int, Outbox],
        inboxes: Mapping[int, Inbox],
        n_parameters: int,
    ) -> None:
        self._index = index
        self._outboxes = outboxes  # by the number of the learner that they lead to
        self._inboxes = inboxes  # by the number of the learner that they come from
        self._update: Update | None = None
        self._vector: Weights | None = None  # to be averaged
        self._correction: Weights | None = None  # of the first learner, for the others
        self._expects = False  # a correction of the first learner
        self._unsent: list[int] = []
        self._came: dict[int, Message] = {}
        self._missing: set[int] = set()
        self._result: Scalars = {}
        self._n_learners = len(outboxes) + 1
        self._sum = np.zeros(n_parameters, np.float32)
        self.tracer: Tracer = NULL  # of its learner
        self.broken = False  # another learner has ended, and so no update can be finished
        self.averaged = 0  # exchanges of this update that are complete
        self.scalars: Scalars | None = None  # what the update returned, once it is done
        self.correction: Weights | None = None  # to be added to the parameters then

    @property
    def running(self) -> bool:
        """Whether an update is in progress."""
        return self._update is not None

    def begin(self, update: Update, correction: Weights | None = None) -> None:
        """Starts an update; the first learner may add a `correction` for all."""
        assert correction is None or self._index == 0
        self._update, self._correction, self._expects = update, correction, False
        self.averaged, self.scalars, self.correction = 0, None, None
        self._advance()

    def step(self) -> bool:
        """Sends and takes what it can; False if nothing could be done."""
        moved = self._send()
        moved |= self._take()
        if self._unsent or self._missing:
            if not moved and self._has_lost_one():
                self._give_up()
            return moved
        if self._vector is not None:
            self._average(self._vector)
            self._advance()
        else:
            self._end()
        return True

    def close(self) -> None:
        """Says to the others that nothing more will come, and nothing more be taken."""
        for outbox in self._outboxes.values():
            outbox.close()
        for inbox in self._inboxes.values():
            inbox.close()

    def _has_lost_one(self) -> bool:
        gone = any(self._inboxes[i].closed for i in self._missing)
        return gone or any(self._outboxes[i].abandoned for i in self._unsent)

    def _give_up(self) -> None:
        """Another learner ended before this update, and so nobody has done any of it."""
        assert self._update is not None
        if self.averaged:
            raise RuntimeError("another learner of the group ended in the middle of an update")
        self._update.close()
        self._update, self.broken = None, True

    def _advance(self) -> None:
        """Runs the update to its next gradient, or to its end."""
        assert self._update is not None
        self.tracer.begin()
        try:
            self._vector = next(self._update)
        except StopIteration as end:
            self.tracer.updated()
            self._vector, self._result = None, end.value
            self._settle()
            return
        self.tracer.updated()
        self._check(self._vector)
        self._unsent, self._missing, self._came = list(self._outboxes), set(self._inboxes), {}
        self._send()

    def _check(self, vector: Weights) -> None:
        want, got = self._sum, vector
        if (got.dtype, got.shape) != (want.dtype, want.shape):
            raise TianJiError(
                f"updates must yield its gradient as {want.dtype}{list(want.shape)}, one number "
                f"for each of n_parameters, not {got.dtype}{list(got.shape)}"
            )

    def _settle(self) -> None:
        """After the last gradient: what all must add besides, if anything."""
        if not self.averaged:
            raise TianJiError("updates yielded no gradient: several learners would not be alike")
        if self._correction is not None:
            self.correction, self._unsent = self._correction, list(self._outboxes)
            self._send()
        elif self._expects:
            self._missing, self._came = {0}, {}
        if not self._unsent and not self._missing:
            self._end()

    def _end(self) -> None:
        if self._expects:
            self.correction = self._came[0].arrays["vector"]
        self.scalars, self._update = self._result, None

    def _send(self) -> bool:
        vector = self._correction if self._vector is None else self._vector
        if not self._unsent:
            return False
        assert vector is not None
        message = {"vector": vector, "correction": np.array(self._correction is not None)}
        still = [i for i in self._unsent if not self._push(i, message)]
        moved, self._unsent = len(still) < len(self._unsent), still
        return moved

    def _push(self, i: int, message: Arrays) -> bool:
        self.tracer.begin()
        pushed = self._outboxes[i].push(message, self.averaged)
        if pushed:
            self.tracer.sent(What.GRADIENT, self.averaged)
        return pushed

    def _take_from(self, i: int) -> Message | None:
        self.tracer.begin()
        message = self._inboxes[i].take()
        if message is not None:
            self.tracer.received(What.GRADIENT, message, i)
        return message

    def _take(self) -> bool:
        came = {i: message for i in self._missing if (message := self._take_from(i)) is not None}
        for i, message in came.items():
            assert message.version == self.averaged, "learners have lost step"
            if i == 0:
                self._expects = bool(message.arrays["correction"])
        self._came |= came
        self._missing -= came.keys()
        return bool(came)

    def _average(self, vector: Weights) -> None:
        """Writes the mean over the learners into `vector`; all add in the same order."""
        came = {i: message.arrays["vector"] for i, message in self._came.items()}
        came[self._index] = vector
        total = came[0]
        for i in range(1, self._n_learners):
            total = np.add(total, came[i], out=self._sum)
        np.divide(total, np.float32(self._n_learners), out=vector)
        self.averaged += 1
