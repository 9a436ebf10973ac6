"""Recordings are read as they were written, also where some of it is lost."""

import json
import tracemalloc
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import folder_of_a_run, heading, record

from tianji.core.errors import TianJiError
from tianji.core.tracer import What
from tianji.observe.trace import FOLDER
from tianji.observe.trace.format import DTYPE, ROW, Doing, Wait, heading_from
from tianji.observe.trace.trace_reader import (
    RECORD,
    _idle_together,
    _working,
    join_idling,
    read,
    read_file,
)


@pytest.fixture
def run(tmp_path):
    return folder_of_a_run(tmp_path)


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


def test_more_seconds_than_were_recorded_are_spoken_of(run):
    record(run, heading(seconds=3.0), *[(0, Doing.UPDATE, i, i + 1.0) for i in range(1, 11)])
    trace = read(run, seconds=12.0)
    assert trace.seconds == 10.0
    assert trace.notes == ("--seconds 12: only 10 s were recorded: these are shown",)
    assert (read(run).seconds, read(run).notes) == (3.0, ())  # what the run was to keep
    assert read(run, seconds=10.0).notes == ()


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


def test_a_folder_without_a_trace_says_how_to_record_one(run):
    with pytest.raises(
        TianJiError, match=r"has no trace: record one with `tianji train CONFIG --tr"
    ):
        read(run)
    record(run, heading())
    with pytest.raises(TianJiError, match="holds nothing to draw"):
        read(run)


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(TianJiError, match=r"nowhere does not exist: name the folder of a run"):
        read(tmp_path / "nowhere")
    with pytest.raises(TianJiError, match=r"is not the folder of a run: name the folder"):
        read(tmp_path)


def test_a_folder_that_does_not_exist_is_told_which_ones_do(tmp_path):
    (tmp_path / "a").mkdir()
    there = folder_of_a_run(tmp_path / "a")
    with pytest.raises(TianJiError, match=f"nowhere does not exist: name one of {there}$"):
        read(tmp_path / "nowhere")


def test_a_run_whose_configuration_is_damaged_still_has_its_trace(run):
    record(run, heading(), (0, Doing.UPDATE, 1.0, 2.0))
    (run / "config.json").write_text("{")
    assert read(run).engine == "unknown"


CUT_OFF = "it is cut off: it has {}, and a whole one has {} before its first row"


@pytest.mark.parametrize(
    "keep, found",
    [
        (0, CUT_OFF.format("0 bytes", "24 bytes or more")),
        (10, CUT_OFF.format("10 bytes", "24 bytes or more")),
        (100, CUT_OFF.format("100 bytes", "4,096 bytes")),  # within the heading's text
        (4_000, CUT_OFF.format("4,000 bytes", "4,096 bytes")),  # the heading is whole
    ],
)
def test_a_file_without_a_row_says_how_much_there_is_of_it(run, keep, found):
    path = record(run, heading(), (0, Doing.UPDATE, 1.0, 2.0))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TianJiError) as raised:
        read(run)
    assert str(raised.value) == (
        f"{run / FOLDER} holds nothing to draw ({path} is left out: {found}): {RECORD}"
    )


DAMAGED = [b"[]", b"{", b'{"roles": 3}', b'{"roles": ["a"]}', b'{"roles": ["a"], "more": 1}']
DAMAGED += [
    json.dumps(asdict(heading()) | {key: value}).encode()
    for key, value in [("capacity", 0), ("capacity", "many"), ("home", 7), ("offset", None)]
]


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_heading_is_told_in_our_words(text):
    with pytest.raises(ValueError, match=r"^its heading is damaged: nobody can say whose rows"):
        heading_from(text)


def test_a_file_that_may_not_be_read_is_named_once(run):
    (run / FOLDER).mkdir()
    path = run / FOLDER / "actor-0.0.trace"
    path.mkdir()  # nobody may read that as a file, not even root
    with pytest.raises(TianJiError, match=rf"\({path} is left out: Is a directory\): record one"):
        read(run)


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


def spans(role):
    """What it did, and when, to the microsecond."""
    rows = role.rows
    ends = np.round(rows["began"], 6).tolist(), np.round(rows["ended"], 6).tolist()
    return list(zip(rows["kind"].tolist(), *ends, strict=True))


def test_a_role_is_idle_only_while_no_role_of_its_process_works(run):
    record(
        run,
        heading("learner-0.0", ("learner-0.0", "buffer-0.0")),
        (1, Doing.RECEIVE, 1.0, 1.2, 0, 0, What.TRAJECTORY, 0),
        (0, Doing.IDLE, 1.1, 2.0, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.IDLE, 1.2, 1.3, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.SEND, 1.4, 1.6, 0, 0, What.BATCH),  # and bookkeeping before it
        (1, Doing.IDLE, 1.6, 4.0, 0, 0, Wait.BALANCE),
        (0, Doing.UPDATE, 2.0, 3.5),
        (0, Doing.IDLE, 3.5, 4.0, 0, 0, Wait.TRAJECTORIES),
    )
    learner, buffer = read(run).roles
    assert spans(learner) == [
        (Doing.IDLE, 1.2, 1.3),
        (Doing.IDLE, 1.6, 2.0),
        (Doing.UPDATE, 2.0, 3.5),
        (Doing.IDLE, 3.5, 4.0),
    ]
    assert spans(buffer)[3:] == [(Doing.IDLE, 1.6, 2.0), (Doing.IDLE, 3.5, 4.0)]
    idle = learner.rows[learner.rows["kind"] == Doing.IDLE]
    assert set(idle["what"].tolist()) == {Wait.TRAJECTORIES}


