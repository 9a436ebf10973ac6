"""TensorBoard's event files, byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tianji.observe import events as module
from tianji.observe.events import Events, checksum


def records(data: bytes) -> Iterator[bytes]:
    """The records of an event file; the checksum of a length vouches for it."""
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        assert data[8:12] == checksum(data[:8])
        event, data = data[12 : 12 + length], data[12 + length :]
        assert data[:4] == checksum(event)
        yield event
        data = data[4:]


def written(folder: Path) -> list[list[bytes]]:
    """The records of every file, less their time stamps."""
    return [[event[9:] for event in records(p.read_bytes())] for p in sorted(folder.iterdir())]


def test_an_event_file_holds_its_scalars(tmp_path: Path) -> None:
    events = Events(tmp_path)
    values = {"train/loss": 0.5, "a/missing": None, "a/huge": 1e300, "wall_s": 2.0}
    events.add(values, step=300)
    events.close()
    ((version, scalars),) = written(tmp_path)
    assert version == b"\x1a\x0dbrain.Event:2"
    value = b"\x0a\x0atrain/loss\x15" + struct.pack("<f", 0.5)
    assert scalars == b"\x10\xac\x02" + b"\x2a\x13" + b"\x0a\x11" + value


def test_a_resumed_run_tells_what_is_to_be_forgotten(tmp_path: Path) -> None:
    events = Events(tmp_path, resumed_at=299)
    events.add({"train/loss": 0.5}, step=310)
    ((_, start, scalars),) = written(tmp_path)
    assert start == b"\x10\xac\x02" + b"\x3a\x02\x08\x01"  # step 300, session_log.status: START
    assert scalars.startswith(b"\x10\xb6\x02")
    events.close()


def test_every_start_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 1_700_000_000.0)
    for step in range(3):
        events = Events(tmp_path)
        events.add({"a/b": 1.0}, step)
        events.close()
    assert [len(file) for file in written(tmp_path)] == [2, 2, 2]
    assert [file[1][:2] for file in written(tmp_path)] == [b"\x10\x00", b"\x10\x01", b"\x10\x02"]


def test_without_a_row_there_is_no_file(tmp_path: Path) -> None:
    Events(tmp_path).close()
    assert written(tmp_path) == []


def test_the_checksum_is_the_one_of_the_record_format() -> None:
    crc = 0xE3069283  # of the nine digits, by the definition of CRC-32C
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert checksum(b"123456789") == struct.pack("<I", masked)
