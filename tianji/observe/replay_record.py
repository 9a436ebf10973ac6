"""What a run's roles took from each other and when, so that `tianji replay` can do it all again.

A role depends on nothing but its seed and on what it takes from its channels, and when. So that is
what each of them writes down, in rows of 12 bytes that hold how much of its own work lies before:

    actor       weights of which version it adopted      after so many steps
    buffer      whose trajectory it took, its checksum   after so many batches handed out
    learner     with how many threads, now and then a    after so many updates
                checksum of its weights

A trajectory's checksum covers all of it. Beside the rows of a buffer are those of its steps, of 4
bytes each, so that a replay can say in which step it was left. A heading tells the number formats
that were measured to be the fastest.

Rows are kept in memory and written with the reports of a process, twenty times a second: what a
process that is killed did in its last moments is not in its record.
"""

from __future__ import annotations

import enum
import json
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from tianji.config import Config
from tianji.core.channel import Message
from tianji.core.counts import Count, Vector
from tianji.core.errors import TianJiError
from tianji.core.frames import BEFORE, MEMORY
from tianji.core.json_file import opened, parsed, refusal
from tianji.core.tracer import Tracer, What
from tianji.core.versions import versions
from tianji.models.precision import decided
from tianji.roles import Buffer, Learner
from tianji.roles.lost_actor import NOBODY
from tianji.roles.role import Role

FOLDER = "record"  # in that of the run
ENDING = ".rows"
STEPS = ".steps"  # of a buffer: the checksums of all steps that it took
STEP = np.dtype("<u4")
FORMAT = 2
WIDE = 4_096  # bytes of a step in one array, from which on they are not copied beside the others
ROW = struct.Struct("<HHII")
DTYPE = np.dtype([("what", "<u2"), ("who", "<u2"), ("value", "<u4"), ("before", "<u4")])
LONGEST_HEADING = 100_000  # bytes
CHECK_EVERY = 20  # reports from one checksum of the weights to the next: about a second


class Taken(enum.IntEnum):
    """What a row tells of."""

    TRAJECTORY = 0  # of actor `who`, with this checksum
    NOTHING = enum.auto()  # an empty trajectory in the place of actor `who`, who is lost
    PRIORITIES = enum.auto()  # sent by learner `who` after the update of this version
    WEIGHTS = enum.auto()  # of this version
    CHECKSUM = enum.auto()  # of the weights
    THREADS = enum.auto()  # so many
    END = enum.auto()  # 1: the role had done its work; 0: its process failed


def checksums(message: Message) -> list[int]:
    """Of how a trajectory begins, and of all of it up to each step and what was seen after that."""
    arrays, value = message.arrays, message.version & 0xFFFFFFFF
    n, n_rows = int(arrays["length"]), len(arrays["valid"])
    wide: list[npt.NDArray[np.uint8]] = []
    narrow: list[npt.NDArray[np.uint8]] = []
    for name, array in arrays.items():
        if name == "length":
            continue
        if name in (BEFORE, MEMORY):
            value = checksum_of(array, value)
            continue
        if len(array) > n_rows:  # what is observed
            value, array = checksum_of(array[0], value), array[1:]
        rows = array[:n].reshape(n, array[0].size).view(np.uint8)
        (wide if rows.shape[1] > WIDE else narrow).append(rows)
    if narrow:
        wide.append(np.concatenate(narrow, 1))
    parts = [(rows.reshape(-1).data, rows.shape[1]) for rows in wide]
    found = [value]
    for t in range(n):
        for data, size in parts:
            value = zlib.crc32(data[t * size : (t + 1) * size], value)
        found.append(value)
    return found


def checksum_of(array: npt.NDArray[Any], before: int = 0) -> int:
    """Of an array's bytes, as they lie in memory."""
    return zlib.crc32(array.data, before)


