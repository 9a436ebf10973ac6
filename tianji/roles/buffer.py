"""Buffers: they hold what was produced, and with it the balance of production and consumption."""

from __future__ import annotations

from collections.abc import Sequence

from tianji.core.balance import Balance
from tianji.core.channel import Inbox, Message, Outbox, empty_handed, is_away
from tianji.core.counts import Count, Vector
from tianji.core.store import Store, n_valid
from tianji.core.tracer import What
from tianji.roles.role import Role


class Buffer(Role):
    """Holds what was produced, and with it the balance of production and consumption."""

    def __init__(
        self,
        name: str,
        trajectories: Sequence[Inbox],
        batches: Outbox,
        store: Store,
        balance: Balance,
        max_steps: int | None = None,
        in_turns: bool = False,  # an actor goes on when its next trajectory is looked for
        in_order: bool = False,  # one actor after the other, whoever is first
        feedback: Sequence[Inbox] = (),  # priorities from learners, where the sampling reweighs
        counts: Vector | None = None,
    ) -> None:
        super().__init__(name, counts)
        self._in_turns, self._in_order = in_turns, in_order
        self.trajectories = trajectories
        self.batches = batches
        self.store = store
        self.balance = balance
        self._feedback = feedback
        self._max_steps = max_steps
        self.received = 0
        self.handed = 0  # batches handed out, so also the learner's version when it takes the next
        self.next = 0  # whose turn it is
        self.opening = len(trajectories) if in_order else 0  # who have to send before a batch is
        self.given_up: int | None = None  # a version of which nothing is left to learn from
        self.since = 0  # the first batch of this buffer, if it took the place of another
        self.received_before = 0  # units that this other had counted
        self._closed = False

    def step(self) -> bool:
        """Receives at most one trajectory of each actor and hands out at most one batch."""
        if self.batches.abandoned:  # the learner is done: what is left is for nobody
            for inbox in self.trajectories:
                inbox.free()  # what it has counted is not on its way any more
            self.batches.close()
            self.done = True
            return True
        if self._closed:
            return False  # the learner may still be busy with the last batch
        if self.given_up is not None:
            return self._give_up(self.given_up)
        for inbox in self._feedback:
            self._reweigh(inbox)
        moved = self._receive()  # ❻
        if self._send():  # ❼
            return True
        if not moved and self._ended() and not self._owes():
            self.batches.close()
            self._closed = moved = True
        return moved

    def _give_up(self, version: int) -> bool:
        """Hands out a batch with nothing in it, for actors that have sent all for this version."""
        if self.batches.slot() is None:
            return False
        self.batches.commit(empty_handed(version))
        self.given_up = None
        return True

    def _reweigh(self, inbox: Inbox) -> None:
        """Takes all priorities that have come: the next batch is drawn with them."""
        self.tracer.begin()
        while (message := inbox.take()) is not None:
            if message.version < self.since:  # of samples that a lost buffer had
                self.counts[Count.LATE_PRIORITIES] += len(message.arrays["row"])
                continue
            self.counts[Count.LATE_PRIORITIES] += self.store.reweigh(message.arrays)
            self.tracer.received(What.PRIORITIES, message)
            self.tracer.begin()

    def _receive(self) -> bool:
        moved, n, first = False, len(self.trajectories), self.next
        for source in (*range(first, n), *range(first)):
            if self._full() or not self._may_receive():
                break  # the inboxes fill up, and so the actors are paced
            self.tracer.begin()
            if (message := self.trajectories[source].take()) is not None:
                self._store(source, message)
                if not self._in_turns:
                    self.trajectories[source].free()  # it was copied: the actor may go on
                self.next, moved = (source + 1) % n, True  # after the last one: nobody is starved
                self.opening = max(0, self.opening - 1)
            elif self._in_order and not self._is_gone(source):
                break
        return moved

    def _is_gone(self, source: int) -> bool:
        """Whether nobody is at the other end, for now or for good: the next one's turn comes."""
        inbox = self.trajectories[source]
        return inbox.closed or is_away(inbox)

    def refuse(self, steps: int) -> None:
        """Counts what came too late to be of use."""
        self._count(steps)
        self.counts[Count.DROPPED] += steps

    def _count(self, steps: int) -> None:
        self.received += steps
        self.counts[Count.RECEIVED] = self.received

    def _store(self, source: int, message: Message) -> None:
        self._count(n_valid(message.arrays))  # first: what was taken is not on its way any more
        added = self.store.add(source, message.arrays, message.version)
        self.tracer.received(What.TRAJECTORY, message, source)
        self.balance.receive(added.units)
        self.counts[Count.UNITS_RECEIVED] = max(self.balance.received, self.received_before)
        self.counts[Count.QUEUE] = sum(inbox.waiting for inbox in self.trajectories)

    def _send(self) -> bool:
        expired = self.store.expire(self.handed)
        self.balance.forget(expired.units)  # what is too old counts as never received
        self.counts[Count.DROPPED] += expired.steps
        if not self._owes():
            return False
        if (batch := self.batches.slot()) is None:
            self.counts[Count.REFUSED] = self.batches.refused
            return False
        self.counts[Count.FRESHNESS] += min(1.0, self.balance.batch / self.store.size())
        self.tracer.begin()
        self.store.draw(batch)
        self.batches.commit(self.handed)
        self.tracer.sent(What.BATCH, self.handed)
        self.balance.consume()
        self.handed += 1
        self.counts[Count.PUSHED] = self.handed
        self.counts[Count.UNITS_CONSUMED] = self.balance.consumed
        return True

    def _owes(self) -> bool:
        """Whether one more batch can and may be handed out."""
        return not self.opening and self.store.ready() and self.balance.may_consume()

    def _may_receive(self) -> bool:
        in_flight = self.batches.in_flight
        if self.opening or (in_flight == 0 and not self.store.ready()):
            return True  # whatever is owed, there is nothing to pay it with
        return self.balance.may_produce(in_flight * self.balance.batch, self.apart)

    def waits_for(self) -> Count:
        """Trajectories, or the learner: to take a batch, or to learn from those it has."""
        held_up = self._owes() or not self._may_receive()
        return Count.WAITED_ROOM if held_up else Count.WAITED_TRAJECTORIES

    def _full(self) -> bool:
        return self._max_steps is not None and self.received >= self._max_steps

    def _ended(self) -> bool:
        return self._full() or all(inbox.closed for inbox in self.trajectories)
