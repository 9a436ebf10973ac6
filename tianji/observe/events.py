"""TensorBoard's event files, written without TensorBoard.

The libraries that write such files load torch: a second and 200 MB that a launcher has no use for.
The format is small: records of a length, a serialised `Event` and a checksum of either.
"""

from __future__ import annotations

import platform
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from tianji.core.append_log import Appending

LARGEST = 3e38  # that a scalar, of 32 bits, can hold
START = b"\x3a\x02\x08\x01"  # field 7, `session_log`, with the status START


class Events:
    """A file of scalars in a folder of its run; every (re)start of a run has one of its own.

    `resumed_at` is the step that a run goes on from: whatever an earlier file says of later steps
    did not lead here, and TensorBoard forgets it.
    """

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        self.name = "the TensorBoard file"
        self._folder = folder
        self._file = Appending(self._open)
        self._head = _record(_field(3, b"brain.Event:2"))
        if resumed_at is not None:
            self._head += _record(_step(resumed_at + 1) + START)

    def _open(self) -> BinaryIO:
        stem = f"events.out.tfevents.{int(time.time()):010d}.{platform.node() or 'localhost'}"
        attempt = 0
        while True:
            try:
                return (self._folder / f"{stem}.{attempt:03d}").open("xb", buffering=0)
            except FileExistsError:  # the run was started twice within a second
                attempt += 1

    def add(self, values: Mapping[str, float | int | None], step: int) -> None:
        """Writes every scalar that such a file can hold, at one point of the x axis.

        Names without a slash are left out: they are the axes that TensorBoard has of its own.
        """
        scalars = b"".join(
            _field(1, _field(1, name.encode()) + b"\x15" + struct.pack("<f", value))
            for name, value in values.items()
            if "/" in name and value is not None and abs(value) < LARGEST
        )
        head, self._head = self._head, b""
        self._file.add(head + _record(_step(step) + _field(5, scalars)))

    def close(self, summary: Mapping[str, object] | None = None) -> None:
        """Closes the file."""
        self._file.close()


def _record(event: bytes) -> bytes:
    event = b"\x09" + struct.pack("<d", time.time()) + event
    length = struct.pack("<Q", len(event))
    return length + checksum(length) + event + checksum(event)


def _step(step: int) -> bytes:
    return b"\x10" + _varint(step)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _crc_table() -> list[int]:
    table = list(range(256))
    for _ in range(8):
        table = [crc >> 1 ^ 0x82F63B78 * (crc & 1) for crc in table]
    return table


_CRC_TABLE = _crc_table()


def checksum(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted as the record format wants it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
