"""What an environment is told to do: a few numbers in a file that two processes have mapped."""

from __future__ import annotations

import enum
import mmap
import os
from pathlib import Path

FOLDER = "TIANJI_CHAOS"  # the environment variable that says where the files of orders are


class Word(enum.IntEnum):
    """Places in the file, each a float64."""

    NUMBER = 0  # of the last order, from 1; written last
    FAULT = enum.auto()  # which one
    PAUSE = enum.auto()  # seconds that every step takes longer, until it is 0 again
    OBEYED = enum.auto()  # number of the last order that was carried out
    OBEYED_AT = enum.auto()  # when, on the clock of `time.monotonic`
    STEPS = enum.auto()  # that environments have made, for whoever wants to see them go on


SIZE = 8 * len(Word)


class Orders:
    """The words of one actor, as both sides see them."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < SIZE:
                os.ftruncate(descriptor, SIZE)
            self._memory = mmap.mmap(descriptor, SIZE)
        finally:
            os.close(descriptor)
        self.words = memoryview(self._memory).cast("d")

    def give(self, fault: int) -> int:
        """Orders a fault; returns the number of the order."""
        number = int(self.words[Word.NUMBER]) + 1
        self.words[Word.FAULT] = fault
        self.words[Word.NUMBER] = number  # last: now it is seen
        return number


def orders_of(folder: Path, home: str) -> Orders:
    """The orders of one process."""
    return Orders(folder / f"{home}.orders")
