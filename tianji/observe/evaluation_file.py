"""`evaluations.jsonl`: a row for each evaluation of a run, while it trains or by `tianji eval`."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

from tianji.core.append_log import set_aside
from tianji.core.json_file import number, parsed_row

FILE = "evaluations.jsonl"  # in a run's folder
LOST = "evaluations.lost.jsonl"


def add_row(folder: Path, row: dict[str, Any]) -> None:
    """Adds a row to the `evaluations.jsonl` of a run.

    A run and `tianji eval` may write at the same time, so nothing is ever cut: half a line, of a
    writer that died or whose disk was full, stays where it is and the row begins a new one.
    """
    with open(folder / FILE, "a+b", buffering=0, opener=_own) as file:
        file.seek(max(0, file.tell() - 1))
        gap = b"" if file.read(1) in (b"", b"\n") else b"\n"
        line = gap + json.dumps(row).encode() + b"\n"
        if file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)


def _own(name: str, flags: int) -> int:
    """Opens no link: whose run this is may have it lead to any file."""
    return os.open(name, flags | os.O_NOFOLLOW, 0o666)


def rewind_rows(folder: Path, env_steps: int) -> None:
    """Moves the rows of training after `env_steps`, and torn ones, to `evaluations.lost.jsonl`.

    The weights that they are about were lost with the process.
    """
    set_aside(folder / FILE, folder / LOST, lambda line: _is_lost(line, env_steps))


def _is_lost(line: bytes, env_steps: int) -> bool:
    row = parsed_row(line)
    steps = number(row.get("env_steps"))
    if row.get("of") == "training":
        return steps is None or steps > env_steps
    return "of" not in row
