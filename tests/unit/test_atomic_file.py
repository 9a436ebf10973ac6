"""Whatever happens, a file is what it was or what it was to become."""

import errno
import io
import os
import threading
from pathlib import Path

import pytest

from tianji.core import atomic_file
from tianji.core.errors import TianJiError


@pytest.fixture
def path(tmp_path):
    """A file that is there already, alone in its folder."""
    found = tmp_path / "summary.json"
    found.write_text("before")
    return found


def beside(path):
    return [each for each in path.parent.iterdir() if each != path]


def full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class FullDisk(io.FileIO):
    """Takes ten bytes."""

    def write(self, data):
        return super().write(data[: 10 - self.tell()]) or full()


def test_text_and_bytes_replace_what_was_there(path):
    atomic_file.write(path, "häuser\n")
    assert path.read_bytes() == "häuser\n".encode()
    atomic_file.write(path, b"\r\n\0")
    assert path.read_bytes() == b"\r\n\0"
    assert beside(path) == []


def test_a_new_file_has_the_usual_permissions(tmp_path):
    atomic_file.write(tmp_path / "new", "")
    (tmp_path / "plain").write_text("")
    modes = {each.name: each.stat().st_mode for each in tmp_path.iterdir()}
    assert modes["new"] == modes["plain"]


def test_nobody_sees_what_is_being_written(path):
    with atomic_file.writing(path) as file:
        file.write(b"half")
        file.flush()
        assert path.read_text() == "before"
        assert all(atomic_file.LEFT_OVER.fullmatch(each.name) for each in beside(path))
        file.write(b" and half")
    assert path.read_text() == "half and half"
    assert beside(path) == []


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_fails_changes_nothing(path, failure):
    with pytest.raises(failure), atomic_file.writing(path) as file:
        file.write(b"half")
        raise failure
    assert path.read_text() == "before"
    assert beside(path) == []


@pytest.mark.parametrize(
    ("operation", "length"),
    [("open", 1), ("write", 100_000), ("close", 11), ("replace", 1)],  # 11 wait until it is closed
)
def test_a_full_disk_changes_nothing_and_the_error_names_the_file(
    path, monkeypatch, operation, length
):
    with monkeypatch.context() as patched:
        if operation == "replace":
            patched.setattr(os, "replace", full)
        elif operation == "open":
            patched.setattr(Path, "open", full)
        else:
            patched.setattr(Path, "open", lambda p, _: io.BufferedWriter(FullDisk(p, "w")))
        with pytest.raises(OSError, match="No space left") as refusal:
            atomic_file.write(path, b"x" * length)
    assert (refusal.value.errno, refusal.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "before"
    assert beside(path) == []


def test_a_disk_from_which_nothing_can_be_removed_is_told_of_once(path, monkeypatch):
    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(Path, "unlink", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*summary\.json'"):
        atomic_file.write(path, "x")


def test_what_the_user_named_is_the_users_mistake(tmp_path):
    path = tmp_path / "nowhere" / "plan.json"
    said = f"{path} cannot be written: No such file or directory: name another with --out"
    with pytest.raises(TianJiError, match=said), atomic_file.explained("name another with --out"):
        atomic_file.write(path, "x")
    with pytest.raises(TianJiError, match="Is a directory"), atomic_file.explained(""):
        atomic_file.write(tmp_path, "x")


def test_a_writer_that_another_overtakes_harms_nobody(path):
    with atomic_file.writing(path) as file:
        file.write(b"the first")
        other = threading.Thread(target=atomic_file.write, args=(path, "the second, longer"))
        other.start()
        other.join()
        assert path.read_text() == "the second, longer"
    assert path.read_text() == "the first"
    assert beside(path) == []


def test_of_many_writers_at_once_a_reader_sees_one_at_a_time(path):
    texts = [letter * 100_000 for letter in "abc"]
    atomic_file.write(path, texts[0])

    def write(text):
        for _ in range(30):
            atomic_file.write(path, text)

    writers = [threading.Thread(target=write, args=(text,)) for text in texts]
    for each in writers:
        each.start()
    seen = {path.read_text()}
    while any(each.is_alive() for each in writers):
        seen.add(path.read_text())
    assert seen <= set(texts)
    assert beside(path) == []


def test_a_link_stays_and_what_it_points_to_is_replaced(path, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(path.name)
    atomic_file.write(link, "after")
    assert link.is_symlink() and path.read_text() == "after"


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match=r"this is a pipe, and nobody reads it: '.*pipe'"):
        atomic_file.write(tmp_path / "pipe", "text")


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        atomic_file.write(pipe, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo() and beside(pipe) == []
