"""What a process records of itself, and leaves when it dies."""

import subprocess
import sys

import numpy as np
import pytest
from recordings import folder_of_a_run, heading, record

from tianji.core.channel import Message
from tianji.core.tracer import What
from tianji.observe.trace import FOLDER, forget
from tianji.observe.trace.format import DTYPE, ROW, Doing, Wait
from tianji.observe.trace.recorder import CHUNK_SECONDS, Recorder, Track
from tianji.observe.trace.trace_reader import read_file


@pytest.fixture
def run(tmp_path):
    return folder_of_a_run(tmp_path)


KILLED = """
import os, signal, sys
from pathlib import Path
from tianji.observe.trace.recorder import Recorder
from tianji.observe.trace.format import Doing, Heading

heading = Heading("a", ("a",), "here", 7, 1.0, 1000, 0.0, "now")
recorder = Recorder(Path(sys.argv[1]), heading)
for i in range(1, 101):
    recorder.add(0, Doing.UPDATE, i, i + 0.5, 0, i)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_all_that_it_has_written(run, child_env):
    path = run / FOLDER / "a.trace"
    line = [sys.executable, "-c", KILLED, str(path)]
    assert subprocess.run(line, env=child_env).returncode == -9
    assert read_file(path).rows["version"].tolist() == list(range(1, 101))


def test_a_run_that_goes_on_forgets_what_was_recorded_before(run):
    record(run, heading(), (0, Doing.UPDATE, 1.0, 2.0))
    forget(run)
    assert not (run / FOLDER).exists()
    forget(run)  # there was none


def test_a_disk_without_room_is_told_at_once(tmp_path):
    about = heading(capacity=1 << 50)
    with pytest.raises(OSError):
        Recorder(tmp_path / "trace" / "a.trace", about)


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, role, kind, began, ended, number=0, version=0, what=0, peer=0):
        self.rows.append((kind, began, ended, number, version, what, peer))


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [10.0]
    monkeypatch.setattr("tianji.observe.trace.recorder.time.monotonic", lambda: now[0])
    return now


class Role:
    """What a role waits for, set by hand."""

    def __init__(self, wait=Wait.BALANCE):
        self.rows, self.wait = Rows(), wait
        self.track = Track(self.rows, 0, lambda: self.wait, lambda: 7)

    def written(self):
        return [tuple(row) for row in self.rows.rows]


def test_idling_lasts_from_the_first_time_that_there_was_nothing_to_do(clock):
    role = Role(Wait.WEIGHTS)
    for clock[0] in (10.0, 10.02, 10.05):
        role.track.idle()
    clock[0] = 10.06
    role.track.begin()
    clock[0] = 10.08
    role.track.updated()
    assert role.written() == [
        (Doing.IDLE, 10.0, 10.06, 0, 0, Wait.WEIGHTS, 0),
        (Doing.UPDATE, 10.06, 10.08, 0, 7, 0, 0),
    ]


def test_idling_for_something_else_is_another_row(clock):
    role = Role(Wait.WEIGHTS)
    role.track.idle()
    clock[0], role.wait = 10.05, Wait.BALANCE
    role.track.idle()
    clock[0] = 10.06
    role.track.close()
    idle = [(began, ended, what) for _, began, ended, _, _, what, _ in role.written()]
    assert idle == [(10.0, 10.05, Wait.WEIGHTS), (10.05, 10.06, Wait.BALANCE)]


def test_a_role_that_hangs_is_seen_to_idle(clock):
    role = Role()
    role.track.idle()
    clock[0] += 2 * CHUNK_SECONDS
    role.track.idle()
    assert [row[0] for row in role.written()] == [Doing.IDLE]


def test_a_step_of_an_actor_is_one_row(clock):
    role = Role()
    role.track.begin()
    clock[0] = 10.1
    role.track.decided()
    clock[0] = 10.4
    role.track.acted()
    assert role.written() == [(Doing.ACT, 10.0, 10.1, 10.1, 10.4, 0, 0)]


def test_what_is_sent_is_numbered_as_what_comes_of_it(clock):
    role = Role()
    role.track.begin()
    role.track.skip([0, 1])  # of the second actor, one is of an earlier process
    for version in (3, 4):
        role.track.sent(What.TRAJECTORY, version)
        for peer in (0, 1):
            role.track.received(What.TRAJECTORY, Message({}, version, 90), peer)
    role.track.received(What.TRAJECTORY, Message({}, 5, -1), 1)  # stands in for a lost actor's
    numbers = [(kind, number, version, peer) for kind, _, _, number, version, _, peer in
               role.written()]  # fmt: skip
    assert numbers == [
        (Doing.SEND, 0, 3, 0),
        (Doing.RECEIVE, 0, 3, 0),
        (Doing.RECEIVE, -1, 3, 1),
        (Doing.SEND, 1, 4, 0),
        (Doing.RECEIVE, 1, 4, 0),
        (Doing.RECEIVE, 0, 4, 1),
        (Doing.RECEIVE, -1, 5, 1),
    ]


def test_a_row_has_the_same_layout_for_who_writes_and_who_reads():
    packed = ROW.pack(1.0, 2.0, 3.0, 4.0, 5, 6, 7, 8)
    assert np.frombuffer(packed, DTYPE).tolist() == [(1.0, 2.0, 3.0, 4.0, 5, 6, 7, 8)]
