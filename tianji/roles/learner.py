"""Learners: batches in, weights out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tianji.core.algorithm import Algorithm, Weights
from tianji.core.channel import Inbox, Message, Outbox, Peeking
from tianji.core.counts import Count, Vector
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.core.store import feedback_of
from tianji.core.tracer import What
from tianji.roles.allreduce import AllReduce
from tianji.roles.episodes import Clock
from tianji.roles.fusion import Fusion, adopt
from tianji.roles.role import Role
from tianji.roles.sample_stats import LOST, SampleStats
from tianji.roles.trigger import PublishTrigger

MOST_BAD = 10  # updates in a row that may be skipped


class Learner(Role):
    """Turns batches into weights, alone or together with others that have parts of each batch."""

    def __init__(
        self,
        name: str,
        algorithm: Algorithm,
        batches: Inbox,
        weights: Outbox | None,  # the first learner of a group publishes for all
        control: Inbox,
        trigger: PublishTrigger,
        max_updates: int | None = None,
        clock: Clock = time.monotonic,
        exchange: AllReduce | None = None,
        fusion: Fusion | None = None,
        feedback: Outbox | None = None,  # to the buffer, where the sampling reweighs
        counts: Vector | None = None,
    ) -> None:
        super().__init__(name, counts)
        self.algorithm = algorithm
        self.batches = batches
        self.weights = weights
        self.control = control
        self.trigger = trigger
        self.version = 0
        self._max_updates = max_updates
        measured = self.counts, algorithm.scalars, clock, algorithm.n_left_out
        self.consumption = SampleStats(*measured)
        self.rescue: Callable[[Learner], str | None] | None = None  # from the newest checkpoint
        self._rescued_from = ""  # which one
        self.published = False  # anything yet
        self.exchange = exchange  # with the other learners of the group, if there are any
        self.fusion = fusion  # with other groups, if there are any
        self._feedback = feedback
        self._batch: Arrays = {}  # of an update that the others are needed for
        self._begun: tuple[Arrays, dict[str, Any]] | None = None  # that a device may still make
        self._peek = batches.peek if isinstance(batches, Peeking) else lambda: None
        self._ahead: tuple[int, Any] | None = None  # number of the next batch, which is staged

    def step(self) -> bool:
        """Learns from one batch, if one has come."""
        if self.exchange is not None and self.exchange.running:
            return self._go_on(self.exchange)
        if self._begun is not None:
            return self._end(*self._begun)
        if self.control.closed or self.version == self._max_updates:
            return self._finish()
        if self.consumption.bad_in_a_row >= MOST_BAD:
            self._go_back()
        if not self.published:  # not when it is made: it may be about to be restored
            self.publish()
        self.tracer.begin()
        if (message := self.batches.take()) is None:  # ❶ load what has come
            return self._finish() if self.batches.closed else False
        if message.version < 0:
            return self._give_up()
        self.tracer.received(What.BATCH, message)
        if self.exchange is not None:
            self._batch = message.arrays
            correction = None if self.fusion is None else self.fusion.correction()
            staged = self.algorithm.stage(self._batch)
            self.exchange.begin(self.algorithm.updates(staged), correction)
            return self._go_on(self.exchange) or True
        self.tracer.begin()
        scalars = self.algorithm.learn(self._staged(message))  # ❷ learn
        self.tracer.updated()
        if self.algorithm.overlaps:  # the buffer makes the next batch meanwhile
            self._begun = message.arrays, scalars
        else:
            self._learned(message.arrays, scalars)
        return True

    def _staged(self, message: Message) -> Any:
        """The batch where it is learned from; it may be there already."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == message.sequence:
            return ahead[1]
        return self.algorithm.stage(message.arrays)

    def _end(self, batch: Arrays, scalars: dict[str, Any]) -> bool:
        """Stages the next batch, if one waits, before the device is waited for."""
        if (message := self._peek()) is not None and message.version >= 0:
            self._ahead = message.sequence, self.algorithm.stage(message.arrays)
        self._begun = None
        self._learned(batch, scalars)
        return True

    def _give_up(self) -> bool:
        """What was collected for it was lost with its buffer: actors wait for the version after."""
        self.version += 1
        self.counts[Count.VERSION] = self.version
        self.publish()
        return True

    @property
    def settled(self) -> bool:
        """False in the middle of an update."""
        running = self.exchange is not None and self.exchange.running
        return not running and self._begun is None

    def waits_for(self) -> Count:
        """The gradients of the others in the middle of an update, otherwise a batch."""
        running = self.exchange is not None and self.exchange.running
        return Count.WAITED_GRADIENTS if running else Count.WAITED_BATCH

    def _go_on(self, exchange: AllReduce) -> bool:
        """Learns as far as the gradients of the others have come."""
        moved = exchange.step()
        if exchange.scalars is not None:
            self._fuse(exchange.correction, self._batch)
            self._learned(self._batch, exchange.scalars)
        return self._finish() if exchange.broken else moved

    def _learned(self, batch: Arrays, scalars: dict[str, Any]) -> None:
        if self._feedback is not None:
            self._send_back(self._feedback, batch, scalars.pop("priorities", None))
        self.version += 1
        # First: by it a replacement knows what was learned from, and counts nothing twice.
        self.counts[Count.VERSION] = self.version
        self.consumption.add(batch, self.version - 1, scalars)
        self.counts[Count.QUEUE] = self.batches.waiting
        if self.fusion is not None:
            if self.exchange is None:  # several learners had the correction with their gradients
                self._fuse(self.fusion.correction(), batch)
            self.fusion.offer(self.algorithm.parameters, self.version)
            self.counts[Count.FUSIONS] = self.fusion.n_fusions
            self.counts[Count.REFUSED] = self.fusion.refused
        if self.trigger.fires(self.version):  # ❷ and send, if it is time
            self.publish()

    def _fuse(self, correction: Weights | None, batch: Arrays) -> None:
        """Takes in the mean of the groups, if it has come."""
        if correction is None:
            return
        if self.fusion is None:  # of another learner of the group, which measures for all
            self.algorithm.shift(correction)
        else:
            self.counts[Count.FUSION_KL] = adopt(self.algorithm, correction, batch)

    def _go_back(self) -> None:
        """Too many updates in a row were skipped: once, an earlier algorithm is tried again."""
        n, trouble = self.consumption.bad_in_a_row, self.consumption.trouble
        before, self._rescued_from = self._rescued_from, ""
        if self.rescue is not None and not before:
            self._rescued_from = self.rescue(self) or ""
        if not self._rescued_from:
            tried = f"; going back to {before} did not help" if before else ""
            raise TianJiError(
                f"{self.name}: {n} updates in a row were skipped, {trouble}{tried}: {LOST}"
            )
        self.consumption.bad_in_a_row = 0
        self.counts[Count.GONE_BACK] += 1
        self.publish()

    def _send_back(self, feedback: Outbox, batch: Arrays, priorities: Any) -> None:
        """Tells the buffer how much each sample still has to teach; a full channel forgets it."""
        rows = feedback_of(batch, priorities)
        if not feedback.push(rows, self.version):
            self.counts[Count.LATE_PRIORITIES] += len(rows["row"])

    def publish(self) -> None:
        """Sends the weights to whoever reads them."""
        if self.weights is not None:
            self.tracer.begin()
            self.weights.push({"weights": self.algorithm.weights()}, self.version)
            self.tracer.sent(What.WEIGHTS, self.version)
            self.counts[Count.PUSHED] += 1
        self.published = True

    def _finish(self) -> bool:
        self.publish()
        for end in (self.weights, self.fusion, self.exchange, self.batches, self._feedback):
            if end is not None:
                end.close()
        self.done = True
        return True

    def report(self) -> Arrays:
        """Counters, and what was measured of the samples consumed."""
        return self.consumption.report()
