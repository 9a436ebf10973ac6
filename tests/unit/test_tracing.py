"""Recordings: what is written can be read, also when the writer died; the timeline is sound."""

import json
import subprocess
import sys
from collections import defaultdict

import numpy as np
import pytest

from tianji.cli import parser
from tianji.errors import TianJiError
from tianji.roster import Kind
from tianji.tracing import FOLDER, forget
from tianji.tracing.reading import join_idling, read, read_file
from tianji.tracing.recorder import CHUNK_SECONDS, Recorder, Track
from tianji.tracing.rows import DTYPE, ROW, Doing, Heading, Wait, What
from tianji.tracing.table import describe, gaps_of, hand_over, share, waiting_of
from tianji.tracing.timeline import events_of, save
from tianji.verbs import trace as trace_verb


def heading(home="actor-0.0", roles=None, capacity=1000, seconds=60.0, offset=0.0):
    roles = (home,) if roles is None else roles
    return Heading(home, roles, "here", 7, seconds, capacity, offset, "2026-01-01 10:00:00")


@pytest.fixture
def run(tmp_path):
    """The folder of a run without recordings."""
    (tmp_path / "config.json").write_text(json.dumps({"engine": "process"}))
    return tmp_path


def record(run, about, *rows):
    """A file of these rows: (role, kind, began, ended, number, version, what, peer)."""
    recorder = Recorder(run / FOLDER / f"{about.home}.trace", about)
    for row in rows:
        recorder.add(*row)
    recorder.close()
    return run / FOLDER / f"{about.home}.trace"


def traced(run, *words):
    """What `tianji trace` ends with."""
    options = parser(["trace"]).parse_args(["trace", str(run), *map(str, words)])
    return trace_verb.run(options)


def test_rows_are_read_as_they_were_written(run):
    path = record(run, heading(), (0, Doing.SEND, 1.5, 2.5, 3, 4, What.TRAJECTORY, 5))
    recording = read_file(path)
    assert recording.heading == heading()
    assert recording.rows.tolist() == [(1.5, 2.5, 3, 4, 0, Doing.SEND, What.TRAJECTORY, 5)]
    assert recording.note == ""


def test_a_step_of_an_actor_is_an_inference_and_a_simulation(run):
    path = record(run, heading(), (0, Doing.ACT, 1.0, 2.0, 3.0, 4.0))
    rows = read_file(path).rows
    assert rows["kind"].tolist() == [Doing.INFERENCE, Doing.SIMULATION]
    assert rows["began"].tolist() == [1.0, 3.0]
    assert rows["ended"].tolist() == [2.0, 4.0]


def test_times_are_told_on_the_launchers_clock(run):
    path = record(run, heading(offset=100.0), (0, Doing.UPDATE, 1.0, 2.0))
    assert read_file(path).rows["began"].tolist() == [101.0]


def test_the_newest_rows_stay_when_there_is_no_room(run):
    rows = [(0, Doing.UPDATE, i, i + 0.5, 0, i) for i in range(1, 26)]
    recording = read_file(record(run, heading(capacity=10), *rows))
    assert recording.rows["version"].tolist() == list(range(17, 26))  # the oldest may be half gone
    assert recording.since == 17.0


def test_a_window_is_what_all_processes_had_room_for(run):
    record(run, heading("a", capacity=10), *[(0, Doing.UPDATE, i, i + 0.5) for i in range(1, 26)])
    record(run, heading("b"), *[(0, Doing.UPDATE, i, i + 0.5) for i in range(1, 26)])
    trace = read(run)
    assert (trace.began, trace.ended) == (17.0, 25.5)
    assert [role.rows.size for role in trace.roles] == [9, 9]
    assert "a had room for the last 8.5 s only" in trace.notes[0]


def test_the_last_seconds_are_cut_out(run):
    record(run, heading(), *[(0, Doing.UPDATE, i, i + 1.0) for i in range(1, 11)])
    trace = read(run, seconds=2.5)
    assert trace.roles[0].rows["began"].tolist() == [8.5, 9.0, 10.0]
    assert trace.seconds == 2.5


def test_a_file_that_was_cut_off_is_used_as_far_as_it_goes(run):
    path = record(run, heading(), *[(0, Doing.UPDATE, i, i + 0.5) for i in range(1, 11)])
    whole = path.read_bytes()
    first = len(whole) - 1000 * ROW.size
    path.write_bytes(whole[: first + 4 * ROW.size + 7])
    trace = read(run)
    assert trace.roles[0].rows.size == 4
    assert "6 of 10 rows are lost" in trace.notes[0]


