"""Triggers: the conditions on which a role communicates (steps 2 and 3 of the paper's Figure 2).

A user replaces one from the config: `actor_cfg = dict(trigger="my_file:MyTrigger")`. It is made
with the number that the section already has: `send_size` for an actor, `send_interval` for a
learner.
"""

from __future__ import annotations

from typing import Protocol


class PushTrigger(Protocol):
    """Tells an actor when to push the trajectory it is filling."""

    def __init__(self, send_size: int) -> None:
        """`send_size`: steps that fit into a trajectory; a full one is pushed in any case."""

    def fires(self, length: int, ended: bool) -> bool:
        """Whether to push after `length` steps; `ended`: an episode ended in the last one."""


class PublishTrigger(Protocol):
    """Tells a learner when to publish its weights."""

    def __init__(self, send_interval: int) -> None:
        """`send_interval`: updates from one publication to the next, as configured."""

    def fires(self, version: int) -> bool:
        """Whether to publish the weights that are `version` updates old."""


class WhenFull:
    """Pushes a trajectory when it has `send_size` steps."""

    def __init__(self, send_size: int) -> None:
        self._send_size = send_size

    def fires(self, length: int, ended: bool) -> bool:
        """True at `send_size` steps."""
        return length >= self._send_size


class EveryUpdates:
    """Publishes after every `send_interval` updates."""

    def __init__(self, send_interval: int) -> None:
        self._interval = send_interval

    def fires(self, version: int) -> bool:
        """True at each multiple of the interval."""
        return version % self._interval == 0
