"""What roles tell of what they do, where they do it: `tianji train --trace` writes it down."""

from __future__ import annotations

import enum

from tianji.core.channel import Message


class What(enum.IntEnum):
    """What was sent or received."""

    TRAJECTORY = 0  # `number` of its actor, which is `peer`; `version` of the policy that began it
    BATCH = enum.auto()  # made for the update of this `version`
    WEIGHTS = enum.auto()  # of this `version`
    GRADIENT = enum.auto()  # between the learners of a group
    PARAMETERS = enum.auto()  # between a group and the reducer
    PRIORITIES = enum.auto()  # from a learner, after the update of this `version`

    @property
    def word(self) -> str:
        """As people read it."""
        return self.name.lower()


class Tracer:
    """Hears what one role does; this one forgets it, at the price of calling an empty method.

    tracer.begin()                                  # something begins, if there is something to do
    if (message := inbox.take()) is not None:
        store(message)
        tracer.received(What.BATCH, message)        # it lasted from then until now
    """

    def begin(self) -> None:
        """What is told of next begins now."""

    def decided(self) -> None:
        """There is an action for every environment; simulation begins."""

    def acted(self) -> None:
        """Every environment has made its step."""

    def updated(self) -> None:
        """An update was made, or a piece of one that is made with others."""

    def sent(self, what: What, version: int) -> None:
        """Something was sent."""

    def received(self, what: What, message: Message, peer: int = 0) -> None:
        """Something has come, and is where it belongs."""

    def idle(self) -> None:
        """A step found nothing to do."""


NULL = Tracer()