class RoleRecord(Tracer):
    """The rows of one role."""

    def __init__(self, counts: Vector) -> None:
        self.rows = bytearray()
        self.steps = bytearray()
        self._before = 0  # pieces of work since the last row
        self._counts, self._threads = counts, 0

    def acted(self) -> None:
        """An actor has made a step."""
        self._before += 1

    def updated(self) -> None:
        """A learner has made an update."""
        if (threads := int(self._counts[Count.THREADS])) != self._threads:
            self._threads = threads
            self.add(Taken.THREADS, 0, threads)
        self._before += 1

    def sent(self, what: What, version: int) -> None:
        """A buffer has handed out a batch."""
        if what is What.BATCH:
            self._before += 1

    def received(self, what: What, message: Message, peer: int = 0) -> None:
        """Writes down what depends on when it came; batches come in the order of the buffer."""
        if what is What.TRAJECTORY:
            if message.sequence == NOBODY:
                self.add(Taken.NOTHING, peer, 0)
            else:
                found = checksums(message)
                self.add(Taken.TRAJECTORY, peer, found[-1])
                self.steps += np.array(found[1:], STEP).tobytes()
        elif what is What.WEIGHTS:
            self.add(Taken.WEIGHTS, 0, message.version)
        elif what is What.PRIORITIES:
            self.add(Taken.PRIORITIES, peer, message.version)

    def add(self, what: Taken, who: int, value: int) -> None:
        """Writes one row."""
        self.rows += ROW.pack(what, who, value, self._before)
        self._before = 0


def record(roles: Sequence[Role], config: Config, folder: Path) -> ReplayRecording | None:
    """Records the roles of a process; None, with a word in its log, where that cannot be."""
    try:
        return ReplayRecording(roles, config, folder)
    except FileExistsError as error:
        problem = f"{error.filename} is the record of an earlier process, which had another past"
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    print(f"nothing is recorded: {problem}", file=sys.stderr, flush=True)
    return None


class ReplayRecording:
    """The records of the roles of one process, in a file each."""

    def __init__(self, roles: Sequence[Role], config: Config, folder: Path) -> None:
        self._roles = list(roles)
        self._records = [RoleRecord(role.counts) for role in roles]
        self._files: list[tuple[BinaryIO, bytearray]] = []  # and what is to be written there
        self._reports = 0
        (folder / FOLDER).mkdir(exist_ok=True)
        for role, record in zip(roles, self._records, strict=True):
            file = path_of(folder, role.name).open("xb", buffering=0)
            file.write(heading(role.name, config))
            self._files.append((file, record.rows))
            if isinstance(role, Buffer):
                file = steps_of(folder, role.name).open("xb", buffering=0)
                self._files.append((file, record.steps))
        for role, record in zip(roles, self._records, strict=True):
            role.tracer = record

    def flush(self) -> None:
        """Writes what has come since the last time; roles must be between two steps."""
        self._reports += 1
        if self._reports % CHECK_EVERY == 0:
            self._check_weights()
        self._write()

    def _write(self) -> None:
        try:
            for file, waiting in self._files:
                if waiting:
                    file.write(waiting)
                    waiting.clear()
        except OSError as error:  # of a full disk: no reason to end a run
            self._stop(error)

    def close(self) -> None:
        """Says how far the roles came, done with their work or not."""
        self._check_weights()
        for role, record in zip(self._roles, self._records, strict=True):
            record.add(Taken.END, 0, int(role.done))
        self._write()
        for file, _ in self._files:
            file.close()

    def _check_weights(self) -> None:
        for role, record in zip(self._roles, self._records, strict=True):
            if isinstance(role, Learner):
                record.add(Taken.CHECKSUM, 0, checksum_of(role.algorithm.weights()))

    def _stop(self, error: OSError) -> None:
        print(f"the record ends here: {error.strerror}", file=sys.stderr, flush=True)
        for file, _ in self._files:
            file.close()
        for role in self._roles:
            role.tracer = Tracer()
        self._roles, self._records, self._files = [], [], []


def forget(folder: Path) -> None:
    """Removes what an earlier process has recorded of a run that begins again."""
    for ending in (ENDING, STEPS):
        for path in (folder / FOLDER).glob(f"*{ending}"):
            path.unlink()


