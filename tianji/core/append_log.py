"""A file that grows by whole records, also on a disk that is full for a while."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from tianji.core import atomic_file
from tianji.core.json_file import read_lines

MOST_WAITING = 2_000  # records kept while the file cannot be written
LONGEST_LINE = 1_000_000  # bytes


class AppendLog:
    """Adds records to a file, each whole or not at all.

    What the disk refuses is an OSError to the caller, waits here and goes first the next time; of
    more than `MOST_WAITING` records the oldest are lost.
    """

    def __init__(self, open_file: Callable[[], BinaryIO]) -> None:
        self.path: Path | None = None  # known once the file is open
        self.lost = 0
        self._open_file = open_file
        self._file: BinaryIO | None = None
        self._size = 0  # bytes of whole records
        self._waiting: deque[bytes] = deque()

    def add(self, record: bytes) -> None:
        """Writes what waits and then `record`; the system has them when this returns."""
        self._waiting.append(record)
        if len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self.flush()

    def flush(self) -> None:
        """Writes what waits."""
        if self._file is None:
            self._file = self._open_file()
            self.path, self._size = Path(self._file.name), self._file.seek(0, os.SEEK_END)
        while self._waiting:
            self._write(self._file, self._waiting[0])
            self._waiting.popleft()

    def _write(self, file: BinaryIO, record: bytes) -> None:
        try:
            written = file.write(record)
            if written != len(record):  # a disk that fills up takes what still fits
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
        except OSError:
            file.truncate(self._size)
            file.seek(self._size)
            raise
        self._size += len(record)

    def close(self) -> None:
        """Writes what waits, if anything was ever added, and closes the file."""
        try:
            if self._waiting:
                self.flush()
        finally:
            if self._file is not None:
                self._file.close()


def open_lines(path: Path) -> BinaryIO:
    """A text file to go on with, unbuffered; half a last line, of a writer that died, is cut."""
    file = path.open("a+b", buffering=0)
    start = max(0, file.seek(0, os.SEEK_END) - LONGEST_LINE)
    file.seek(start)
    file.truncate(start + file.read().rfind(b"\n") + 1)
    return file


def set_aside(path: Path, lost: Path, is_lost: Callable[[bytes], bool]) -> None:
    """Moves lines of a file to the end of another; where there are none, nothing is touched."""
    try:
        if not any(map(is_lost, read_lines(path))):
            return
    except FileNotFoundError:
        return
    with lost.open("ab") as file:
        file.writelines(_ended(line) for line in read_lines(path) if is_lost(line))
    with atomic_file.writing(path) as file:
        file.writelines(_ended(line) for line in read_lines(path) if not is_lost(line))


def _ended(line: bytes) -> bytes:
    return line.rstrip(b"\n") + b"\n"
