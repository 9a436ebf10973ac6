"""Empty trajectories in the place of an actor that has died, where training needs one of each.

Synchronous training learns from so many trajectories of every actor per version. An actor that is
lost would keep the others waiting for ever; instead its share comes as rows that are not valid, and
the batch is smaller by what it would have had. One that comes back takes part again with the
version that is collected for then: what it made for a share that was stood in for is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from tianji.core.channel import Inbox, InFront, Message
from tianji.core.schema import Schema
from tianji.core.store import n_valid

NOBODY = -1  # the number of a message that nobody has sent


class VersionShares:
    """What the actors of a group have sent for the version that is collected for."""

    def __init__(
        self, per_version: int, version: Callable[[], int], refuse: Callable[[int], None]
    ) -> None:
        self.per_version = per_version  # trajectories of each actor
        self.refuse = refuse  # is told of so many steps that came too late
        self.came = 0  # trajectories with something in them
        self._version = version  # batches handed out: those being collected are for the next
        self._of = 0

    def version(self) -> int:
        """The version that is collected for."""
        if (version := self._version()) != self._of:
            self._of, self.came = version, 0
        return version


class SurvivingInbox(InFront):
    """An actor's trajectories as long as they come, then empty ones."""

    def __init__(self, inbox: Inbox, trajectory: Schema, shares: VersionShares) -> None:
        super().__init__(inbox)
        self._empty = trajectory.empty()  # its length is 0
        self._shares = shares
        self._of = 0  # the version that is collected for
        self._taken = 0  # for it

    def take(self) -> Message | None:
        """What the actor has sent, or what stands in for it while it is not there.

        Only where another has sent something: nothing can be learned from empty ones alone.
        """
        shares = self._shares
        if (version := shares.version()) != self._of:
            self._of, self._taken = version, 0
        if self._taken >= shares.per_version:  # its share has come, or was stood in for
            self._inbox.free()
            return None
        while (message := self._inbox.take()) is not None:
            if message.version >= version:
                shares.came += 1
                break
            shares.refuse(n_valid(message.arrays))
            self._inbox.free()
        if message is None and shares.came and (self.closed or self.away):
            message = Message(self._empty, version, NOBODY)
        self._taken += message is not None
        return message
