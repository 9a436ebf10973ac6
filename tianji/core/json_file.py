"""The way in for files that others wrote: bounded before they are parsed, named when they fail."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tianji.core.errors import TianJiError

LARGEST_BYTES = 64 << 20
DEEPEST = 100  # lists and objects inside each other


def read_text(path: str | os.PathLike[str], most_bytes: int = LARGEST_BYTES) -> str:
    """The text of a file; a `TianJiError` says why it cannot be had.

    Of a file that is larger, or that never ends, no more than `most_bytes` is ever read.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError as error:
        raise TianJiError(f"{name}: there is no such file") from error
    except IsADirectoryError as error:
        raise TianJiError(f"{name}: this is a folder; name a file in it") from error
    except (OSError, ValueError) as error:  # of a name with a zero byte
        why = getattr(error, "strerror", None) or error
        raise TianJiError(f"{name!r} cannot be read: {why}") from error
    if len(data) > most_bytes:
        raise TianJiError(f"{name}: larger than {most_bytes:,} bytes, which no file of ours is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TianJiError(f"{name}:{line}: this line is not UTF-8; save it as UTF-8") from error


def load_json(
    path: str | os.PathLike[str], wanted: str = "", most_bytes: int = LARGEST_BYTES
) -> dict[str, Any]:
    """The object that a JSON file holds; a `TianJiError` says what else was found.

    `wanted` says what the file should be, as in "a plan of `tianji plan`".
    """
    name, ours = os.fspath(path), f": want {wanted}" if wanted else ""
    if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
        raise TianJiError(f"{name} is no regular file{ours}")  # a pipe could keep us for ever
    try:
        data = json.loads(read_text(name, most_bytes))
    except ValueError as error:
        raise TianJiError(f"{name} is damaged, it is no JSON ({error}){ours}") from error
    except RecursionError as error:
        raise TianJiError(f"{name} is damaged, it is nested too deeply{ours}") from error
    if not isinstance(data, dict):
        raise TianJiError(f"{name} is damaged, it holds {type(data).__name__}, no object{ours}")
    if _is_deeper(data, DEEPEST):
        raise TianJiError(f"{name} is damaged, it is nested more than {DEEPEST} deep{ours}")
    return data


def read_json(path: Path) -> dict[str, Any]:
    """What a file of a run holds; nothing if there is no such file or it is not ours."""
    try:
        return load_json(path)
    except TianJiError:
        return {}


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
