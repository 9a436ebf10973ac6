"""One group as events: actors, buffer and learner as `roles.py` has them, with costs for work.

The smallest event is a trajectory. What an actor does within one is known beforehand, because
nothing from outside but newer weights reaches it there; so a thousand actors are simulated in
about a second. The buffer keeps the same `Balance` as in a run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from tianji.core.balance import Balance
from tianji.strategy.simulate.core_layout import Costs
from tianji.strategy.simulate.events import Agenda, Downlink, Level, Process, Routine, Uplink
from tianji.strategy.simulate.spread import Spread

Roles = tuple[Callable[[], Iterator[float]], ...]
"""The turns of those that share a process."""


class Group:
    """The state of all roles of one group, from the moment the warm-up is over."""

    def __init__(self, costs: Costs, seed: int = 0, spread: float = 0.0) -> None:
        self.costs = costs
        self.agenda = agenda = Agenda()
        self._spread = Spread(spread, np.random.default_rng(seed))
        n = costs.actors
        # actors
        self._used = [0] * n  # slots that an actor has under way
        self._sent = [0] * n
        self._loaded = [0] * n  # publications that it had seen when it last began
        self._writes = [0] * n  # the version that the trajectory it makes is of
        self._blocked: dict[int, Level] = {}  # by what they wait for
        self.for_weights, self.for_room = Level(agenda), Level(agenda)
        # between hosts
        speed = costs.link_bytes_per_second
        self.up = Uplink(agenda, speed, costs.link_seconds)
        self.down = Downlink(agenda, speed, costs.link_seconds, self._weights_came)
        self._known = [0, 0]  # the newest version on the learner's host, and on the others
        self._publications = [0, 0]
        # buffer
        self.balance = Balance(costs.ratio, costs.batch, 0, costs.slack)
        self._waiting: deque[tuple[int, int]] = deque()  # actor and version of what has come
        self._pool = Pool(costs, self._spread.random)
        self.receiving, self.drawing = Level(agenda), Level(agenda)
        # learner
        self._batches: deque[list[int]] = deque()
        self._in_flight = 0  # batches drawn and not freed
        self._holds = False
        self.updating = Level(agenda)
        # counts
        self.produced = self.received = self.consumed = self.version = self.handed = 0
        self.lags: list[int] = []  # of every trajectory, when it was received or learned from

        if costs.is_alone:
            self._buffer = Process(agenda, self._turns(self._buffer_steps))
            self._learner = Process(agenda, self._turns(self._learner_steps))
        else:
            both = (self._learner_steps, self._buffer_steps)
            self._learner = self._buffer = Process(agenda, self._turns(*both))
        each = (costs.rollout_seconds + costs.send_seconds) / n
        for i in range(n):  # a run does not begin in step for long; synchronous training stays so
            agenda.after(0.0 if costs.alternates else i * each, self._begin, i)

    @property
    def in_flight(self) -> int:
        """Most trajectories that any actor has under way at the moment."""
        return max(self._used)

    @property
    def learner_idle(self) -> float:
        """Seconds that the learner's process has slept."""
        return self._learner.idle.area

    @property
    def buffer_idle(self) -> float:
        """Seconds that the buffer's process has slept; they may be the learner's."""
        return self._buffer.idle.area

    # -------------------------------------------------------------------------------------- actors

    def _begin(self, i: int) -> None:
        """Actor i opens its next trajectory, or is blocked until something lets it."""
        costs, host = self.costs, self._host(i)
        if costs.alternates and self._known[host] < self._sent[i] // costs.per_version:
            return self._block(i, self.for_weights)
        if self._used[i] == costs.depth:
            return self._block(i, self.for_room)
        self._used[i] += 1
        self._writes[i] = self._known[host]
        newer = self._publications[host] - self._loaded[i]
        self._loaded[i] += newer
        loading = min(newer, costs.steps) * costs.load_seconds
        self._act(i, self._spread.of(costs.rollout_seconds) + loading)

    def _act(self, i: int, rollout: float) -> None:
        """Makes a trajectory in so many seconds, and sends it."""
        self.agenda.after(rollout + self.costs.send_seconds, self._made, i)

    def _made(self, i: int) -> None:
        self._sent[i] += 1
        self.produced += self.costs.units
        if self._host(i):
            version = self._writes[i]
            self.up.send(self.costs.trajectory_bytes, lambda _: self._came(i, version))
        else:
            self._came(i, self._writes[i])
        self._begin(i)

    def _block(self, i: int, waits: Level) -> None:
        self._blocked[i] = waits
        waits.add(1)

    def _unblock(self, i: int) -> None:
        """Has an actor look again, if it was blocked."""
        if i in self._blocked:
            self._blocked.pop(i).add(-1)
            self._begin(i)

    def _host(self, i: int) -> int:
        """0 for an actor beside its learner, 1 for one on another host."""
        return int(i >= self.costs.actors - self.costs.remote)

    # -------------------------------------------------------------------------------------- buffer

    def _came(self, i: int, version: int) -> None:
        self._waiting.append((i, version))
        self._buffer.wake()

    def _buffer_steps(self) -> Iterator[float]:
        """Receives at most one trajectory of each actor and hands out at most one batch."""
        n = self.costs.actors
        while n and self._waiting and self._may_receive():
            n -= 1
            i, version = self._waiting.popleft()
            yield from self._busy(self.receiving, self.costs.receive_seconds)
            self._store(version)
            self._free(i)
        if self.balance.may_consume() and self._in_flight < self.costs.batches_ahead:
            yield from self._busy(self.drawing, self._spread.of(self.costs.draw_seconds))
            self._hand_out()

    def _may_receive(self) -> bool:
        return self.balance.may_produce(self._in_flight * self.costs.batch)

    def _store(self, version: int) -> None:
        self.received += self.costs.units
        self.balance.receive(self.costs.units)
        if self.costs.takes_once:
            self._pool.add(version)
        else:
            self.lags.append(self.handed - version)

    def _free(self, i: int) -> None:
        """The slot is the actor's again, as soon as the sender knows."""
        if self._host(i):
            self.agenda.after(self.costs.link_seconds, self._freed, i)
        else:
            self._freed(i)

    def _freed(self, i: int) -> None:
        self._used[i] -= 1
        self._unblock(i)

    def _hand_out(self) -> None:
        self.balance.consume()
        self.handed += 1
        self._in_flight += 1
        self._batches.append(self._pool.draw() if self.costs.takes_once else [])
        self._wake(self._learner)

    # ------------------------------------------------------------------------------------- learner

    def _learner_steps(self) -> Iterator[float]:
        """Learns from one batch, if one has come, and publishes."""
        if self._holds:
            self._holds = False
            self._freed_batch()
        if not self._batches:
            return
        batch = self._batches.popleft()
        self._holds = True
        yield from self._busy(self.updating, self._spread.of(self.costs.update_seconds))
        self._learned()
        self.lags += [self.version - version for version in batch]
        self.version += 1
        self.consumed += self.costs.batch
        if self.version % self.costs.send_interval == 0:
            self._publish()

    def _learned(self) -> None:
        """An update is over; what it learned from is the learner's until its next turn."""

    def _freed_batch(self) -> None:
        """The slot of a batch is the buffer's again."""
        self._in_flight -= 1
        self._wake(self._buffer)

    def _publish(self) -> None:
        if self.costs.remote:
            self.down.publish(self.costs.weights_bytes * self.costs.remote_hosts, self.version)
        self._newest(0, self.version)

    def _weights_came(self, version: int) -> None:
        self._newest(1, version)

    def _newest(self, host: int, version: int) -> None:
        self._known[host] = version
        self._publications[host] += 1
        if self.costs.alternates:
            for i in [i for i in self._blocked if self._host(i) == host]:
                self._unblock(i)

    # ----------------------------------------------------------------------------------- processes

    def _turns(self, *roles: Callable[[], Iterator[float]]) -> Routine:
        """A process: the roles in it have their turns, and it sleeps when none has moved."""
        while True:
            moved = False
            for steps in roles:
                for seconds in steps():
                    moved = True
                    yield seconds
            if not moved:
                yield from self._asleep(roles)

    def _wake(self, process: Process) -> None:
        """Rings the other's bell; one that rides along has its turn anyway."""
        if self.costs.is_alone:
            process.wake()

    def _asleep(self, roles: Roles) -> Routine:
        """Nothing to do for any of them, until they are woken."""
        yield None

    def _busy(self, level: Level, seconds: float) -> Iterator[float]:
        """One piece of work, counted."""
        level.add(1)
        yield seconds
        level.add(-1)


class Pool:
    """Versions of trajectories that are handed out once, as a store of rollouts keeps them.

    It begins with what a warm-up leaves there, of the first version.
    """

    def __init__(self, costs: Costs, random: np.random.Generator) -> None:
        self._n = costs.batch // costs.units
        self._versions = [0] * ((costs.pool - costs.batch) // costs.units)
        self._random = random

    def add(self, version: int) -> None:
        """Notes a trajectory that has come."""
        self._versions.append(version)

    def draw(self) -> list[int]:
        """A batch: any of them, none twice."""
        if self._n >= len(self._versions):
            drawn, self._versions = self._versions, []
            return drawn
        chosen = set(self._random.choice(len(self._versions), self._n, replace=False).tolist())
        drawn = [self._versions[i] for i in sorted(chosen)]
        self._versions = [v for i, v in enumerate(self._versions) if i not in chosen]
        return drawn
