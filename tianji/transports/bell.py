"""What wakes the other end of a channel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, Protocol


class Flag(Protocol):
    """A word that is not 0 while somebody sleeps."""

    def __getitem__(self, place: Literal[0], /) -> int:
        """Its value."""


class Bell(ABC):
    """Wakes whoever is at the other end, if they sleep."""

    flag: Flag  # senders of small messages look at it themselves: they would feel a call

    def ring(self) -> None:
        """Costs nothing when the other end is awake."""
        if self.flag[0]:
            self.wake()

    @abstractmethod
    def wake(self) -> None:
        """Returns at once."""


class Silence(Bell):
    """The bell of a channel within one process, where nobody sleeps."""

    flag: Flag = (0,)

    def wake(self) -> None:
        """Does nothing."""
