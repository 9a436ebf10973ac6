"""Empty trajectories in the place of an actor that has died, where training needs one of each.

Synchronous training learns from so many trajectories of every actor per version. An actor that is
lost would keep the others waiting for ever; instead its share comes as rows that are not valid, and
the batch is smaller by what it would have had.
"""

from __future__ import annotations

from collections.abc import Callable

from tianji.core.channel import Inbox, InFront, Message
from tianji.core.schema import Schema

NOBODY = -1  # the number of a message that nobody has sent


class StandIn(InFront):
    """An actor's trajectories as long as they come, then empty ones."""

    def __init__(
        self, inbox: Inbox, trajectory: Schema, per_version: int, version: Callable[[], int]
    ) -> None:
        super().__init__(inbox)
        self._empty = trajectory.empty()  # its length is 0
        self._per_version = per_version
        self._version = version  # batches handed out: those being collected are for the next
        self._of = 0  # the version that is being collected for
        self._taken = 0  # for it

    def take(self) -> Message | None:
        """What the actor has sent, or what stands in for it once it has gone."""
        if (version := self._version()) != self._of:
            self._of, self._taken = version, 0
        message = self._inbox.take()
        if message is None and self._inbox.closed and self._taken < self._per_version:
            message = Message(self._empty, version, NOBODY)
        self._taken += message is not None
        return message
