"""Triggers of one's own: when an actor pushes and when a learner publishes.

Named in examples/own_parts_config.py. A trigger only answers; it never waits and never sends.
"""


class EndOfEpisode:
    """Pushes as soon as an episode has ended; a full trajectory is pushed in any case."""

    def __init__(self, send_size: int) -> None:
        """`send_size` is the most that fits; this trigger does not need it."""

    def fires(self, length: int, ended: bool) -> bool:
        """True when an episode ended in the last step."""
        return ended


class OftenAtFirst:
    """Publishes every one of the first updates, later every `send_interval` updates."""

    FIRST = 500  # updates

    def __init__(self, send_interval: int) -> None:
        self._interval = send_interval

    def fires(self, version: int) -> bool:
        """True for each of the first updates, then at each multiple of the interval."""
        return version <= self.FIRST or version % self._interval == 0
