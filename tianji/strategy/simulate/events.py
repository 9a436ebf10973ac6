"""The engine of the model: processes that work for a while or sleep, and a clock that jumps."""

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