def test_idling_within_the_turn_of_another_role_is_none(run):
    record(
        run,
        heading("learner-0.0", ("learner-0.0", "buffer-0.0")),
        (0, Doing.UPDATE, 1.0, 2.0),
        (1, Doing.IDLE, 1.2, 1.8, 0, 0, Wait.BALANCE),
    )
    learner, buffer = read(run).roles
    assert spans(learner) == [(Doing.UPDATE, 1.0, 2.0)]
    assert (spans(buffer), buffer.present) == ([], pytest.approx(0.6))


def test_idling_beside_the_work_of_other_processes_stays_whole(run):
    idle = (0, Doing.IDLE, 1.0, 3.0, 0, 0, Wait.WEIGHTS)
    record(run, heading("actor-0.0"), idle, (0, Doing.RECEIVE, 3.0, 3.1, 0, 0, What.WEIGHTS))
    record(run, heading("learner-0.0"), (0, Doing.UPDATE, 1.5, 2.5))
    assert spans(read(run).roles[0])[0] == (Doing.IDLE, 1.0, 3.0)


def test_cutting_leaves_what_no_other_role_works_in(run):
    rng = np.random.default_rng(0)
    rows, now = [], [1.0, 1.0, 1.0]
    for _ in range(300):  # three roles that, unlike real ones, do not even take turns
        role, length = int(rng.integers(3)), float(rng.exponential())
        kind = Doing.IDLE if rng.random() < 0.7 else Doing.UPDATE
        rows.append((role, kind, now[role], now[role] + length))
        now[role] += length + 0.1  # too long a gap for idling in one piece
    record(run, heading("a", ("r-0.0", "r-0.1", "r-0.2"), seconds=1e6), *rows)
    roles = read(run).roles

    def is_idle(rows, moment):
        return any(kind == Doing.IDLE and a <= moment < b for kind, a, b in rows)

    each = [[row[1:] for row in rows if row[0] == i] for i in range(3)]
    cut = [role.rows[["kind", "began", "ended"]].tolist() for role in roles]
    for moment in rng.uniform(1.0, min(now) - 0.1, 1_000):
        together = all(is_idle(own, moment) for own in each)
        assert [is_idle(own, moment) for own in cut] == [together] * 3
    for own, before in zip(cut, each, strict=True):
        assert [row for row in own if row[0] != Doing.IDLE] == [
            row for row in before if row[0] != Doing.IDLE
        ]


TIMES = st.integers(1, 12)
TURNS = st.lists(st.tuples(st.sampled_from([0, 1]), st.booleans(), TIMES, TIMES), max_size=12)


@given(turns=TURNS)
def test_rows_that_overlap_are_cut_as_slowly_moment_by_moment(turns):
    rows = [(role, idle, began, began + length) for role, idle, began, length in turns]
    each = []
    for role in (0, 1):
        own = [
            (began, ended, 0, 0, role, Doing.IDLE if idle else Doing.UPDATE, began % 2, 0)
            for of, idle, began, ended in rows
            if of == role
        ]
        each.append(np.sort(np.array(own, DTYPE), order="began", kind="stable"))
    joined = [join_idling(own) for own in each]
    cut = _idle_together(joined)
    for own, other, found in zip(joined, reversed(joined), cut, strict=True):
        began, ended = _working(other)
        for moment in np.arange(1.5, 24):
            works = bool(np.any((began <= moment) & (moment < ended)))
            assert _n_idle(found, moment) == (_n_idle(own, moment) > 0 and not works)
    for before, after in zip(each, joined, strict=True):
        for moment in np.arange(1.5, 24):
            assert _n_idle(after, moment) == (_n_idle(before, moment) > 0)


def _n_idle(rows, moment):
    idle = rows[rows["kind"] == Doing.IDLE]
    return np.count_nonzero((idle["began"] <= moment) & (moment < idle["ended"]))


def test_pauses_that_all_overlap_are_not_cut_around_each_turn(run):
    n, rows = 20_000, []
    for i in range(n):
        rows.append((0, Doing.IDLE, 1 + i / 1e6, 5_000.0 + i, 0, 0, i % 2))
        rows.append((1, Doing.UPDATE, 2 + i / 10, 2.05 + i / 10))
        rows.append((1, Doing.IDLE, 2.05 + i / 10, 2.1 + i / 10, 0, 0, Wait.BALANCE))
    record(run, heading("a", ("r-0.0", "r-0.1"), capacity=4 * n, seconds=1e6), *rows)
    tracemalloc.start()
    try:
        roles, (_, most) = read(run).roles, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(role.rows.size for role in roles) <= 2 * n
    assert most < 1 << 29  # 16 GB, cut around each; the file itself is given room for 256 MB
