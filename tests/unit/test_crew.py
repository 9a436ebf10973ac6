"""What is shown of a child process that failed."""

from commands import TASKS

from tianji.config import load
from tianji.engines import crew
from tianji.engines.crew import Crew
from tianji.resources import Share


def test_last_words_are_those_since_the_start(tmp_path, monkeypatch):
    (tmp_path / "learner-0.0.log").write_text("Traceback of the day before\n")
    monkeypatch.setattr(crew.sys, "executable", "/bin/true")
    made = Crew(load(TASKS / "walk_ppo.py"), tmp_path)
    try:
        made.start("learner-0.0", Share((), 1))
        with (tmp_path / "learner-0.0.log").open("a") as log:
            log.write("ValueError: today\n")
        assert made._last_words("learner-0.0") == "ValueError: today"
    finally:
        made.dismiss()
    assert "day before" in (tmp_path / "learner-0.0.log").read_text()


def test_what_learners_that_have_ended_had_open_is_closed(tmp_path, monkeypatch):
    monkeypatch.setattr(crew.sys, "executable", "/bin/true")
    made, closed = Crew(load(TASKS / "walk_ppo.py"), tmp_path), []
    try:
        for home in ("learner-0.0", "actor-0.0"):
            made.start(home, Share((), 1))
            made.processes[home].wait(10)
        made.release(closed.append)
    finally:
        made.dismiss()
    assert closed == ["learner-0.0"]
