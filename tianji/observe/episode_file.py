"""`episodes.csv`: every finished episode of a run, where `exp.keep_episodes` asks for it."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tianji.core import atomic_file
from tianji.core.append_log import AppendLog, open_lines
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_lines

FILE = "episodes.csv"

Floats = npt.NDArray[np.float64]


class Line(NamedTuple):
    """A line of the file."""

    seconds: float  # of training, when it ended
    actor: int  # counted over all groups
    actor_steps: int  # that this actor had made by then
    version: int  # updates behind the policy that acted in the last step
    returned: float  # points of the whole game
    length: int  # steps
    learned: float = math.nan  # mean return of its lives as learned from, maybe clipped


HEAD = ",".join(Line._fields)
OLDER = HEAD.rpartition(",")[0]  # before `learned`, which a resumed run adds to its later lines
N_OLDER = len(Line._fields) - 1


class EpisodeFile:
    """Adds lines to a run's `episodes.csv`; a resumed run goes on after the `kept` first ones."""

    def __init__(self, folder: Path, kept: int = 0) -> None:
        self._path = folder / FILE
        self._kept = kept
        self._file = AppendLog(lambda: open_lines(self._begun()))

    def add(self, lines: list[Line]) -> None:
        """Writes them; an OSError says that they wait for the next time."""
        if lines:
            self._file.add("".join(_text(line) for line in lines).encode())

    def close(self) -> None:
        """Writes what waits."""
        self._file.close()

    def _begun(self) -> Path:
        """The file with its head, and without what was lost when its run was interrupted."""
        with atomic_file.writing(self._path) as file, suppress(FileNotFoundError):
            file.write(f"{HEAD}\n".encode())
            lines = read_lines(self._path)
            next(lines, b"")  # the head
            kept = zip(range(self._kept), lines, strict=False)
            file.writelines(line.rstrip(b"\r\n") + b"\n" for _, line in kept)
        return self._path


def write(folder: Path, lines: list[Line]) -> None:
    """The whole file at once."""
    atomic_file.write(folder / FILE, "".join([f"{HEAD}\n", *(_text(line) for line in lines)]))


def _text(line: Line) -> str:
    return ",".join(map(str, line)) + "\n"


class History(NamedTuple):
    """The episodes of a run in the order in which they ended."""

    steps: Floats  # environment steps of all actors by then
    version: Floats
    returned: Floats
    length: Floats


def read(folder: Path) -> History:
    """The episodes of a run, with the steps that all actors together had made when each ended.

    What another actor had made at that moment lies between two of its own lines; it is taken to
    have worked evenly from one to the other.
    """
    path = folder / FILE
    try:
        lines = b"".join(read_lines(path)).decode("utf-8").split("\n")
        if lines[0] not in (HEAD, OLDER):
            raise TianJiError(f"{path}: want the columns {HEAD}")
        rows = [line.split(",")[:N_OLDER] for line in lines[1:] if line]
        table = np.array(rows, np.float64).reshape(len(rows), N_OLDER)
    except OSError as error:
        raise TianJiError(
            f"{path}: {error.strerror}: train with exp.keep_episodes=True to have it"
        ) from error
    except ValueError as error:
        raise TianJiError(f"{path} is damaged: {error}") from error
    table = table[np.argsort(table[:, 0], kind="stable")]
    seconds, actor, made, version, returned, length = table.T
    steps = np.zeros(len(seconds))
    for each in np.unique(actor):
        mine = actor == each
        known = np.concatenate([[0.0], seconds[mine]]), np.concatenate([[0.0], made[mine]])
        steps += np.where(mine, 0.0, np.interp(seconds, *known))
        steps[mine] += made[mine]
    order = np.lexsort((length, returned, steps))  # the same whoever wrote them
    return History(steps[order], version[order], returned[order], length[order])
