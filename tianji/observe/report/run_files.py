"""Reads the files of a run folder while somebody may still be writing them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tianji.core.json_file import LONGEST_LINE, opened

Object = dict[str, Any]  # of JSON
Stamp = tuple[int, int]  # changes when a file is written anew
MISSING: Stamp = (0, 0)


def stamp_of(path: Path) -> Stamp:
    """What tells a file from what it was before."""
    try:
        found = path.stat()
    except OSError:
        return MISSING
    return found.st_ino, found.st_mtime_ns


class Tail:
    """The lines of a growing file, each handed out once and only when its end has been written."""

    CHUNK = 1 << 20

    def __init__(self, path: Path) -> None:
        self.path = path
        self._inode = 0
        self._offset = 0
        self._part = b""

    def replaced(self) -> bool:
        """Whether the file is another one than was read so far; if so, reading starts over."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        if found.st_ino == self._inode and found.st_size >= self._offset:
            return False
        had_read = self._offset > 0
        self._inode, self._offset, self._part = found.st_ino, 0, b""
        return had_read

    def lines(self) -> Iterator[bytes]:
        """What has been added since the last call, without a last line that has no end yet."""
        try:
            file = opened(self.path)
        except OSError:
            return
        with file:
            file.seek(self._offset)
            while chunk := file.read(self.CHUNK):
                self._offset += len(chunk)
                *whole, self._part = (self._part + chunk).split(b"\n")
                yield from whole
                if len(self._part) > LONGEST_LINE:
                    self._part = b""  # no row of ours: what is left of it will be none either
