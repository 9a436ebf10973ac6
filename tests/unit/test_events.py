"""TensorBoard's event files hold the rows of a run, and making them loads no torch."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tianji.observe import tensorboard_events as module
from tianji.observe.tensorboard_events import Events, _without_torch

with _without_torch():
    from tensorboardX.proto.event_pb2 import Event, SessionLog
    from tensorboardX.record_writer import masked_crc32c


def records(data: bytes) -> Iterator[Event]:
    """The events of a file; the checksum of a length vouches for it."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert data[8:12] == struct.pack("<I", masked_crc32c(data[:8]))
        event, data = data[12 : 12 + length], data[12 + length :]
        assert data[:4] == struct.pack("<I", masked_crc32c(event))
        yield Event.FromString(event)
        data = data[4:]


def written(folder: Path) -> list[list[Event]]:
    return [list(records(path.read_bytes())) for path in sorted(folder.iterdir())]


def test_an_event_file_holds_its_scalars(tmp_path: Path) -> None:
    events = Events(tmp_path)
    values = {"train/loss": 0.5, "a/missing": None, "a/huge": 1e300, "wall_s": 2.0}
    events.add(values, step=300)
    events.close()
    ((version, row),) = written(tmp_path)
    assert version.file_version == "brain.Event:2"
    assert row.step == 300
    assert [(value.tag, value.simple_value) for value in row.summary.value] == [("train/loss", 0.5)]


def test_a_resumed_run_tells_what_is_to_be_forgotten(tmp_path: Path) -> None:
    events = Events(tmp_path, resumed_at=299)
    events.add({"train/loss": 0.5}, step=310)
    events.close()
    ((_, start, row),) = written(tmp_path)
    assert (start.step, start.session_log.status) == (300, SessionLog.START)
    assert row.step == 310


def test_rows_wait_a_batch_of_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events, now = Events(tmp_path), [1_700_000_000.0]
    monkeypatch.setattr(module.time, "time", lambda: now[0])
    for step in range(5):
        events.add({"a/b": 1.0}, step)
        now[0] += module.BATCH_SECONDS * 0.4
    ((_, *rows),) = written(tmp_path)
    assert [row.step for row in rows] == [0, 1, 2, 3]
    wanted = [module.BATCH_SECONDS * 0.4 * step for step in range(4)]
    assert [row.wall_time % 100 for row in rows] == pytest.approx(wanted)
    events.close()
    assert len(written(tmp_path)[0]) == 6


def test_every_start_has_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "time", lambda: 1_700_000_000.0)
    for step in range(3):
        events = Events(tmp_path)
        events.add({"a/b": 1.0}, step)
        events.close()
    assert [[row.step for row in file[1:]] for file in written(tmp_path)] == [[0], [1], [2]]


def test_without_a_row_there_is_no_file(tmp_path: Path) -> None:
    Events(tmp_path, resumed_at=3).close()
    assert written(tmp_path) == []


MAKE_ONE = """
import sys
from pathlib import Path
from tianji.observe.tensorboard_events import Events
events = Events(Path(sys.argv[1]))
events.add({"a/b": 1.0}, 1)
before = "tensorboardX" in sys.modules
events.close()
print(before, "tensorboardX" in sys.modules, "torch" in sys.modules)
"""


def test_the_library_is_loaded_for_the_first_rows_and_brings_no_torch(
    tmp_path: Path, child_env: dict[str, str]
) -> None:
    line = [sys.executable, "-c", MAKE_ONE, str(tmp_path)]
    done = subprocess.run(line, env=child_env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False True False\n", "")
