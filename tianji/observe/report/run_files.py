"""Reads the files of a run folder while somebody may still be writing them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def number(value: Any) -> float | None:
    """`value` if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        real = float(value)
    except OverflowError:  # JSON knows no largest integer
        return None
    return real if math.isfinite(real) else None


def section(value: Any) -> Object:
    """`value` if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str | None:
    """`value` if it is a string."""
    return value if isinstance(value, str) else None


def read_object(path: Path) -> Object:
    """The object that a file holds; an empty one where the file is missing or holds none."""
    try:
        return parsed(path.read_bytes())
    except OSError:
        return {}


def parsed(data: bytes) -> Object:
    """The object that these bytes stand for, or an empty one."""
    try:
        return section(json.loads(data))
    except (ValueError, RecursionError):
        return {}


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
            file = self.path.open("rb")
        except OSError:
            return
        with file:
            file.seek(self._offset)
            while chunk := file.read(self.CHUNK):
                self._offset += len(chunk)
                *whole, self._part = (self._part + chunk).split(b"\n")
                yield from whole
