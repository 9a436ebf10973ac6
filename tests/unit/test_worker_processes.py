"""What is shown of a child process that failed."""

import os

import pytest
from commands import TASKS

from tianji.config import load
from tianji.engines import worker_processes
from tianji.engines.lost_process import RoleFailed, last_words
from tianji.engines.worker_processes import Crew
from tianji.machine.resources import Share

GROUPS = ("global_cfg.group_num=2", "actor_cfg.num=1")
KILLED, RAISES = "kill -9 $$", "echo 'ValueError: no mean'; exit 1"  # as a shell has them


def test_last_words_are_those_since_the_start(tmp_path, monkeypatch):
    (tmp_path / "learner-0.0.log").write_text("Traceback of the day before\n")
    monkeypatch.setattr(worker_processes.sys, "executable", "/bin/true")
    made = Crew(load(TASKS / "walk_ppo.py"), tmp_path)
    try:
        made.start("learner-0.0", Share((), 1))
        with (tmp_path / "learner-0.0.log").open("a") as log:
            log.write("ValueError: today\n")
        assert made.last_words("learner-0.0") == "ValueError: today"
    finally:
        made.dismiss()
    assert "day before" in (tmp_path / "learner-0.0.log").read_text()


def test_of_a_long_log_the_end_alone_is_read(tmp_path):
    with (tmp_path / "log").open("wb") as log:
        log.truncate(1 << 40)
        log.seek(0, os.SEEK_END)
        log.write(b"\nValueError: today\n")
    assert last_words(tmp_path / "log", 5).endswith("\nValueError: today")


def test_what_learners_that_have_ended_had_open_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(worker_processes.sys, "executable", "/bin/true")
    made, closed = Crew(load(TASKS / "walk_ppo.py"), tmp_path), []
    try:
        for home in ("learner-0.0", "actor-0.0"):
            made.start(home, Share((), 1))
            made.processes[home].wait(10)
        made.release(closed.append)
    finally:
        made.dismiss()
    assert closed == ["learner-0.0"]


@pytest.fixture
def gone(tmp_path, monkeypatch):
    """Makes a crew of whom one has gone in a way of its own."""
    made = []

    def make(home, how, *overrides):
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\n{how}\n")
        program.chmod(0o755)
        monkeypatch.setattr(worker_processes.sys, "executable", str(program))
        made.append(Crew(load(TASKS / "walk_ppo.py", [*GROUPS, *overrides]), tmp_path))
        made[-1].start(home, Share((), 1))
        made[-1].processes[home].wait(10)
        return made[-1]

    yield make
    for each in made:
        each.dismiss()


@pytest.mark.parametrize(
    ("how", "words", "last"),
    [
        (KILLED, "was killed by SIGKILL", ""),
        (RAISES, "failed with exit status 1", "; its last words:\nValueError: no mean"),
    ],
    ids=["killed", "raises"],
)
def test_a_reducer_that_is_gone_is_told_once_and_training_goes_on(gone, how, words, last):
    """As docs/faults.md has it."""
    left, closed = gone("reducer-0.0", how), []
    left.check(lambda home: False)
    then = "training goes on without it, and the groups are not averaged any more"
    assert left.lost() == [("reducer-0.0", f"{words}; {then}{last}")]
    assert left.lost() == []
    left.release(closed.append)  # so that the groups send nothing more
    assert closed == ["reducer-0.0"]
    assert left.still_running() == []


@pytest.mark.parametrize("how", [KILLED, RAISES], ids=["killed", "raises"])
def test_a_reducer_whose_fusions_end_the_run_is_needed(gone, how):
    left = gone("reducer-0.0", how, "global_cfg.exit_val.fusion_step=100")
    with pytest.raises(RoleFailed, match=r"reducer-0\.0 "):
        left.check(lambda home: True)
    assert left.lost() == []


@pytest.mark.parametrize("how", [KILLED, RAISES], ids=["killed", "raises"])
def test_a_learner_that_is_gone_ends_the_run(gone, how):
    left = gone("learner-1.0", how)
    with pytest.raises(RoleFailed, match=r"learner-1\.0 "):
        left.check(lambda home: True)


def test_the_end_of_one_that_is_guarded_is_for_the_supervisor_to_see_first(gone):
    left = gone("actor-0.0", KILLED)
    left.guarded.add("actor-0.0")  # it was alive when the supervisor looked, just before
    left.check(lambda home: False)
    left.guarded.clear()
    with pytest.raises(RoleFailed, match=r"actor-0\.0 "):
        left.check(lambda home: False)
