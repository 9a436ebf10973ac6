"""The way in for files that others wrote: bounded before they are parsed, named when they fail."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tianji.core.errors import TianJiError

LARGEST_BYTES = 16 << 20
LONGEST_LINE = 1 << 20  # bytes of a file that is read by lines
DEEPEST = 100  # lists and objects inside each other
NOT_THE_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR}
WAITS_FOR_NOBODY = getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody writes to is opened at once


class Busy(TianJiError):
    """A file cannot be read, and that says nothing about the file."""


def opened(path: str | os.PathLike[str]) -> io.BufferedReader:
    """A regular file, open for reading; an OSError for all else, which could keep us for ever."""
    file = open(  # noqa: SIM115
        path, "rb", opener=lambda name, flags: os.open(name, flags | WAITS_FOR_NOBODY)
    )
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "this is no regular file", os.fspath(path))
    return file


def read_bytes(path: str | os.PathLike[str], most_bytes: int = LARGEST_BYTES) -> bytes:
    """What a file holds; a `TianJiError` says why it cannot be had.

    Of a larger file, or one that grows for ever, no more than `most_bytes` are ever read.
    """
    try:
        with opened(path) as file:
            data = file.read(most_bytes + 1)
    except (OSError, ValueError) as error:  # of a name with a zero byte
        raise refusal(path, error) from error
    if len(data) > most_bytes:
        raise TianJiError(f"{path}: larger than {most_bytes:,} bytes, which no file of ours is")
    return data


def refusal(path: str | os.PathLike[str], error: OSError | ValueError) -> TianJiError:
    """What is to be said of a file that the system does not give us."""
    name = os.fspath(path)
    if isinstance(error, FileNotFoundError):
        return TianJiError(f"{name}: there is no such file")
    if isinstance(error, IsADirectoryError):
        return TianJiError(f"{name}: this is a folder; name a file in it")
    number, why = getattr(error, "errno", None), getattr(error, "strerror", None) or error
    if number in NOT_THE_FILE:
        more = "; raise the limit, as in `ulimit -n 1024`" if number == errno.EMFILE else ""
        return Busy(f"{name} cannot be read now: {why}{more}")
    return TianJiError(f"{name!r} cannot be read: {why}")


def read_text(path: str | os.PathLike[str], most_bytes: int = LARGEST_BYTES) -> str:
    """The same as text."""
    data = read_bytes(path, most_bytes)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TianJiError(
            f"{os.fspath(path)}:{line}: this line is not UTF-8; save it as UTF-8"
        ) from error


def read_lines(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """The lines of a file with their ends, as it was written; a very long one comes in pieces.

    Raises an OSError where there is no such file; it may be as large as it likes.
    """
    with opened(path) as file:
        while line := file.readline(LONGEST_LINE):
            yield line


def read_end(path: str | os.PathLike[str], begin: int = 0) -> str:
    """What a log holds after its first `begin` bytes, and of that no more than the end."""
    with opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(begin, size - LONGEST_LINE))
        return file.read(LONGEST_LINE).decode(errors="replace")


def refuse_ways_out(folder: Path) -> None:
    """Raises if a link in a folder leads out of it, or it holds what is neither file nor folder.

    Whoever writes into it would change files elsewhere, or wait for ever.
    """
    home = Path(os.path.realpath(folder))
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            real = Path(os.path.realpath(path))
            if not real.is_relative_to(home):
                raise TianJiError(
                    f"{path} is a link to {real}, and a run writes nothing outside its folder: "
                    "remove the link; to have a run on another disk, move the whole folder there"
                )
            if real.exists() and not (real.is_file() or real.is_dir()):
                raise TianJiError(f"{path} is neither a file nor a folder: remove it")


def load_json(
    path: str | os.PathLike[str], wanted: str = "", most_bytes: int = LARGEST_BYTES
) -> dict[str, Any]:
    """The object that a JSON file holds; a `TianJiError` says what else was found.

    `wanted` says what the file should be, as in "a plan of `tianji plan`".
    """
    try:
        return parsed(read_text(path, most_bytes), os.fspath(path))
    except Busy:
        raise
    except TianJiError as error:
        raise TianJiError(f"{error}: want {wanted}" if wanted else str(error)) from error


def parsed(text: str | bytes, name: str) -> dict[str, Any]:
    """The object that JSON says; a `TianJiError`, with the file's `name`, for all else."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise TianJiError(f"{name} is damaged, it is no JSON ({error})") from error
    except RecursionError as error:
        raise TianJiError(f"{name} is damaged, it is nested too deeply") from error
    if not isinstance(data, dict):
        raise TianJiError(f"{name} is damaged, it holds {type(data).__name__}, no object")
    if _is_deeper(data, DEEPEST):
        raise TianJiError(f"{name} is damaged, it is nested more than {DEEPEST} deep")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """What a file of a run holds; nothing if there is no such file or it is not ours."""
    try:
        return load_json(path)
    except TianJiError:
        return {}


def parsed_row(line: str | bytes) -> dict[str, Any]:
    """The object that a line of JSON stands for, or an empty one."""
    try:
        return parsed(line, "")
    except TianJiError:
        return {}


def number(value: Any) -> float | None:
    """`value` if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        real = float(value)
    except OverflowError:  # JSON knows no largest integer
        return None
    return real if math.isfinite(real) else None


def whole(value: Any) -> int | None:
    """`value` if it is a count: an integer that is not below zero and fits 64 bits."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return int(value) if is_count else None


def section(value: Any) -> dict[str, Any]:
    """`value` if it is an object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: Any) -> str | None:
    """`value` if it is a string."""
    return value if isinstance(value, str) else None


def _is_deeper(data: Any, most: int) -> bool:
    level = [data]
    for _ in range(most):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
