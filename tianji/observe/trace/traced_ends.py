"""Channel ends that write down what goes through them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from tianji.core.channel import Inbox, InFront, Message, Outbox
from tianji.core.schema import Arrays
from tianji.job.factory import Ports
from tianji.observe.trace.format import Doing, What
from tianji.observe.trace.recorder import NEVER, Track

CARRIED = {
    "trajectories": What.TRAJECTORY,
    "batches": What.BATCH,
    "weights": What.WEIGHTS,
    "gradients": What.GRADIENT,
    "parameters": What.PARAMETERS,
    "mean": What.PARAMETERS,
}
"""By the first word of a channel's name; what is sent to the launcher is left out."""


@dataclass
class Handling:
    """What a role is in the middle of, where one row is made of two calls."""

    since: float = NEVER  # when it took a trajectory, or began to draw a batch
    number: int = -1  # of the trajectory; -1: nobody sent it


class TracedOutbox:
    """Sends as another outbox does, and writes it down."""

    def __init__(self, outbox: Outbox, track: Track, what: What, handling: Handling) -> None:
        self._outbox = outbox
        self._track = track
        self._what = what
        self._handling = handling
        self._sent = 0

    @property
    def refused(self) -> int:
        """How often it had no room."""
        return self._outbox.refused

    @refused.setter
    def refused(self, times: int) -> None:
        self._outbox.refused = times

    @property
    def in_flight(self) -> int:
        """Messages that the receiver is not finished with."""
        return self._outbox.in_flight

    def slot(self) -> Arrays | None:
        """Room for the next message."""
        return self._outbox.slot()

    def commit(self, version: int) -> None:
        """Sends; what the role has done for this message since it began is part of the row."""
        began = self._begin()
        self._outbox.commit(version)
        self._end(began, version)

    def push(self, arrays: Arrays, version: int) -> bool:
        """Copies and sends; a refusal is no row."""
        began = self._begin()
        pushed = self._outbox.push(arrays, version)
        if pushed:
            self._end(began, version)
        return pushed

    def _begin(self) -> float:
        since, self._handling.since = self._handling.since, NEVER
        return time.monotonic() if since == NEVER else since

    def _end(self, began: float, version: int) -> None:
        self._track.add(Doing.SEND, began, self._sent, version, self._what)
        self._sent += 1

    @property
    def abandoned(self) -> bool:
        """Whether nobody will read what is sent."""
        return self._outbox.abandoned

    def close(self) -> None:
        """Ends the stream."""
        self._outbox.close()


class TracedInbox(InFront):
    """Receives as another inbox does, and writes it down."""

    def __init__(self, inbox: Inbox, track: Track, what: What) -> None:
        super().__init__(inbox)
        self._track = track
        self._what = what

    def take(self) -> Message | None:
        """The next message; a look that finds none is no row."""
        began = time.monotonic()
        message = self._inbox.take()
        if message is not None:
            number, version = message.sequence, message.version
            self._track.add(Doing.RECEIVE, began, number, version, self._what)
        return message


class HandlingInbox(InFront):
    """Trajectories on their way into a store, which writes down that they came."""

    def __init__(self, inbox: Inbox, handling: Handling) -> None:
        super().__init__(inbox)
        self._handling = handling
        self._next = 0  # counted as the sender counts: from the beginning of this process

    def skip_waiting(self) -> None:
        """What lies there was sent by an actor of an earlier process."""
        self._next = -self._inbox.waiting

    def take(self) -> Message | None:
        """The next trajectory."""
        began = time.monotonic()
        message = self._inbox.take()
        if message is not None:
            self._handling.since, self._handling.number = began, self._next
            self._next += 1
        return message


@dataclass
class TracedPorts:
    """The channel ends of one role."""

    ports: Ports
    track: Track
    handling: Handling = field(default_factory=Handling)
    trajectories: list[HandlingInbox] = field(default_factory=list)

    def outbox(self, name: str) -> Outbox:
        """The sending end of a channel."""
        outbox, what = self.ports.outbox(name), CARRIED.get(name.partition(" ")[0])
        return outbox if what is None else TracedOutbox(outbox, self.track, what, self.handling)

    def inbox(self, name: str) -> Inbox:
        """A receiving end of a channel; an actor's weights are written down when it loads them."""
        inbox, what = self.ports.inbox(name), CARRIED.get(name.partition(" ")[0])
        if what is None or what is What.WEIGHTS:
            return inbox
        if what is not What.TRAJECTORY:
            return TracedInbox(inbox, self.track, what)
        self.trajectories.append(HandlingInbox(inbox, self.handling))
        return self.trajectories[-1]