def path_of(folder: Path, role: str) -> Path:
    """Where a role of the run in `folder` has its record."""
    return folder / FOLDER / f"{role}{ENDING}"


def steps_of(folder: Path, role: str) -> Path:
    """Where the checksums of the steps are that a buffer took."""
    return folder / FOLDER / f"{role}{STEPS}"


def heading(role: str, config: Config) -> bytes:
    """The first line of a record."""
    about = {"record": FORMAT, "role": role, "config": fingerprint(config), "versions": versions()}
    about["formats"] = decided()
    return json.dumps(about).encode() + b"\n"


def fingerprint(config: Config) -> int:
    """Of all that a run depends on, and so not of when it ends and what it writes down."""
    whole = config.to_json()
    kept = {name: value for name, value in whole.items() if name not in ("exp", "notices", "name")}
    kept["exp"] = [config.exp.seed, config.exp.max_step]
    return zlib.crc32(json.dumps(kept, sort_keys=True).encode())


class RecordedRows(NamedTuple):
    """The rows of one role, as lists: a replay looks at them one by one."""

    what: list[int]
    who: list[int]
    value: list[int]
    before: list[int]
    steps: Path  # where the checksums of steps are
    formats: dict[str, str]  # that its process computed in, as `decided` tells them


def read(folder: Path, role: str, config: Config) -> RecordedRows:
    """The record of a role; raises where there is none, or it is not of this run."""
    path = path_of(folder, role)
    if not path.is_file():
        raise TianJiError(
            f"{path}: there is no such file: only what was trained with `tianji train --record` "
            "can be replayed"
        )
    try:
        with opened(path) as file:
            about = parsed(file.readline(LONGEST_HEADING), str(path))
            data = file.read()
    except (OSError, ValueError) as error:
        raise refusal(path, error) from error
    _refuse_other(path, about, role, config)
    rows = np.frombuffer(data[: len(data) // ROW.size * ROW.size], DTYPE)
    if (strange := np.flatnonzero(rows["what"] > max(Taken))).size:
        raise TianJiError(f"{path} is damaged: row {strange[0]:,} tells of nothing that is known")
    what, who, value, before = (rows[name].tolist() for name in ("what", "who", "value", "before"))
    formats = {asked: str(words) for asked, words in about["formats"].items()}
    return RecordedRows(what, who, value, before, steps_of(folder, role), formats)


def left_at(path: Path, before: int, found: list[int]) -> int | None:
    """The first step, from 0, in which a trajectory is not what was recorded behind `before` steps.

    None where the record does not tell.
    """
    try:
        with opened(path) as file:
            file.seek(before * STEP.itemsize)
            data = file.read((len(found) - 1) * STEP.itemsize)
    except (OSError, ValueError):
        return None
    there = np.frombuffer(data[: len(data) // STEP.itemsize * STEP.itemsize], STEP)
    differing = np.flatnonzero(there != np.array(found[1 : len(there) + 1], STEP))
    return int(differing[0]) if differing.size else None


def _refuse_other(path: Path, about: dict[str, Any], role: str, config: Config) -> None:
    if about.get("role") != role:
        raise TianJiError(f"{path} is no record of {role}")
    if about.get("record") != FORMAT:
        raise TianJiError(
            f"{path} is a record in format {about.get('record')}, and this version reads format "
            f"{FORMAT}: replay it with the version that wrote it, or train again"
        )
    if not isinstance(about.get("formats"), dict):
        raise TianJiError(f"{path} is damaged: its first line tells no number formats")
    if about.get("config") != fingerprint(config):
        raise TianJiError(
            f"{path} is the record of another configuration than {path.parent.parent}/config.json"
        )
    there, here = about.get("versions"), versions()
    if there != here:
        known = there if isinstance(there, dict) else {}
        listed = [f"{n} {known.get(n)} there, {v} here" for n, v in here.items()]
        differing = [text for n, text in zip(here, listed, strict=True) if known.get(n) != here[n]]
        raise TianJiError(
            f"{path} was written with other versions ({', '.join(differing)}): replay it with those"
        )
