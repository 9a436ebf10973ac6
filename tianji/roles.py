"""The roles of the paper's Figure 2: independent loops that owe each other only data.

A role has a `step` that does one bounded piece of work and returns at once: True if it did
something, False if there was nothing to do. It never waits. What it needs may come later; what it
makes may be refused for now; then it says False and an engine decides what to do with the time.

    Actor    acts in its environments, fills a trajectory, pushes it when its trigger fires   ❸ ❹ ❺
    Buffer   takes trajectories while more may be produced, and hands out batches while
             they may be consumed                                                             ❻ ❼
    Learner  learns from each batch and publishes its weights when its trigger fires          ❶ ❷
    Reducer  averages the parameters of several groups, see `reducer.py`

Whoever sees its input closed closes its output and is done. What roles remember: `memory.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from tianji.algorithms.base import Algorithm, Policy
from tianji.balance import Balance
from tianji.channel import Inbox, Message, Outbox
from tianji.consumption import Consumption
from tianji.counts import Count
from tianji.envs.base import Env
from tianji.episodes import Clock, EpisodeLog
from tianji.exchange import Exchange
from tianji.fusion import Fusion
from tianji.role import Role
from tianji.schema import Arrays
from tianji.store import Store
from tianji.trajectory import TrajectoryWriter
from tianji.trigger import PublishTrigger, PushTrigger


class Actor(Role):
    """Policy inference and simulation in one loop, so that an action never crosses a process."""

    def __init__(
        self,
        name: str,
        env: Env,
        policy: Policy,
        weights: Inbox,
        trajectories: Outbox,
        episodes: Outbox,
        trigger: PushTrigger,
        length: int,
        seed: int,
        per_version: int | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(name)
        self.env = env
        self.policy = policy
        self.weights = weights
        self.trigger = trigger
        self.version = -1  # nothing received yet
        self.per_version = per_version  # synchronous: this many trajectories per version, no more
        self._length = length
        self.seed = seed
        self.obs = env.reset(seed)
        self.trajectory = TrajectoryWriter(trajectories)
        self.log = EpisodeLog(env.spec.n_envs, episodes, clock)

    def step(self) -> bool:
        """Takes newer weights if there are any, then acts once in every environment."""
        if self.weights.closed:
            return self._finish()
        if (message := self.weights.take()) is not None:  # ❹ a newer model, if one has come
            self.policy.load(message.arrays["weights"], message.version)
            self.version = self.counts[Count.VERSION] = message.version
            self.counts[Count.WEIGHTS_TAKEN] += 1
        if not self.trajectory.is_open and not self._begin():
            return False
        decision = self.policy.act(self.obs)  # ❺ act, and ❸ keep what came of it
        step = self.env.step(decision["action"])
        self.obs = self.trajectory.add(decision, step)
        ended, length = self.log.add(step, self.version), self.trajectory.length
        if length == self._length or self.trigger.fires(length, ended):
            self._push()  # ❸ it is already where the buffer will read it
        return True

    def _begin(self) -> bool:
        """Opens the next trajectory, if it may be begun and the channel has room for it."""
        due = 0 if self.per_version is None else self.trajectory.sent // self.per_version
        if self.paused or self.version < due:
            return False
        begun = self.trajectory.begin(self.obs, self.version)
        self.counts[Count.REFUSED] = self.trajectory.refused
        return begun

    def _push(self) -> None:
        self.counts[Count.PRODUCED] += self.trajectory.push()
        self.counts[Count.PUSHED] = self.trajectory.sent
        self.log.push()

    def _finish(self) -> bool:
        self.log.push()
        self.trajectory.close()  # what was begun is given up
        self.done = True
        return True

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()


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
        ahead: int = 0,  # steps to have ready, beyond the slack, when it works beside its learner
    ) -> None:
        super().__init__(name)
        self._in_turns, self._ahead = in_turns, ahead
        self.trajectories = trajectories
        self.batches = batches
        self.store = store
        self.balance = balance
        self._max_steps = max_steps
        self.received = 0
        self.handed = 0  # batches handed out, so also the learner's version when it takes the next
        self.next = 0  # whose turn it is
        self._closed = False

    def step(self) -> bool:
        """Receives at most one trajectory of each actor and hands out at most one batch."""
        if self.batches.abandoned:  # the learner is done: what is left is for nobody
            self.batches.close()
            self.done = True
            return True
        if self._closed:
            return False  # the learner may still be busy with the last batch
        moved = self._receive()  # ❻
        if self._send():  # ❼
            return True
        if not moved and self._ended() and not self._owes():
            self.batches.close()
            self._closed = moved = True
        return moved

    def _receive(self) -> bool:
        moved, n, first = False, len(self.trajectories), self.next
        for source in (*range(first, n), *range(first)):
            if self._full() or not self._may_receive():
                break  # the inboxes fill up, and so the actors are paced
            if (message := self.trajectories[source].take()) is not None:
                self._store(source, message)
                if not self._in_turns:
                    self.trajectories[source].free()  # it was copied: the actor may go on
                self.next, moved = (source + 1) % n, True  # after the last one: nobody is starved
        return moved

    def _store(self, source: int, message: Message) -> None:
        added = self.store.add(source, message.arrays, message.version)
        self.balance.receive(added.units)
        self.received += added.steps
        self.counts[Count.RECEIVED] = self.received
        self.counts[Count.UNITS_RECEIVED] = self.balance.received
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
        self.store.draw(batch)
        self.batches.commit(self.handed)
        self.balance.consume()
        self.handed += 1
        self.counts[Count.PUSHED] = self.handed
        self.counts[Count.UNITS_CONSUMED] = self.balance.consumed
        return True

    def _owes(self) -> bool:
        """Whether one more batch can and may be handed out."""
        return self.store.ready() and self.balance.may_consume()

    def _may_receive(self) -> bool:
        in_flight = self.batches.in_flight
        if in_flight == 0 and not self.store.ready():
            return True  # whatever is owed, there is nothing to pay it with
        return self.balance.may_produce(in_flight * self.balance.batch, self._ahead * self.apart)

    def _full(self) -> bool:
        return self._max_steps is not None and self.received >= self._max_steps

    def _ended(self) -> bool:
        return self._full() or all(inbox.closed for inbox in self.trajectories)


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
        exchange: Exchange | None = None,
        fusion: Fusion | None = None,
    ) -> None:
        super().__init__(name)
        self.algorithm = algorithm
        self.batches = batches
        self.weights = weights
        self.control = control
        self.trigger = trigger
        self.version = 0
        self._max_updates = max_updates
        self.consumption = Consumption(self.counts, algorithm.scalars, clock)
        self.published = False  # anything yet
        self.exchange = exchange  # with the other learners of the group, if there are any
        self.fusion = fusion  # with other groups, if there are any
        self._batch: Arrays = {}  # of an update that the others are needed for

    def step(self) -> bool:
        """Learns from one batch, if one has come."""
        if self.exchange is not None and self.exchange.running:
            return self._go_on(self.exchange)
        if self.control.closed or self.version == self._max_updates:
            return self._finish()
        if not self.published:  # not when it is made: it may be about to be restored
            self.publish()
        if (message := self.batches.take()) is None:  # ❶ load what has come
            return self._finish() if self.batches.closed else False
        if self.exchange is not None:
            self._batch = message.arrays
            correction = None if self.fusion is None else self.fusion.correction()
            self.exchange.begin(self.algorithm.updates(self._batch), correction)
            return self._go_on(self.exchange) or True
        self._learned(message.arrays, self.algorithm.learn(message.arrays))  # ❷ learn
        return True

    @property
    def settled(self) -> bool:
        """False in the middle of an update."""
        return self.exchange is None or not self.exchange.running

    def _go_on(self, exchange: Exchange) -> bool:
        """Learns as far as the gradients of the others have come."""
        moved = exchange.step()
        if exchange.scalars is not None:
            if exchange.correction is not None:
                self.algorithm.shift(exchange.correction)
            self._learned(self._batch, exchange.scalars)
        return self._finish() if exchange.broken else moved

    def _learned(self, batch: Arrays, scalars: dict[str, float]) -> None:
        self.consumption.add(batch, self.version, scalars)
        self.counts[Count.QUEUE] = self.batches.waiting
        self.version += 1
        self.counts[Count.VERSION] = self.version
        if self.fusion is not None:
            if self.exchange is None:  # several learners had the correction with their gradients
                self.fusion.apply(self.algorithm)
            self.fusion.offer(self.algorithm.parameters, self.version)
            self.counts[Count.FUSIONS] = self.fusion.n_fusions
            self.counts[Count.REFUSED] = self.fusion.refused
        if self.trigger.fires(self.version):  # ❷ and send, if it is time
            self.publish()

    def publish(self) -> None:
        """Sends the weights to whoever reads them."""
        if self.weights is not None:
            self.weights.push({"weights": self.algorithm.weights()}, self.version)
            self.counts[Count.PUSHED] += 1
        self.published = True

    def _finish(self) -> bool:
        self.publish()
        for end in (self.weights, self.fusion, self.exchange, self.batches):
            if end is not None:
                end.close()
        self.done = True
        return True

    def report(self) -> Arrays:
        """Counters, and what was measured of the samples consumed."""
        return self.consumption.report()
