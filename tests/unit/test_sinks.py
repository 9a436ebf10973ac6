"""Sinks: whole rows or none, and nothing that fails in one of them reaches training."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tianji.config import load
from tianji.core import append_log
from tianji.core.append_log import AppendLog, open_lines
from tianji.core.errors import TianJiError
from tianji.observe import tracker
from tianji.observe.sinks import Jsonl, SinkFailed, Sinks, identity, read_rows, refuse_missing, warn

ROOT = Path(__file__).parents[2]


class Disk(io.BytesIO):
    """A file on a disk that takes only so many bytes."""

    name = "full"

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def write(self, data: Any) -> int:
        n = min(len(data), self.room - self.tell())
        if n == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data[:n])


class Listed:
    """A sink that keeps what it gets, and fails on demand."""

    def __init__(self, name: str = "listed") -> None:
        self.name = name
        self.rows: list[int] = []
        self.closed_with: Mapping[str, Any] | None = None
        self.failure: Exception | None = None

    def add(self, values: Mapping[str, float | int | None], step: int) -> None:
        if self.failure is not None:
            raise self.failure
        self.rows.append(step)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        if self.failure is not None:
            raise self.failure
        self.closed_with = summary


def steps(*numbers: int) -> list[dict[str, int]]:
    return [{"env_steps": number} for number in numbers]


def write_rows(folder: Path, *numbers: int) -> None:
    sink = Jsonl(folder)
    for row in steps(*numbers):
        sink.add(row, row["env_steps"])
    sink.close()


def test_a_row_is_on_disk_as_soon_as_it_is_added(tmp_path: Path) -> None:
    sink = Jsonl(tmp_path)
    sink.add({"env_steps": 3, "train/loss": None}, 3)
    text = (tmp_path / "metrics.jsonl").read_text()
    assert text == '{"env_steps": 3, "train/loss": null}\n'
    sink.close()


def test_rows_are_added_to_what_is_there(tmp_path: Path) -> None:
    write_rows(tmp_path, 1, 2)
    write_rows(tmp_path, 3)
    assert read_rows(tmp_path) == steps(1, 2, 3)


def test_half_a_row_of_a_writer_that_died_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"env_steps": 1}\n{"env_st')
    assert read_rows(tmp_path) == steps(1)
    write_rows(tmp_path, 2)
    assert path.read_text() == '{"env_steps": 1}\n{"env_steps": 2}\n'


def test_a_very_long_file_keeps_all_but_the_half_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_log, "LONGEST_LINE", 10)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"aaaa\nbbbb\nccc")
    open_lines(path).close()
    assert path.read_bytes() == b"aaaa\nbbbb\n"


def test_what_a_resumed_run_had_forgotten_is_not_read(tmp_path: Path) -> None:
    write_rows(tmp_path, 100, 200, 300, 400)  # the checkpoint was at 250
    write_rows(tmp_path, 260, 320, 320)
    assert read_rows(tmp_path) == steps(100, 200, 260, 320, 320)


def test_a_run_without_rows_has_none(tmp_path: Path) -> None:
    assert read_rows(tmp_path) == []


def test_a_full_disk_never_holds_half_a_record_and_nothing_is_lost() -> None:
    disk = Disk(room=10)
    file = AppendLog(lambda: disk)
    file.add(b"first\n")
    for record in (b"second\n", b"third\n"):
        with pytest.raises(OSError, match="No space left"):
            file.add(record)
        assert disk.getvalue() == b"first\n"
    disk.room = 1_000
    file.add(b"fourth\n")
    assert disk.getvalue() == b"first\nsecond\nthird\nfourth\n"


def test_of_too_many_records_that_wait_the_oldest_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(append_log, "MOST_WAITING", 2)
    disk = Disk(room=0)
    file = AppendLog(lambda: disk)
    for record in (b"1\n", b"2\n", b"3\n"):
        with pytest.raises(OSError, match="No space left"):
            file.add(record)
    disk.room = 100
    file.flush()
    assert (disk.getvalue(), file.lost) == (b"2\n3\n", 1)


def test_a_folder_that_has_gone_is_said_once_and_survived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    sinks = Sinks([Jsonl(folder)])
    for step in (1, 2):
        sinks.add({"env_steps": step}, step)
    assert capsys.readouterr().err == (
        "tianji: warning: metrics.jsonl cannot be written (No such file or directory); "
        "training goes on, and rows wait\n"
    )
    folder.mkdir()
    sinks.add({"env_steps": 3}, 3)
    assert "metrics.jsonl is written again" in capsys.readouterr().err
    sinks.close(None)
    assert read_rows(folder) == steps(1, 2, 3)


def test_a_sink_that_failed_is_dropped_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad, good = Listed("bad"), Listed("good")
    sinks = Sinks([bad, good])
    bad.failure = SinkFailed("no such project")
    for step in (1, 2):
        sinks.add({}, step)
    assert capsys.readouterr().err == (
        "tianji: warning: bad failed, and training goes on without it: no such project\n"
    )
    sinks.close({"status": "solved"})
    assert (good.rows, good.closed_with, bad.closed_with) == ([1, 2], {"status": "solved"}, None)


def test_every_sink_is_closed_whatever_the_first_one_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad, good = Listed("bad"), Listed("good")
    bad.failure = OSError(errno.EIO, "Input/output error")
    Sinks([bad, good]).close({"status": "failed"})
    assert good.closed_with == {"status": "failed"}
    assert "its last rows are lost" in capsys.readouterr().err


def test_a_warning_that_nobody_can_hear_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    warn("nobody is there")
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    warn("nobody is there")


def test_a_run_keeps_its_name_among_the_trackers(tmp_path: Path) -> None:
    folder, other = tmp_path / "my run", tmp_path / "deep" / "my run"
    folder.mkdir()
    other.mkdir(parents=True)
    name = identity(folder)
    assert name.startswith("my-run-")
    assert identity(folder) == name != identity(other)
    moved = folder.rename(tmp_path / "elsewhere")
    assert identity(moved) == name


def test_a_tracker_that_is_not_installed_is_refused_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    (tmp_path / "wandb").mkdir()  # what it leaves behind is not the package
    for name in ("wandb", "trackio"):
        with pytest.raises(TianJiError, match=rf"--track {name} needs .* 'tianji\[{name}\]'"):
            refuse_missing([name])


def test_the_configuration_names_the_trackers() -> None:
    path = ROOT / "tests" / "tasks" / "echo_ppo.py"
    assert load(path).exp.track == ()
    assert load(path, ['exp.track=["wandb", "trackio"]']).exp.track == ("wandb", "trackio")
    with pytest.raises(TianJiError, match=r"exp\.track must be a list, each item 'wandb' or"):
        load(path, ['exp.track=["wandbb"]'])


class Told:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.rows: list[tuple[dict[str, float], int]] = []
        self.summary: Any = "not finished"

    def log(self, values: dict[str, float], step: int) -> None:
        self.rows.append((values, step))

    def finish(self, summary: dict[str, Any] | None) -> None:
        self.summary = summary


def test_a_tracker_is_told_every_row_and_then_the_summary() -> None:
    told = Told()
    lines = [{"values": {"a": 1.0}, "step": 5}, {"summary": {"status": "solved"}}]
    tracker.track(told, tracker.messages(iter(json.dumps(line) + "\n" for line in lines)))
    assert told.rows == [({"a": 1.0}, 5)]
    assert told.summary == {"status": "solved"}


def test_a_tracker_whose_launcher_died_finishes_without_a_summary() -> None:
    told = Told()
    lines = ['{"values": {"a": 1.0}, "step": 5}\n', '{"values": {"a":']
    tracker.track(told, tracker.messages(iter(lines)))
    assert (len(told.rows), told.summary) == (1, None)
