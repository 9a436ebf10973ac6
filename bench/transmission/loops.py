"""The two loops of the experiment: what an actor does, and what the receiver does.

They know channels and nothing of what carries them, so that every transport, and every peer in the
shape of one, is measured by the same code.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tianji.core.channel import Inbox, Message, Outbox
from transmission.experiment import N_REPORTED, Collected, Experiment, Use, actor

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.float64]
T = TypeVar("T")

NAP_SECONDS = 0.02  # longest sleep of a process that was not woken, as in a training run
FIRST_MESSAGES = 2  # of each actor after the word to go, at least, before the clock starts
LINGER = 50  # attempts, some microseconds, before one end of a stream goes to sleep
PAGE = 4096
STORE_BYTES = 32 << 20  # a receiver copies into a store of this size, round and round
LEAST_STORED, MOST_STORED = 8, 32_768  # messages, however large or small they are
SMOOTHING = 0.05  # of the mean by which sleeps are too long
PR_SET_TIMERSLACK = 29  # of prctl


class Waiting(Protocol):
    """The part of a transport that can sleep."""

    def arm(self) -> None:
        """Announces that this process is about to wait."""

    def disarm(self) -> None:
        """Takes the announcement back."""

    def wait(self, timeout_seconds: float) -> None:
        """Sleeps until something may have come."""


@dataclass
class ActorEnds:
    """What an actor can do."""

    waiting: Waiting
    send: Callable[[Bytes, int], bool]  # a message and its number; False: no room, try again later
    has_word: Callable[[], bool]  # whether the receiver has said go
    has_enough: Callable[[], bool]  # whether the receiver has said stop
    report: Callable[[Numbers], bool]  # False: no room, try again later


@dataclass
class ReceiverEnds:
    """What the receiver can do; several actors may share one way to take samples."""

    waiting: Waiting
    takes: list[Callable[[], Message | None]]
    reports: list[Callable[[], Message | None]]
    go: Callable[[], object]
    stop: Callable[[], object]


class Ports(Waiting, Protocol):
    """What offers all of an experiment's channels by their names: any transport."""

    def outbox(self, name: str) -> Outbox:
        """The sending end of a channel."""

    def inbox(self, name: str) -> Inbox:
        """A receiving end of a channel."""


def actor_ends(ports: Ports, name: str) -> ActorEnds:
    """What the actor called `name` does over a transport."""
    samples, report = ports.outbox(f"samples {name}"), ports.outbox(f"report {name}")
    go = ports.inbox("go")
    return ActorEnds(
        ports,
        sender(samples),
        lambda: go.take() is not None,
        lambda: go.closed,
        lambda numbers: report.push({"data": numbers}, 0),
    )


def sender(outbox: Outbox) -> Callable[[Bytes, int], bool]:
    """Fills a slot in place: the one copy that is made on the way."""
    slot, commit, copy = outbox.slot, outbox.commit, np.copyto

    def send(sample: Bytes, number: int) -> bool:
        if (arrays := slot()) is None:
            return False
        copy(arrays["data"], sample)
        commit(number)
        return True

    return send


def receiver_ends(ports: Ports, n_actors: int) -> ReceiverEnds:
    """What the receiver does over a transport."""
    names, go = [actor(i) for i in range(n_actors)], ports.outbox("go")
    return ReceiverEnds(
        ports,
        [ports.inbox(f"samples {name}").take for name in names],
        [ports.inbox(f"report {name}").take for name in names],
        lambda: go.push({"data": np.ones(1, np.uint8)}, 0),
        go.close,
    )


def until(
    waiting: Waiting, attempt: Callable[[], T | None], check: Callable[[], None] | None = None
) -> T:
    """Tries until there is an answer, sleeping as a worker process does; `check` may give up."""
    while not (found := attempt()):
        waiting.arm()
        if found := attempt():
            waiting.disarm()
            return found
        waiting.wait(NAP_SECONDS)
        if check is not None:
            check()
    return found


def soon(
    waiting: Waiting, attempt: Callable[[], T | None], check: Callable[[], None] | None = None
) -> T:
    """As `until`, but first tries a little longer: between two full streams the wait is short."""
    for _ in range(LINGER):
        if found := attempt():
            return found
    return until(waiting, attempt, check)


