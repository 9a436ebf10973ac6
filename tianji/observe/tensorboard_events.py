"""TensorBoard's event files, of tensorboardX's messages.

They are made every few seconds and at the end, so that the many rows of a run's first seconds, and
the library itself, cost a short run no time while it trains.
"""

from __future__ import annotations

import platform
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tianji.core.append_log import AppendLog

LARGEST = 3e38  # that a scalar, of 32 bits, can hold
BATCH_SECONDS = 5.0  # that rows wait at most, while more come


class Events:
    """A file of scalars in a folder of its run; every (re)start of a run has one of its own.

    `resumed_at` is the step that a run goes on from: whatever an earlier file says of later steps
    did not lead here, and TensorBoard forgets it.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        self.name = "the TensorBoard file"
        self._folder = folder
        self._file = AppendLog(self._open)
        self._rows: list[dict[str, Any]] = [{"file_version": "brain.Event:2"}]
        if resumed_at is not None:
            self._rows.append({"step": resumed_at + 1, "session_log": {"status": "START"}})
        self._head = len(self._rows)  # rows that are no reason to have a file
        self._due = 0.0

    def _open(self) -> BinaryIO:
        stem = f"events.out.tfevents.{int(time.time()):010d}.{platform.node() or 'localhost'}"
        attempt = 0
        while True:
            try:
                return (self._folder / f"{stem}.{attempt:03d}").open("xb", buffering=0)
            except FileExistsError:  # the run was started twice within a second
                attempt += 1

    def add(self, values: Mapping[str, float | int | None], step: int) -> None:
        """Keeps every scalar that such a file can hold, at one point of the x axis.

        Names without a slash are left out: they are the axes that TensorBoard has of its own.
        """
        scalars = [
            {"tag": name, "simple_value": value}
            for name, value in values.items()
            if "/" in name and value is not None and abs(value) < LARGEST
        ]
        now = time.time()
        self._rows.append({"wall_time": now, "step": step, "summary": {"value": scalars}})
        if not self._due:
            self._due = now + BATCH_SECONDS
        elif now >= self._due:
            self._due = now + BATCH_SECONDS
            self._write()

    def _write(self) -> None:
        with _without_torch():
            from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]  # it has no stubs
            from tensorboardX.record_writer import masked_crc32c  # type: ignore[import-untyped]  # nor here
        whole = bytearray()
        for row in self._rows:
            event = Event(**{"wall_time": time.time()} | row).SerializeToString()
            length = struct.pack("<Q", len(event))
            whole += length + struct.pack("<I", masked_crc32c(length))
            whole += event + struct.pack("<I", masked_crc32c(event))
        self._rows.clear()
        self._head = 0
        self._file.add(bytes(whole))

    def close(self, summary: Mapping[str, object] | None = None) -> None:
        """Writes what waits, and closes the file."""
        try:
            if len(self._rows) > self._head:
                self._write()
        finally:
            self._file.close()


@contextmanager
def _without_torch() -> Iterator[None]:
    """For loading tensorboardX, which would load torch: seconds that no launcher has use for."""
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None  # type: ignore[assignment]  # as Python has it: not to be found
    try:
        yield
    finally:
        if hidden:
            del sys.modules["torch"]
