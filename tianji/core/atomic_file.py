"""Files that are whole at all times: nobody ever sees half of one, whoever is killed meanwhile.

atomic_file.write(path, text)

with atomic_file.writing(path) as file:     # for what comes in pieces
    for piece in pieces:
        file.write(piece)

with atomic_file.explained("name another file with --out"):    # where the user named it
    atomic_file.write(path, text)

atomic_file.refuse_to_lose(path, "--out", is_plan, "tianji plan")  # before the work for it
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tianji.core.errors import TianJiError
from tianji.core.json_file import WAITS_FOR_NOBODY

LEFT_OVER = re.compile(r"\..+\.\d+\.part", re.ASCII)
"""The names of what a killed process may leave behind."""


def write(path: Path, content: str | bytes) -> None:
    """Makes `content` all that is in a file."""
    with writing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` when the block has ended.

    Where the block or the disk fails, `path` is as it was and nothing is left beside it; an OSError
    names `path`. Of two writers each replaces all that the other wrote. Replacing is not storing: a
    file that has to outlast a power cut is flushed and synced within the block.
    """
    try:
        if path.exists() and not path.is_file():
            # /dev/stdout, say: to replace it would be a disaster
            with open(path, "wb", opener=_opened_at_once) as file:
                yield file
        else:
            yield from _replacing(Path(os.path.realpath(path)))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _opened_at_once(name: str, flags: int) -> int:
    """A pipe or a device to write to; to wait until somebody reads a pipe could take for ever."""
    try:
        descriptor = os.open(name, flags | WAITS_FOR_NOBODY)
    except OSError as error:
        if error.errno == errno.ENXIO and stat.S_ISFIFO(os.stat(name).st_mode):
            raise OSError(error.errno, "this is a pipe, and nobody reads it", name) from error
        raise
    os.set_blocking(descriptor, True)
    return descriptor


def _replacing(path: Path) -> Iterator[BinaryIO]:
    writer = threading.get_native_id()  # no other thread of any process here has this number
    part = path.with_name(f".{path.name}.{writer}.part")
    try:
        with part.open("wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):  # of a disk that cannot be written nothing can be removed either
            part.unlink()
        raise


@contextmanager
def claiming(path: Path, advice: str) -> Iterator[BinaryIO]:
    """A new file to write to: nothing is overwritten, and no half of a file is left behind.

    What the disk refuses is a mistake that the user can mend: by `advice`.
    """
    made = False
    try:
        with path.open("xb") as file:
            made = True
            yield file
    except BaseException as error:
        if made:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            why = error.strerror or error
            raise TianJiError(f"{path} cannot be written ({why}): {advice}") from error
        raise


@contextmanager
def explained(advice: str) -> Iterator[None]:
    """Makes a file that cannot be written a mistake that the user can mend: by `advice`."""
    try:
        yield
    except OSError as error:
        raise TianJiError(
            f"{error.filename} cannot be written: {error.strerror}: {advice}"
        ) from error


def refuse_to_lose(path: Path, option: str, is_ours: Callable[[Path], bool], maker: str) -> None:
    """Raises if `option` names what cannot be written, or a file that `maker` has not written.

    An empty file may be replaced, and so may what is no file (/dev/stdout).
    """
    refuse_unwritable(path, option)
    with explained(f"name another file with {option}"):
        if path.is_file() and path.stat().st_size > 0 and not is_ours(path):
            raise TianJiError(
                f"{option} {path}: this file exists and was not written by `{maker}`: move it "
                f"away, or name another file with {option}"
            )


def refuse_unwritable(path: Path, option: str) -> None:
    """Raises if `option` names a folder, or a file in a folder that is not there."""
    with explained(f"name another file with {option}"):
        if path.is_dir():
            raise TianJiError(f"{option} {path}: this is a folder: name a file in it")
        if not path.parent.is_dir():
            raise TianJiError(f"{option} {path}: there is no folder {path.parent}: make it first")