class Sleeper:
    """Sleeps of a given mean length: what the last ones were too long, the next is shorter."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._late = 0.0
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)  # nanoseconds; usually 50,000

    def sleep(self) -> float:
        """Returns how long it really took."""
        began = time.perf_counter()
        if self._seconds > self._late:
            time.sleep(self._seconds - self._late)
        took = time.perf_counter() - began
        self._late = max(0.0, self._late + SMOOTHING * (took - self._seconds))
        return took


def produce(ends: ActorEnds, experiment: Experiment) -> None:
    """Fills the channel once, waits for the word to go, and sends what was asked."""
    sample = np.ones(experiment.message_bytes, np.uint8)
    for i in range(experiment.depth):
        until(ends.waiting, lambda i=i: ends.send(sample, i))  # type: ignore[misc]  # a default
    until(ends.waiting, ends.has_word)
    if experiment.sample_seconds is None:
        costs = _stream(ends, sample, experiment)
    else:
        costs = _sample(ends, sample, experiment.sample_seconds, experiment.depth)
    until(ends.waiting, lambda: ends.report(np.array(costs)))


def _stream(ends: ActorEnds, sample: Bytes, experiment: Experiment) -> list[float]:
    """One message after the other, without looking at a clock."""
    send, first = ends.send, experiment.depth
    for i in range(first, first + experiment.n_messages):
        if not send(sample, i):
            soon(ends.waiting, lambda i=i: send(sample, i))  # type: ignore[misc]  # a default
    return [float(experiment.n_messages), 0.0, 0.0]


def _sample(ends: ActorEnds, sample: Bytes, seconds: float, first: int) -> list[float]:
    """Sleeps and sends until the receiver has enough; messages, and seconds of both."""
    sleeper, n, sampling, sending = Sleeper(seconds), 0, 0.0, 0.0

    def sent_or_over() -> bool:
        nonlocal n, sending
        began = time.perf_counter()
        if ends.send(sample, first + n):
            sending += time.perf_counter() - began
            n += 1
            return True
        return ends.has_enough()

    while not ends.has_enough():
        sampling += sleeper.sleep()
        until(ends.waiting, sent_or_over)
    return [float(max(n, 1)), sampling, sending]


class Store:
    """Memory of the receiver's own that messages are copied into, all of it touched before."""

    def __init__(self, message_bytes: int) -> None:
        n = max(LEAST_STORED, min(MOST_STORED, STORE_BYTES // message_bytes))
        self._rows = list(np.ones((n, message_bytes), np.uint8))
        self._n = n

    def use(self, data: Bytes, i: int) -> None:
        """Keeps message number `i` in the place of the oldest."""
        np.copyto(self._rows[i % self._n], data)


def touch(data: Bytes, _: int) -> None:
    """Reads one byte of each page, where the message lies."""
    data[::PAGE].tolist()


def user_of(experiment: Experiment) -> Callable[[Bytes, int], None]:
    """What the receiver does with each message."""
    return touch if experiment.use is Use.VIEWS else Store(experiment.message_bytes).use


def collect(ends: ReceiverEnds, experiment: Experiment, check: Callable[[], None]) -> Collected:
    """Gives the word to go, uses `n_messages`, and hears what the actors have measured.

    Actors that sample are waited for until they are in step: the clock starts when every one of
    them has brought `FIRST_MESSAGES`. Where all share one way to take, nobody knows whose a message
    is; then it starts when so many times as many as there are actors have come.
    """
    receiver = _Receiver(ends, experiment, check)
    receiver.some(experiment.depth * experiment.n_actors)
    ends.go()
    if experiment.sample_seconds is not None:
        receiver.some_of_each(FIRST_MESSAGES)
    receiver.busy = 0.0
    began = time.perf_counter()
    if experiment.sample_seconds is None:
        receiver.stream(experiment.n_messages)
    else:
        receiver.some(experiment.n_messages)
    seconds = time.perf_counter() - began
    ends.stop()
    return receiver.result(seconds, receiver.hear())


class _Receiver:
    """Uses messages in whatever order the actors bring them; each actor's own must be in order."""

    def __init__(
        self, ends: ReceiverEnds, experiment: Experiment, check: Callable[[], None]
    ) -> None:
        self.busy = 0.0  # seconds spent on messages
        self._ends = ends
        self._experiment = experiment
        self._check = check
        self._use = user_of(experiment)
        self._count = 0
        self._wrong = 0
        self._next = [0] * len(ends.takes)
        self._knows_whose = len(ends.takes) == experiment.n_actors  # else all share one way
        self._turn = 0  # who is next: nobody is served twice while others wait

    def stream(self, n: int) -> None:
        """`n` messages of the only actor, without looking at a clock."""
        (take,), use, first = self._ends.takes, self._use, self._next[0]
        for i in range(first, first + n):
            message = take() or soon(self._ends.waiting, take, self._check)
            use(message.arrays["data"], i)
            self._wrong += message.version != i

    def some(self, n: int) -> None:
        """`n` messages from anybody, with the time that was spent on them in `busy`."""
        enough = self._count + n
        while self._count < enough:
            until(self._ends.waiting, lambda: self._round(enough), self._check)

    def some_of_each(self, n: int) -> None:
        """At least `n` messages of every actor; that many per actor, where nobody knows whose."""
        if not self._knows_whose:
            self.some(n * self._experiment.n_actors)
            return
        wanted = [came + n for came in self._next]
        while any(came < want for came, want in zip(self._next, wanted, strict=True)):
            until(self._ends.waiting, self._round, self._check)

    def _round(self, enough: int | None = None) -> bool:
        """One look for everybody's next, up to `enough` in all; True if somebody had one."""
        before, takes = self._count, self._ends.takes
        for _ in takes:
            i, self._turn = self._turn, (self._turn + 1) % len(takes)
            began = time.perf_counter()
            if (message := takes[i]()) is not None:
                self._used(i, message)
                self.busy += time.perf_counter() - began
                if self._count == enough:
                    break
        return self._count > before

    def _used(self, i: int, message: Message) -> None:
        self._use(message.arrays["data"], self._count)
        self._wrong += self._knows_whose and message.version != self._next[i]
        self._next[i] += 1
        self._count += 1

    def hear(self) -> Numbers:
        """The sum of the actors' reports; throws away what they had sent too much."""
        total, missing = np.zeros(N_REPORTED), list(self._ends.reports)
        while missing:
            until(self._ends.waiting, lambda: self._listen(total, missing), self._check)
        return total

    def _listen(self, total: Numbers, missing: list[Callable[[], Message | None]]) -> bool:
        drained = [take() for take in self._ends.takes]
        for report in missing:
            if (message := report()) is not None:
                total += message.arrays["data"]
                missing.remove(report)
                return True
        return any(message is not None for message in drained)

    def result(self, seconds: float, reported: Numbers) -> Collected:
        """The means over all messages."""
        if self._experiment.sample_seconds is None:
            return Collected(seconds, n_wrong=self._wrong)
        n, sampling, sending = reported.tolist()
        received = self.busy / self._experiment.n_messages
        return Collected(seconds, sampling / n, sending / n, received, self._wrong)