def test_rows_of_zeros_are_no_rows(run):
    path = record(run, heading(), (0, Doing.UPDATE, 1.0, 2.0), (0, Doing.UPDATE, 3.0, 4.0))
    data = bytearray(path.read_bytes())
    start = len(data) - 1000 * ROW.size
    data[start + ROW.size : start + 2 * ROW.size] = bytes(ROW.size)
    path.write_bytes(data)
    recording = read_file(path)
    assert recording.rows.size == 1
    assert "1 of 2 rows are lost" in recording.note


@pytest.mark.parametrize("content", [b"", b"TIANJI", b"x" * 5000, b"TIANJI\x00\x01" + b"\xff" * 99])
def test_a_file_that_is_no_recording_is_left_out_with_a_word(run, content):
    record(run, heading(), (0, Doing.UPDATE, 1.0, 2.0))
    (run / FOLDER / "other.trace").write_bytes(content)
    trace = read(run)
    assert [role.name for role in trace.roles] == ["actor-0.0"]
    assert "other.trace is left out" in trace.notes[0]


KILLED = """
import os, signal, sys
from pathlib import Path
from tianji.tracing.recorder import Recorder
from tianji.tracing.rows import Doing, Heading

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


def test_a_folder_without_a_trace_says_how_to_record_one(run):
    with pytest.raises(
        TianJiError, match=r"has no trace: record one with `tianji train CONFIG --tr"
    ):
        read(run)
    record(run, heading())
    with pytest.raises(TianJiError, match="holds nothing to draw"):
        read(run)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(TianJiError, match="is not the folder of a run"):
        read(tmp_path / "nowhere")


class Rows:
    def __init__(self):
        self.rows = []

    def add(self, role, kind, began, ended, number=0, version=0, what=0, peer=0):
        self.rows.append((kind, began, ended, what))


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [10.0]
    monkeypatch.setattr("tianji.tracing.recorder.time.monotonic", lambda: now[0])
    return now


def test_idling_lasts_from_the_first_time_that_there_was_nothing_to_do(clock):
    rows = Rows()
    track = Track(rows, 0)
    for clock[0] in (10.0, 10.02, 10.05):
        track.wait(Wait.WEIGHTS)
    clock[0] = 10.08
    track.add(Doing.UPDATE, 10.06)
    assert rows.rows == [
        (Doing.IDLE, 10.0, 10.06, Wait.WEIGHTS),
        (Doing.UPDATE, 10.06, 10.08, 0),
    ]


def test_idling_for_something_else_is_another_row(clock):
    rows = Rows()
    track = Track(rows, 0)
    track.wait(Wait.WEIGHTS)
    clock[0] = 10.05
    track.wait(Wait.BALANCE)
    clock[0] = 10.06
    track.close()
    assert [row[1:] for row in rows.rows] == [
        (10.0, 10.05, Wait.WEIGHTS),
        (10.05, 10.06, Wait.BALANCE),
    ]


def test_a_role_that_hangs_is_seen_to_idle(clock):
    rows = Rows()
    track = Track(rows, 0)
    track.wait(Wait.TRAJECTORIES)
    clock[0] += 2 * CHUNK_SECONDS
    track.wait(Wait.TRAJECTORIES)
    assert [row[0] for row in rows.rows] == [Doing.IDLE]


def test_a_role_without_a_row_in_the_window_has_none():
    assert join_idling(np.zeros(0, DTYPE)).size == 0


def test_idling_in_pieces_is_one_span(run):
    record(
        run,
        heading(),
        (0, Doing.IDLE, 1.0, 1.1, 0, 0, Wait.WEIGHTS),
        (0, Doing.IDLE, 1.1, 1.2, 0, 0, Wait.WEIGHTS),
        (0, Doing.IDLE, 1.2, 1.3, 0, 0, Wait.BALANCE),
        (0, Doing.UPDATE, 1.3, 1.4),
        (0, Doing.IDLE, 1.4, 1.5, 0, 0, Wait.BALANCE),
    )
    rows = read(run).roles[0].rows
    assert list(zip(rows["began"].tolist(), rows["ended"].tolist(), strict=True)) == [
        (1.0, 1.2),
        (1.2, 1.3),
        (1.3, 1.4),
        (1.4, 1.5),
    ]


def made(run):
    """An actor of two sends a trajectory, a batch is drawn, learned from and published."""
    for i in (0, 1):
        record(
            run,
            heading(f"actor-0.{i}"),
            (0, Doing.RECEIVE, 1.0, 1.1, 0, 0, What.WEIGHTS),
            (0, Doing.ACT, 1.1, 1.4, 1.4001, 1.8),
            (0, Doing.SEND, 1.8, 1.9 + i / 10, 0, 0, What.TRAJECTORY),
            (0, Doing.IDLE, 2.0, 4.0, 0, 0, Wait.WEIGHTS),
            (0, Doing.RECEIVE, 4.0, 4.1, 0, 1, What.WEIGHTS),
            (0, Doing.ACT, 4.1, 4.4, 4.4001, 5.0),
        )
    record(
        run,
        heading("learner-0.0", ("learner-0.0", "buffer-0.0")),
        (0, Doing.SEND, 0.9, 1.0, 0, 0, What.WEIGHTS),
        (0, Doing.IDLE, 1.0, 2.5, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.IDLE, 1.0, 1.85, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.RECEIVE, 1.85, 1.95, 0, 0, What.TRAJECTORY, 0),  # done before its sender is
        (1, Doing.RECEIVE, 2.0, 2.1, 0, 0, What.TRAJECTORY, 1),
        (1, Doing.SEND, 2.2, 2.4, 0, 0, What.BATCH),
        (0, Doing.RECEIVE, 2.5, 2.51, 0, 0, What.BATCH),
        (0, Doing.UPDATE, 2.51, 3.8, 0, 0),
        (0, Doing.SEND, 3.8, 3.9, 0, 1, What.WEIGHTS),
        (0, Doing.IDLE, 3.9, 5.0, 0, 0, Wait.TRAJECTORIES),
    )
    return read(run)


def flows(events):
    found = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            found[event["id"]].append(event)
    return found


def names(events):
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["name"] == "thread_name"
    }


def test_every_process_and_role_has_a_name(run):
    events = list(events_of(made(run)))
    processes = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert processes == [f"{n} (pid 7 on here)" for n in ("actor-0.0", "actor-0.1", "learner-0.0")]
    assert sorted(names(events).values()) == ["actor-0.0", "actor-0.1", "buffer-0.0", "learner-0.0"]


def test_events_are_sorted_and_times_are_microseconds_of_the_window(run):
    events = [event for event in events_of(made(run)) if event["ph"] != "M"]
    times = [event["ts"] for event in events]
    assert times == sorted(times) and times[0] == 0.0
    (update,) = [event for event in events if event["name"] == "update"]
    assert (update["ts"], update["dur"]) == (pytest.approx(1.61e6), pytest.approx(1.29e6))
    assert update["args"] == {"version": 0}


def test_arrows_have_an_id_a_beginning_and_an_end(run):
    chains = flows(events_of(made(run)))
    assert len(chains) == 7  # two trajectories, a batch, two versions for two actors
    for chain in chains.values():
        assert len({event["name"] for event in chain}) == 1
        assert [event["ph"] for event in chain] == ["s", *["t"] * (len(chain) - 2), "f"]
        assert all(event["bp"] == "e" for event in chain)
        times = [event["ts"] for event in chain]
        assert times == sorted(times)


def test_arrows_lead_from_trajectory_to_batch_to_update_to_weights_to_actors(run):
    events = list(events_of(made(run)))
    who, slices = names(events), [event for event in events if event["ph"] == "X"]

    def slice_of(event):
        place = (event["pid"], event["tid"])
        found = [
            each
            for each in slices
            if (each["pid"], each["tid"]) == place
            and each["ts"] <= event["ts"] < each["ts"] + each["dur"]
        ]
        assert len(found) == 1, "an arrow must lie within one slice"
        return f"{who[place]} {found[0]['name']}"

    chains = [[slice_of(event) for event in chain] for chain in flows(events).values()]
    batch = ["buffer-0.0 send batch", "learner-0.0 update", "learner-0.0 send weights"]
    assert batch in chains
    for i in (0, 1):
        actor = f"actor-0.{i}"
        assert [f"{actor} send trajectory", "buffer-0.0 receive trajectory", batch[0]] in chains
        assert chains.count([batch[2], f"{actor} receive weights"]) == 2


def test_an_arrow_that_would_point_back_in_time_is_left_out(run):
    sent = (0, Doing.SEND, 5.0, 5.1, 0, 0, What.TRAJECTORY)
    came = (0, Doing.RECEIVE, 4.0, 4.1, 0, 0, What.TRAJECTORY, 0)
    for home, row in (("actor-0.0", sent), ("buffer-0.0", came)):
        record(run, heading(home), row)
    assert not flows(events_of(read(run)))


def test_the_file_is_json_that_a_browser_reads(run):
    trace = made(run)
    for name in ("trace.json", "trace.json.gz"):
        n_events = save(trace, run / name)
    text = (run / "trace.json").read_text()
    data = json.loads(text)
    assert len(data["traceEvents"]) == n_events
    assert data["displayTimeUnit"] == "ms"
    assert (run / "trace.json.gz").stat().st_size < len(text) / 3
    assert not list(run.glob("*.part"))


def test_a_timeline_that_cannot_be_written_is_the_users_mistake(run):
    with pytest.raises(TianJiError, match="cannot be written: No such file or directory"):
        save(made(run), run / "nowhere" / "trace.json")


def test_a_timeline_takes_the_place_of_a_timeline_alone(run, capsys):
    made(run)
    for name in ("trace.json", "t.json.gz"):
        for _ in range(2):
            assert traced(run, "--out", run / name) == 0
    mine = run / "job.py"
    for content in (b"hyp = {}", b'{"traceEvents": "of something else"}', b"\x1f\x8b no gzip"):
        mine.write_bytes(content)
        with pytest.raises(TianJiError, match="was not written by `tianji trace`"):
            traced(run, "--out", mine)
        assert mine.read_bytes() == content
    with pytest.raises(TianJiError, match="this is a folder"):
        traced(run, "--out", run)


def test_idling_is_told_by_the_dependency(run):
    trace = made(run)
    assert waiting_of(trace, Kind.ACTOR, Wait.WEIGHTS) == pytest.approx(2.0 / 4.0)
    assert waiting_of(trace, Kind.LEARNER, Wait.TRAJECTORIES) == pytest.approx(2.6 / 4.1)
    assert waiting_of(trace, Kind.REDUCER, Wait.GROUPS) is None


def test_shares_are_of_the_time_that_a_role_was_there(run):
    trace = made(run)
    actor = trace.roles[0]
    assert share(actor, Doing.INFERENCE) == pytest.approx(0.6 / 4.0)
    assert share(actor, Doing.SIMULATION) == pytest.approx(0.9998 / 4.0)
    assert share(actor, Doing.UPDATE) == 0.0
    assert hand_over(trace) == pytest.approx(1e-4)


def test_the_longest_gaps_are_told_with_when_they_were(run):
    first, *_ = gaps_of(made(run))
    assert (first.whose, first.why) == ("actor-0.0", "idle I: weights")
    assert (first.began, first.seconds) == (pytest.approx(1.1), pytest.approx(2.0))


def test_a_process_that_recorded_nothing_for_a_while_is_told_of(run):
    record(run, heading("a"), (0, Doing.UPDATE, 1.0, 2.0), (0, Doing.UPDATE, 5.0, 6.0))
    (gap,) = gaps_of(read(run))
    assert (gap.whose, gap.began, gap.seconds) == ("a", 1.0, 3.0)
    assert "nothing recorded" in gap.why


def test_the_table_has_a_row_for_each_role_and_dependency(run):
    text = describe(made(run))
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.split()}
    assert lines["actor-0.1"][1:3] == ["15.0", "%"]
    assert lines["I"][-6:] == ["50.0", "%", "0.0", "%", "0.0", "%"]
    assert lines["II"][-4:] == ["simulation", "-", "-", "-"]  # one role does both in one step
    assert lines["III"][-2:] == ["63.4", "%"]


def test_a_row_has_the_same_layout_for_who_writes_and_who_reads():
    packed = ROW.pack(1.0, 2.0, 3.0, 4.0, 5, 6, 7, 8)
    assert np.frombuffer(packed, DTYPE).tolist() == [(1.0, 2.0, 3.0, 4.0, 5, 6, 7, 8)]


def test_in_a_terminal_no_line_of_the_table_is_longer_than_it(run):
    record(run, heading("learner-0.0"), (0, Doing.UPDATE, 1.0, 2.0), (0, Doing.UPDATE, 5.0, 6.0))
    text = describe(read(run), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "nothing recorded: bookkeeping" in text
    assert text.split() == describe(read(run)).split()
