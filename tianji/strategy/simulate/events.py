"""The engine of the model: processes and links that are busy or sleep, and a clock that jumps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush

Routine = Generator[float | None, None, None]
"""Yields the seconds of a piece of work, or None to sleep until it is woken."""


class Agenda:
    """What happens next, in the order of time; what falls together, in the order it was noted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.n_events = 0
        self._noted = 0
        self._heap: list[tuple[float, int, Callable[[int], None], int]] = []

    def after(self, seconds: float, action: Callable[[int], None], subject: int = 0) -> None:
        """Calls `action(subject)` when so much time has passed."""
        self._noted += 1
        heappush(self._heap, (self.now + seconds, self._noted, action, subject))

    def step(self) -> bool:
        """Goes to the next event; False where nothing will ever happen again."""
        if not self._heap:
            return False
        self.now, _, action, subject = heappop(self._heap)
        self.n_events += 1
        action(subject)
        return True


class Level:
    """A number that changes now and then, and the area under it: how much was busy, how long."""

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self._value = 0
        self._area = 0.0
        self._since = 0.0

    def add(self, change: int) -> None:
        """Changes the number from now on."""
        self._area = self.area
        self._since = self._agenda.now
        self._value += change

    @property
    def area(self) -> float:
        """The number, summed over all seconds so far."""
        return self._area + self._value * (self._agenda.now - self._since)


class Process:
    """Runs one piece of work after the other on a core of its own; `idle` is its time asleep."""

    def __init__(self, agenda: Agenda, routine: Routine) -> None:
        self._agenda = agenda
        self._routine = routine
        self._asleep = False
        self._rung = False  # while it was awake: it looks once more before it sleeps
        self.idle = Level(agenda)
        agenda.after(0.0, self._go_on)

    def wake(self) -> None:
        """Has it look again for something to do."""
        if self._asleep:
            self._asleep = False
            self.idle.add(-1)
            self._agenda.after(0.0, self._go_on)
        else:
            self._rung = True

    def _go_on(self, _: int) -> None:
        while (seconds := next(self._routine)) is None:
            if not self._rung:
                self._asleep = True
                self.idle.add(1)
                return
            self._rung = False
        self._agenda.after(seconds, self._go_on)


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
