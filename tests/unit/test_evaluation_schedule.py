"""The launcher's side of evaluation, with an engine that is played by hand."""

import errno
import json
import sys
import threading
import time
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
from commands import TASKS

from tianji.config import load
from tianji.core.algorithm import Saved
from tianji.envs import make
from tianji.job.factory import make_games_env
from tianji.job.job import prepare
from tianji.roles.evaluation import evaluate
from tianji.runs import evaluation_schedule
from tianji.runs.evaluation_schedule import EvaluationSchedule
from tianji.runs.weights_file import best_merit, read

WEIGHTS = np.zeros(3, np.float32)


class Stage:
    """An examiner whose evaluator answers when it is told to."""

    def __init__(self, folder, *overrides):
        config = load(TASKS / "walk_ppo.py", ["exp.eval_step=100", "exp.eval_times=2", *overrides])
        env = make(config.environment, 1, config.folder, config.exp.max_step)
        env.close()
        self.job, self.folder = prepare(config, env.spec), folder
        self.evaluations, self.evaluator_lost, self.orders = self, False, []
        self.answers, self.told, self.warnings = deque(), [], []
        self.examiner = EvaluationSchedule(self.job, folder, self, self.tell, self.warnings.append)

    def tell(self, evaluation, steps):
        self.told.append((evaluation.version, steps))
        return 1.5

    def evaluate(self, number):
        self.orders.append(number)

    def take(self):
        return self.answers.popleft() if self.answers else None

    def tick(self, updates, steps):
        self.examiner.tick(SimpleNamespace(updates=updates, version=updates, produced=steps))

    def answer(self, version, returned=1.0, won=np.nan):
        arrays = {
            "version": np.asarray(version),
            "returned": np.full(2, returned),
            "length": np.full(2, 3),
            "won": np.full(2, won),
            "weights": WEIGHTS,
        }
        self.answers.append(SimpleNamespace(arrays=arrays))

    def learned(self, version=9, steps=500):
        weights = np.zeros(self.job.algorithm.n_weights(self.job.task), np.float32)
        return Saved(weights, version, steps)

    @property
    def rows(self):
        path = self.folder / "evaluations.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


def test_an_evaluation_is_ordered_whenever_its_steps_are_made(stage):
    for steps in (50, 99, 100, 150, 350, 399, 400):
        stage.tick(1, steps)
    assert stage.orders == [1, 2, 3]  # at 100, 350 and 400


def test_an_answer_newer_than_anything_seen_has_the_last_steps_that_were_seen(stage):
    stage.tick(1, 100)
    stage.tick(3, 300)
    stage.answer(7)
    stage.answer(8)
    stage.examiner.close()
    assert stage.told == [(7, 300), (8, 300)]
    assert [row["env_steps"] for row in stage.rows] == [300, 300]


def test_an_answer_has_the_steps_of_its_version(stage):
    for updates, steps in ((1, 100), (3, 300), (5, 500)):
        stage.tick(updates, steps)
    for version in (1, 2, 3, 5):
        stage.answer(version)
    stage.examiner.close()
    assert [steps for _, steps in stage.told] == [100, 300, 300, 500]


def test_the_last_moment_is_never_forgotten(stage, monkeypatch):
    monkeypatch.setattr(evaluation_schedule, "MOST_SEEN", 4)
    for updates in range(1, 6):
        stage.tick(updates, 100 * updates)
    stage.answer(5)
    stage.examiner.close()
    assert stage.told == [(5, 500)]


def test_the_best_is_kept_and_what_is_no_number_never_is(stage):
    stage.tick(1, 100)
    for version, returned in ((1, np.nan), (2, 4.0), (3, np.inf), (4, np.nan), (5, 3.0)):
        stage.answer(version, returned)
    stage.examiner.close()
    best = read(stage.folder / "checkpoints" / "best.safetensors")
    assert (best.version, best.score) == (2, 4.0)
    assert len(stage.rows) == 5


def test_the_best_is_what_wins_most_and_returns_decide_between_equals(stage):
    stage.tick(1, 100)
    for version, returned, won in ((1, 9.0, 0.0), (2, 4.0, 1.0), (3, 6.0, 0.0), (4, 5.0, 1.0)):
        stage.answer(version, returned, won)
    stage.answer(5, 8.0, 0.0)
    stage.examiner.close()
    best = read(stage.folder / "checkpoints" / "best.safetensors")
    assert (best.version, best.score, best.win_ratio) == (4, 5.0, 1.0)
    assert [row["win_ratio"] for row in stage.rows] == [0.0, 1.0, 0.0, 1.0, 0.0]
    stage.examiner = EvaluationSchedule(
        stage.job, stage.folder, stage, stage.tell, stage.warnings.append
    )
    stage.answer(6, 99.0, 0.0)  # after a resume it still has to beat that
    stage.examiner.close()
    assert best_merit(stage.folder) == (1.0, 5.0)


