"""A run that stands still is told once a minute has gone by, and who waits for what."""

import faulthandler
import subprocess
import sys

import numpy as np
import pytest
from commands import TASKS

import tianji
from tianji.core import alarm
from tianji.core.counts import Count
from tianji.engines.stall import StallWatch, waits_for
from tianji.observe.watch import Progress


class Played:
    """Processes that are asked, and say the same."""

    def __init__(self):
        self.n_asked = 0

    def ask_for_stacks(self):
        self.n_asked += 1

    def stacks(self):
        return {"actor-0.0": "File env.py, line 7 in step"}


class Stage:
    def __init__(self):
        self.now, self.processes = 0.0, Played()
        names = ("learner-0.0", "buffer-0.0", "actor-0.0")
        self.progress = Progress({name: np.zeros(len(Count)) for name in names}, started_at=0.0)
        for name in names:
            self.count(name, READY_AT=1)
        self.watch = StallWatch(self.processes, lambda: self.now)
        self.watch.look(self.progress)

    def count(self, role, **grown):
        counts = self.progress.counts[role].copy()  # as the launcher reads them: a new vector
        for name, value in grown.items():
            counts[Count[name]] += value
        self.progress.counts[role] = counts

    def wait(self, seconds):
        """What is told meanwhile, and when."""
        told, end = [], self.now + seconds
        while self.now < end:
            self.now += 0.25
            if (text := self.watch.look(self.progress)) is not None:
                told.append((self.now, text))
        return told


def test_what_moves_is_not_told():
    stage = Stage()
    for _ in range(30):
        stage.count("actor-0.0", PRODUCED=16)
        assert stage.wait(50) == []
        stage.count("learner-0.0", CONSUMED=16)
        assert stage.wait(50) == []
    assert stage.processes.n_asked == 0


def test_a_run_in_which_somebody_is_never_ready_is_told_later_and_who_it_is():
    stage = Stage()
    stage.progress.started_at = None
    stage.count("actor-0.0", READY_AT=-1)
    [(when, text)] = stage.wait(200)
    assert 120 <= when <= 123
    assert "  actor-0.0 is not ready yet" in text.splitlines()
    assert "File env.py, line 7 in step" in text.splitlines()


def test_the_moment_in_which_all_are_ready_counts_as_a_move():
    stage = Stage()
    stage.progress.started_at = None
    assert stage.wait(119) == []
    stage.progress.started_at = stage.now
    assert stage.wait(59) == []
    assert len(stage.wait(5)) == 1


def test_a_run_that_stands_still_is_told_with_what_each_waits_for_and_where_it_is():
    stage = Stage()
    stage.count("actor-0.0", PRODUCED=16)
    stage.wait(1)
    stage.count("learner-0.0", IDLE_SECONDS=59, WAITED_BATCH=59)
    stage.count("buffer-0.0", IDLE_SECONDS=59, WAITED_TRAJECTORIES=59)
    [(when, text)] = stage.wait(90)
    assert 60 <= when <= 63
    assert text.splitlines() == [
        "nothing has moved for 60 s: no step was sent, none learned from",
        "  learner-0.0 waits for a batch",
        "  buffer-0.0 waits for trajectories",
        "  actor-0.0 has said nothing since: it is in the middle of a step",
        "actor-0.0:",
        "File env.py, line 7 in step",
    ]


def test_it_is_told_again_later_and_later_and_anew_after_it_has_moved():
    stage = Stage()
    times = [round(when) for when, _ in stage.wait(1_000)]
    assert times == [60, 122, 244, 488, 976]
    stage.count("actor-0.0", PRODUCED=16)
    began = stage.now
    [(when, _)] = stage.wait(100)
    assert 60 <= when - began <= 63


@pytest.mark.parametrize(
    ("role", "grown", "words"),
    [
        ("actor-0.0", {"WAITED_ROOM": 9, "WAITED_WEIGHTS": 1}, "waits for room"),
        ("actor-0.0", {"WAITED_WEIGHTS": 9}, "waits for weights"),
        ("actor-0.0", {"PAUSED_SECONDS": 9}, "was told to rest"),
        ("actor-0.0", {"BUSY_SECONDS": 9}, "works, and nothing has come of it"),
        ("buffer-0.0", {"WAITED_ROOM": 9}, "waits for its learner"),
        ("buffer-0.0", {"WAITED_TRAJECTORIES": 9}, "waits for trajectories"),
        ("learner-0.0", {"WAITED_GRADIENTS": 9}, "waits for the gradients"),
        ("reducer-0.0", {"WAITED_PARAMETERS": 9}, "waits for parameters"),
    ],
)
def test_what_a_role_waits_for_is_read_from_its_counters(role, grown, words):
    before, now = np.zeros(len(Count)), np.zeros(len(Count))
    before[Count.READY_AT] = now[Count.READY_AT] = 1
    for name, value in grown.items():
        now[Count[name]] = value
    assert words in waits_for(role, before, now)


def test_the_local_engine_puts_its_alarm_off_while_it_trains(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(faulthandler, "dump_traceback_later", lambda s: calls.append(s))
    monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: calls.append("off"))
    task, run = TASKS / "walk_ppo.py", tmp_path / "run"
    report = tianji.train(task, "exp.train_steps=300", engine="local", run_dir=run)
    assert report.status == "finished"
    assert set(calls) == {alarm.STALL_SECONDS, "off"} and calls[-1] == "off"
    assert calls[:4] == [60, "off", 60, "off"]  # while it is tried out, and while actors begin


def test_an_environment_that_hangs_as_it_is_tried_out_has_its_stack_on_standard_error():
    script = (
        "import time, sys\n"
        "from tianji.core.alarm import alarmed\n"
        "def reset(): time.sleep(0.5)\n"
        "with alarmed(0.1): reset()\n"
        "with alarmed(0.1): print('done')\n"
        "time.sleep(0.3)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "done\n" and done.stderr.count("in reset") == 1
