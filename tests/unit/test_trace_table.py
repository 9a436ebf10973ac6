"""What a trace says in figures: shares of time, what was waited for, the longest gaps."""

import pytest
from recordings import folder_of_a_run, heading, made, record

from tianji.core.tracer import What
from tianji.observe.trace.format import Doing, Wait
from tianji.observe.trace.trace_reader import read
from tianji.observe.trace.trace_text import describe, gaps_of, share, waiting_of
from tianji.roles.role_specs import Kind


@pytest.fixture
def run(tmp_path):
    return folder_of_a_run(tmp_path)


def test_idling_is_told_by_the_dependency(run):
    trace = made(run)
    assert waiting_of(trace, Kind.ACTOR, Wait.WEIGHTS) == pytest.approx(2.0 / 4.0)
    assert waiting_of(trace, Kind.LEARNER, Wait.TRAJECTORIES) == pytest.approx(2.05 / 4.1)
    assert waiting_of(trace, Kind.REDUCER, Wait.GROUPS) is None


def test_shares_are_of_the_time_that_a_role_was_there(run):
    trace = made(run)
    actor = trace.roles[0]
    assert share(actor, Doing.INFERENCE) == pytest.approx(0.6 / 4.0)
    assert share(actor, Doing.SIMULATION) == pytest.approx(0.9998 / 4.0)
    assert share(actor, Doing.UPDATE) == 0.0


def test_the_longest_gaps_are_told_with_when_they_were(run):
    first, *_ = gaps_of(made(run))
    assert (first.whose, first.why) == ("actor-0.0", "idle I: weights")
    assert (first.began, first.seconds) == (pytest.approx(1.1), pytest.approx(2.0))


def turns(run):
    """The learner waits for a trajectory; then the buffer stores it, for longer."""
    record(
        run,
        heading("learner-0.0", ("learner-0.0", "buffer-0.0")),
        (0, Doing.IDLE, 1.0, 8.0, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.IDLE, 1.0, 3.0, 0, 0, Wait.TRAJECTORIES),
        (1, Doing.RECEIVE, 3.0, 8.0, 0, 0, What.TRAJECTORY, 0),
        (0, Doing.UPDATE, 8.0, 11.0),
        (1, Doing.IDLE, 8.0, 11.0, 0, 0, Wait.BALANCE),
    )
    return read(run)


def test_the_turn_of_another_role_is_no_idling_but_other(run):
    trace = turns(run)
    assert waiting_of(trace, Kind.LEARNER, Wait.TRAJECTORIES) == pytest.approx(0.2)
    assert waiting_of(trace, Kind.BUFFER, Wait.BALANCE) == 0.0
    lines = [" ".join(line.split()) for line in describe(trace).splitlines()]
    assert "learner-0.0 - - 30.0 % - - 20.0 % 50.0 %" in lines
    assert "buffer-0.0 - - - - 50.0 % 20.0 % 30.0 %" in lines


def test_the_turn_of_another_role_is_no_gap(run):
    found = [(gap.whose, gap.began, gap.seconds) for gap in gaps_of(turns(run))]
    assert found == [("learner-0.0", 0.0, 2.0), ("buffer-0.0", 0.0, 2.0)]


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
    assert lines["III"][-2:] == ["50.0", "%"]


def test_in_a_terminal_no_line_of_the_table_is_longer_than_it(run):
    record(run, heading("learner-0.0"), (0, Doing.UPDATE, 1.0, 2.0), (0, Doing.UPDATE, 5.0, 6.0))
    text = describe(read(run), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "nothing recorded: bookkeeping" in text
    assert text.split() == describe(read(run)).split()


def test_a_long_gap_is_told_in_seconds(run):
    text = describe(made(run))
    assert "\n         2 s  1.100 s  actor-0.0    idle I: weights" in text and "e+0" not in text
