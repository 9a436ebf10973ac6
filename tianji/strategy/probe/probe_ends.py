"""Channel ends for a role that is measured alone: what it asks for is there, what it sends goes.

The roles themselves are the ones that train. A sender's ring is emptied at once, a receiver gets
the same trajectory again and again, and neither ever waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

from tianji.core.algorithm import Weights
from tianji.core.channel import Inbox, Message, Outbox
from tianji.core.schema import Arrays
from tianji.core.store import Amount, Store
from tianji.job.job import Job
from tianji.job.wiring import channels_of
from tianji.transports.local import LocalTransport

P = ParamSpec("P")
R = TypeVar("R")


class Drain:
    """An outbox whose messages are taken away as they come; it knows how long sending took.

    Where roles take turns the actor sleeps after each of them, and is slower when it wakes up:
    `pause` is how long.
    """

    in_flight = 0
    abandoned = False

    def __init__(self, outbox: Outbox, inbox: Inbox) -> None:
        self.pause = 0.0  # seconds
        self.paused = 0.0  # seconds in all
        self.rollouts: list[float] = []  # seconds of each, if there are pauses between them
        self.n_sent = 0
        self.n_steps = 0  # of the trajectories among them
        self.refused = 0
        self._outbox = outbox
        self._open, self._send = Timed(outbox.slot), Timed(outbox.commit)
        self._inbox = inbox
        self._slot: Arrays = {}
        self._awake_since = time.perf_counter()

    @property
    def seconds(self) -> float:
        """That sending took."""
        return self._open.seconds + self._send.seconds

    def slot(self) -> Arrays | None:
        """As a ring with room would answer."""
        slot = self._open()
        self._slot = slot or {}
        return slot

    def commit(self, version: int) -> None:
        """Sends, and makes room for the next."""
        self._send(version)
        self.n_sent += 1
        length = self._slot.get("length")
        if length is not None and length.ndim == 0:
            self.n_steps += int(length)
        self._inbox.take()
        if self.pause:
            self.rollouts.append(time.perf_counter() - self._awake_since)
            self.paused += _slept(self.pause)
            self._awake_since = time.perf_counter()

    def push(self, arrays: Arrays, version: int) -> bool:
        """The same with what lies elsewhere."""
        self._outbox.push(arrays, version)
        self.n_sent += 1
        self._inbox.take()
        return True

    def close(self) -> None:
        """Nothing depends on it."""


class ProbeInbox:
    """An inbox within this process, on whose other end there is nobody."""

    waiting = 0

    @property
    def closed(self) -> bool:
        """Nobody closes it, unless a subclass knows when."""
        return False

    def take(self) -> Message | None:
        """Nothing, unless a subclass has something."""
        return None

    def free(self) -> None:
        """Nothing waits for room."""

    def close(self) -> None:
        """Nothing depends on it."""


class Spring(ProbeInbox):
    """An inbox with the same message again and again, as new as the learner's last version.

    Where roles take turns the learner sleeps meanwhile, and is slower when it wakes up: `pause` is
    how long a message takes to come.
    """

    waiting = 1

    def __init__(self, arrays: Arrays, version: Callable[[], int], pause: float = 0.0) -> None:
        self.paused = 0.0  # seconds in all
        self._arrays = arrays
        self._version = version
        self._pause = pause
        self._n = 0

    def take(self) -> Message:
        """The next one."""
        self._n += 1
        if self._pause:
            self.paused += _slept(self._pause)
        return Message(self._arrays, self._version(), self._n)


class Clockwork(ProbeInbox):
    """An inbox that brings nothing and is closed by the clock: what ends a measurement.

    A role asks in every step whether it is closed, and so keeps the clock going: see `tick`.
    """

    def __init__(
        self,
        warm_seconds: float,
        seconds: float,
        read: Callable[[], None],
        enough: Callable[[], bool] = lambda: True,
        go: Callable[[], None] = lambda: None,
    ) -> None:
        self._warm_seconds = warm_seconds
        self._seconds = seconds
        self._read = read
        self._go = go  # returns when everybody is warm: all are measured in the same moments
        self._enough = enough  # however long it takes: a slow role must do something too
        self._next = 0.0
        self._gone = False
        self._n_read = 0

    @property
    def closed(self) -> bool:
        """Whether the time is over, by now."""
        self.tick()
        return self._n_read == 2

    def tick(self) -> None:
        """Reads where that is due: when all are warm, for whom it waits, and at the end."""
        now = time.perf_counter()
        if not self._next:
            self._next = now + self._warm_seconds
        if self._n_read == 2 or now < self._next or not self._enough():
            return
        if not self._gone:
            self._go()
            self._gone = True
            return  # the step that waited is no work: the first reading comes with the next one
        self._read()
        self._n_read += 1
        self._next = time.perf_counter() + self._seconds


class Published(ProbeInbox):
    """Weights of a version that nobody need wait for; `clock` ends the stream."""

    def __init__(self, weights: Weights, version: int, clock: Clockwork | None = None) -> None:
        self._message: Message | None = Message({"weights": weights}, version, 0)
        self._clock = clock

    @property
    def closed(self) -> bool:
        """Whether the measurement is over."""
        return self._clock is not None and self._clock.closed

    def take(self) -> Message | None:
        """The only publication, once."""
        message, self._message = self._message, None
        return message


class ProbePorts:
    """All channels of a job within this process, but for those that were replaced."""

    def __init__(self, job: Job) -> None:
        self.shared = self  # it can also wait, which nobody here needs
        self.inboxes: dict[str, Inbox] = {}
        self.outboxes: dict[str, Outbox] = {}
        self._local = LocalTransport(channels_of(job))

    def outbox(self, name: str) -> Outbox:
        """The sending end of a channel; without a replacement what is sent is thrown away."""
        found = self.outboxes.get(name)
        if found is None:
            found = self.outboxes[name] = Drain(self._local.outbox(name), self._local.inbox(name))
        return found

    def inbox(self, name: str) -> Inbox:
        """A receiving end of a channel."""
        return self.inboxes.get(name) or self._local.inbox(name)

    def join(self, name: str) -> None:
        """Has a channel go from end to end, as in a run."""
        self.outboxes[name] = self._local.outbox(name)

    def arm(self) -> None:
        """Nobody rings."""

    def disarm(self) -> None:
        """Nobody rings."""

    def wait(self, timeout_seconds: float) -> None:
        """Sleeps a little."""
        time.sleep(min(timeout_seconds, 0.001))

    def close(self) -> None:
        """The memory goes with the last view of it."""


class Timed(Generic[P, R]):
    """A deed that knows how often it was done, and how long that took."""

    def __init__(self, deed: Callable[P, R]) -> None:
        self._deed = deed
        self.times, self.seconds = 0, 0.0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Does it."""
        began = time.perf_counter()
        done = self._deed(*args, **kwargs)
        self.seconds += time.perf_counter() - began
        self.times += 1
        return done


class TimedStore:
    """A store that knows how long it took to add to it and to draw from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.adding, self.drawing = Timed(store.add), Timed(store.draw)

    def add(self, source: int, trajectory: Arrays, version: int) -> Amount:
        """Adds, and takes the time."""
        return self.adding(source, trajectory, version)

    def draw(self, out: Arrays) -> None:
        """Draws, and takes the time."""
        self.drawing(out)

    def size(self) -> int:
        """As the store's."""
        return self._store.size()

    def ready(self) -> bool:
        """As the store's."""
        return self._store.ready()

    def expire(self, learner_version: int) -> Amount:
        """As the store's."""
        return self._store.expire(learner_version)

    def clear(self) -> Amount:
        """As the store's."""
        return self._store.clear()

    def rejoin(self, n_lost: int) -> Amount:
        """As the store's."""
        return self._store.rejoin(n_lost)

    def reweigh(self, feedback: Arrays) -> int:
        """As the store's."""
        return self._store.reweigh(feedback)


def _slept(seconds: float) -> float:
    """Sleeps; returns for how long it was."""
    began = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - began
