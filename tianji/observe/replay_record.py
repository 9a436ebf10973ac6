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
process that is killed did in its last moments is not in its record. Until then short trajectories
are only copied: checksums of many in a row take a third of the time, for all is in the caches.
"""

from __future__ import annotations

import enum
import json
import struct
import sys
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
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
from tianji.core.schema import Arrays
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
FORMAT = 3
WIDE = 4_096  # bytes of a step in one array, from which on they are not copied beside the others
LARGE = 65_536  # bytes of a trajectory, from which on it is not copied
ROW, VALUE, VALUE_AT = struct.Struct("<HHII"), struct.Struct("<I"), 4
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


class Checksums:
    """Makes a checksum for each step of trajectories that are laid out alike.

    It covers what was decided and earned in the step and what was seen after it; that of the first
    step covers what was there before, too. Short rows are copied side by side, into memory that
    stays: so a step is one piece, and it is known beforehand where it lies.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._n_rows = len(arrays["valid"])
        self._before = [name for name in (BEFORE, MEMORY) if name in arrays]
        self._wide: list[str] = []
        starts: dict[str, int] = {}
        width = 0
        for name, rows in arrays.items():
            if name in ("length", *self._before):
                continue
            if rows[0].nbytes > WIDE:
                self._wide.append(name)
            else:
                starts[name] = width
                width += -(-rows[0].nbytes // 8) * 8  # numbers stay aligned
        beside = np.zeros((self._n_rows + 1, width), np.uint8)
        self._narrow: list[tuple[str, npt.NDArray[Any]]] = []
        for name, start in starts.items():
            rows = arrays[name]
            place = beside[-len(rows) :, start : start + rows[0].nbytes]
            self._narrow.append((name, place.view(rows.dtype).reshape(rows.shape)))
        self._steps = pieces(beside, self._n_rows)
        ends = [*accumulate(rows.nbytes for rows in arrays.values())]
        self._copy = np.zeros(ends[-1], np.uint8)
        parts = zip(arrays.items(), np.split(self._copy, ends[:-1]), strict=True)
        self._copied = {k: part.view(rows.dtype).reshape(rows.shape) for (k, rows), part in parts}

    @property
    def n_bytes(self) -> int:
        """Of a trajectory."""
        return len(self._copy)

    def of_copy(self, data: bytes, version: int) -> bytes:
        """The same of arrays that were copied one behind the other."""
        self._copy[:] = np.frombuffer(data, np.uint8)
        return self.of(Message(self._copied, version, 0))

    def of(self, message: Message) -> bytes:
        """As they stand in the file; another of them all is the trajectory's."""
        arrays, value = message.arrays, message.version & 0xFFFFFFFF
        n = int(arrays["length"])
        for name, place in self._narrow:
            place[...] = arrays[name]
        for name in self._before:
            value = checksum_of(arrays[name], value)
        found = [zlib.crc32(self._steps[0], value), *map(zlib.crc32, self._steps[1:n])]
        for name in self._wide:
            found = list(map(zlib.crc32, pieces(arrays[name], self._n_rows), found))
        return struct.pack(f"<{n}I", *found)


def pieces(rows: npt.NDArray[Any], n: int) -> list[memoryview]:
    """The memory of each of `n` steps; one row more was there before the first, and is with it."""
    data, size = rows.reshape(-1).view(np.uint8).data, rows[0].nbytes
    cuts = [0, *(size * t for t in range(len(rows) - n + 1, len(rows) + 1))]
    return [data[start:end] for start, end in pairwise(cuts)]


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
        self._checksums: Checksums | None = None
        self._copies: list[tuple[int, int, bytes]] = []  # place of the row, version, arrays

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
                self._took(message, peer)
        elif what is What.WEIGHTS:
            self.add(Taken.WEIGHTS, 0, message.version)
        elif what is What.PRIORITIES:
            self.add(Taken.PRIORITIES, peer, message.version)

    def _took(self, trajectory: Message, actor: int) -> None:
        if self._checksums is None:
            self._checksums = Checksums(trajectory.arrays)
        if self._checksums.n_bytes > LARGE:
            steps = self._checksums.of(trajectory)
            self.add(Taken.TRAJECTORY, actor, zlib.crc32(steps))
            self.steps += steps
            return
        arrays = trajectory.arrays.values()
        data = b"".join(arrays)  # type: ignore[arg-type]  # numpy's types do not say so
        self._copies.append((len(self.rows), trajectory.version, data))
        self.add(Taken.TRAJECTORY, actor, 0)

    def settle(self) -> None:
        """Makes the checksums that were put off."""
        for row, version, data in self._copies:
            assert self._checksums is not None
            steps = self._checksums.of_copy(data, version)
            VALUE.pack_into(self.rows, row + VALUE_AT, zlib.crc32(steps))
            self.steps += steps
        self._copies.clear()

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
        for record in self._records:
            record.settle()
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


def left_at(path: Path, before: int, steps: bytes) -> int | None:
    """The first step, from 0, in which a trajectory is not what was recorded behind `before` steps.

    None where the record does not tell. `steps` are the checksums of those that came now.
    """
    try:
        with opened(path) as file:
            file.seek(before * STEP.itemsize)
            data = file.read(len(steps))
    except (OSError, ValueError):
        return None
    there = np.frombuffer(data[: len(data) // STEP.itemsize * STEP.itemsize], STEP)
    differing = np.flatnonzero(there != np.frombuffer(steps, STEP)[: len(there)])
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
