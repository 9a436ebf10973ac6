"""The rows of a recording and the file that they lie in: a ring of the newest ones.

    <8s q I I>      magic, rows ever written, bytes before the first row, bytes of the JSON text
    JSON            whose rows these are (see `Heading`)
    rows            `ROW` each, row k in place k modulo the capacity

A row is stored before the count that makes it exist, so a process that is killed at any point
leaves a file that can be read.
"""

from __future__ import annotations

import enum
import json
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass

import numpy as np

from tianji.config import REQUIRED, Section, bind, key
from tianji.config.section import Place
from tianji.core.errors import TianJiError
from tianji.core.json_file import parsed

MAGIC = b"TIANJI\x00\x01"
PREFIX = struct.Struct("<8sqII")
ROW = struct.Struct("<ddddHHHH")
FIELDS = [("began", "<f8"), ("ended", "<f8"), ("number", "<f8"), ("version", "<f8")]
FIELDS += [(name, "<u2") for name in ("role", "kind", "what", "peer")]
DTYPE = np.dtype(FIELDS)
assert DTYPE.itemsize == ROW.size

MOST_ROLES = 1_000  # of one process
LATEST = 1e10  # seconds on any clock: 300 years
PAGE = 4096  # rows begin at a multiple of it
ROWS_PER_SECOND = 50_000  # of one process, for the fastest environments


class Doing(enum.IntEnum):
    """What a role did between `began` and `ended`."""

    ACT = 0  # both of the next: `number` and `version` are when simulation began and ended
    INFERENCE = enum.auto()  # (1) an action for every environment
    SIMULATION = enum.auto()  # (2) a step of every environment
    UPDATE = enum.auto()  # (3) from the weights of this `version` to the next
    SEND = enum.auto()  # of `what`; by a buffer, with drawing the batch
    RECEIVE = enum.auto()  # of `what`; by a buffer, with storing it
    IDLE = enum.auto()  # `what` is a `Wait`

    @property
    def word(self) -> str:
        """As people read it."""
        return self.name.lower()


class Wait(enum.IntEnum):
    """What an idle role waited for: a dependency of the paper, or none of them."""

    WEIGHTS = 0  # I: update -> inference
    ACTION = enum.auto()  # II: inference -> simulation; within one role, so nobody waits for it
    TRAJECTORIES = enum.auto()  # III: simulation -> update
    BALANCE = enum.auto()  # ahead of the others as far as the replay ratio lets it be
    LEARNERS = enum.auto()  # the gradients of the others in its group
    GROUPS = enum.auto()  # the parameters of the others (reducer)

    @property
    def dependency(self) -> str:
        """Its number in the paper, or nothing."""
        return {Wait.WEIGHTS: "I", Wait.ACTION: "II", Wait.TRAJECTORIES: "III"}.get(self, "")

    @property
    def words(self) -> str:
        """As the timeline has it."""
        name = {Wait.LEARNERS: "other learners", Wait.GROUPS: "other groups"}
        word = name.get(self, self.name.lower())
        return f"idle {self.dependency}: {word}" if self.dependency else f"idle: {word}"


@dataclass(frozen=True)
class Heading:
    """Whose rows a file holds."""

    home: str  # the process
    roles: tuple[str, ...]  # by the number that rows give them
    host: str
    pid: int = key(REQUIRED, "of the process", at_least=1)
    seconds: float = key(REQUIRED, "that were to be recorded", at_least=-LATEST, at_most=LATEST)
    capacity: int = key(REQUIRED, "rows", at_least=1)
    offset: float = key(
        REQUIRED, "seconds to add for the launcher's clock", at_least=-LATEST, at_most=LATEST
    )
    recorded_at: str = key(REQUIRED, "when recording began, local time")

    def to_bytes(self) -> tuple[bytes, int]:
        """The text, and the bytes before the first row."""
        text = json.dumps(asdict(self)).encode()
        return text, -(-(PREFIX.size + len(text)) // PAGE) * PAGE


def heading_from(text: bytes) -> Heading:
    """The inverse of `Heading.to_bytes`; ValueError where it is not one."""
    with suppress(TianJiError):
        heading = bind(Heading, Section.of(parsed(text, "its heading"), Place()), "its heading")
        if len(heading.roles) <= MOST_ROLES:
            return heading
    raise ValueError("its heading is damaged: nobody can say whose rows these are")
