"""What is between hosts: every trajectory takes its turn, of the weights only the newest."""

from __future__ import annotations

from collections.abc import Callable

from tianji.strategy.simulate.events import Agenda


class _Link:
    """One direction of the connection of the learner's host."""

    def __init__(self, agenda: Agenda, bytes_per_second: float, seconds: float) -> None:
        self._agenda = agenda
        self._speed = bytes_per_second
        self._seconds = seconds  # on the way, whatever the size
        self._free_at = 0.0
        self._carried = 0.0  # seconds of sending, those of what was promised included

    @property
    def busy_seconds(self) -> float:
        """Seconds of sending so far."""
        return self._carried - max(0.0, self._free_at - self._agenda.now)

    def _carry(self, n_bytes: int, arrives: Callable[[int], None], subject: int) -> None:
        needs = n_bytes / self._speed
        self._free_at = max(self._agenda.now, self._free_at) + needs
        self._carried += needs
        self._agenda.after(self._free_at - self._agenda.now + self._seconds, arrives, subject)


class Uplink(_Link):
    """To the learner's host; what waits for its turn is bounded by the slots of the actors."""

    def send(self, n_bytes: int, arrives: Callable[[int], None]) -> None:
        """Calls `arrives` when the message is there."""
        self._carry(n_bytes, arrives, 0)


class Downlink(_Link):
    """From the learner's host: the newest weights leave when those before have arrived."""

    def __init__(
        self,
        agenda: Agenda,
        bytes_per_second: float,
        seconds: float,
        arrives: Callable[[int], None],
    ) -> None:
        super().__init__(agenda, bytes_per_second, seconds)
        self._arrives = arrives
        self._under_way = False
        self._newest: tuple[int, int] | None = None  # bytes and version

    def publish(self, n_bytes: int, version: int) -> None:
        """Sends a version now, or when the one before has come unless there is a newer one."""
        if self._under_way:
            self._newest = n_bytes, version
        else:
            self._under_way = True
            self._carry(n_bytes, self._came, version)

    def _came(self, version: int) -> None:
        self._under_way = False
        if self._newest is not None:
            newest, self._newest = self._newest, None
            self.publish(*newest)
        self._arrives(version)