def test_the_end_is_played_and_competes_for_the_best(stage):
    stage.tick(1, 100)
    stage.answer(1, -1000.0)
    learned = stage.learned()
    stage.examiner.close(learned)
    assert stage.told == [(1, 100), (9, 500)]
    policy = stage.job.algorithm.policy(stage.job.task, 0, 0)
    policy.load(learned.weights, 9)
    config = stage.job.config
    played = SimpleNamespace(
        policy=policy, version=9, games_environment=lambda n: make_games_env(config, n)
    )
    result = evaluate(played, 2, config.exp.seed)
    assert stage.rows[-1] == result.row("training", 500, 1.5)  # what `tianji eval` plays, too
    assert best_merit(stage.folder) == (0.0, result.mean)
    assert not stage.warnings


def test_the_end_is_not_played_twice(stage):
    stage.tick(9, 500)
    stage.answer(9)
    stage.examiner.close(stage.learned(version=9))
    assert stage.told == [(9, 500)]


def test_without_evaluation_nothing_is_played_in_the_end(tmp_path):
    stage = Stage(tmp_path, "exp.eval_step=None")
    stage.tick(1, 100)
    stage.examiner.close(stage.learned())
    assert (stage.told, stage.orders, stage.rows) == ([], [], [])


def test_an_end_that_takes_too_long_is_given_up_with_a_note(stage, monkeypatch):
    monkeypatch.setattr(evaluation_schedule, "LAST_SECONDS", -1.0)
    stage.examiner.close(stage.learned())
    assert stage.rows == []
    assert "had not ended" in stage.warnings[0]


def test_an_environment_that_fails_in_the_end_is_a_note(stage, monkeypatch):
    def fail(config, n_episodes):
        raise RuntimeError("no more licences")

    monkeypatch.setattr(evaluation_schedule, "make_games_env", fail)
    stage.examiner.close(stage.learned())
    assert "RuntimeError: no more licences" in stage.warnings[0]


@pytest.mark.parametrize("signalled", [False, True])
def test_an_environment_that_hangs_in_the_end_is_left_to_itself(stage, monkeypatch, signalled):
    over = threading.Event()

    def hang(config, n_episodes):
        over.wait(60)
        raise RuntimeError("too late")

    begun = threading.Event()
    monkeypatch.setattr(evaluation_schedule, "LAST_SECONDS", 0.1)
    monkeypatch.setattr(evaluation_schedule, "CLOSE_SECONDS", 0.1)
    monkeypatch.setattr(stage.examiner, "_played", lambda *_: hang(begun.set(), 1))
    stage.examiner.close(stage.learned(), lambda: begun.wait(10) and signalled)
    over.set()
    [warning] = stage.warnings
    assert "their environment did not come back" in warning and "in hang\n" in warning
    assert stage.rows == []


def test_an_environment_that_leaves_in_the_end_is_a_note(stage, monkeypatch):
    monkeypatch.setattr(evaluation_schedule, "make_games_env", lambda *_: sys.exit(3))
    stage.examiner.close(stage.learned())
    assert "SystemExit: 3" in stage.warnings[0]


def test_a_signal_gives_up_the_last_games(stage, monkeypatch):
    monkeypatch.setattr(evaluation_schedule, "LAST_SECONDS", 1e9)
    monkeypatch.setattr(evaluation_schedule.Games, "step", lambda self: time.sleep(0.01))
    stage.examiner.close(stage.learned(), lambda: True)
    assert stage.rows == []
    assert "a signal came first; tianji eval" in stage.warnings[0]


def test_games_in_which_the_evaluator_was_lost_are_not_played_by_the_launcher(stage, monkeypatch):
    monkeypatch.delattr(evaluation_schedule, "make_games_env")
    stage.evaluator_lost = True
    stage.examiner.close(stage.learned())
    assert stage.rows == []
    assert "the evaluator was lost" in stage.warnings[0]


def test_a_row_that_the_disk_refuses_is_written_later(stage, monkeypatch):
    def full(folder, row):
        raise OSError(errno.ENOSPC, "No space left on device")

    stage.tick(1, 100)
    with monkeypatch.context() as patch:
        patch.setattr(evaluation_schedule, "add_row", full)
        stage.answer(1)
        stage.tick(2, 110)
    assert stage.rows == [] and "No space left" in stage.warnings[0]
    stage.answer(2)
    stage.examiner.close()
    assert [row["updates"] for row in stage.rows] == [1, 2]


def test_half_a_line_of_another_writer_is_not_cut(stage):
    (stage.folder / "evaluations.jsonl").write_text('{"of": "ev')
    stage.tick(1, 100)
    stage.answer(1)
    stage.examiner.close()
    half, row = (stage.folder / "evaluations.jsonl").read_text().splitlines()
    assert half == '{"of": "ev' and json.loads(row)["of"] == "training"
