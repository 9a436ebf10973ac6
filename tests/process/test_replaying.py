"""Runs of the process engine, once more in one process: the same weights, bit for bit."""

import os
import signal
from contextlib import suppress

import pytest
from commands import TASKS, children, end, eventually, rows, start, tianji, train

pytestmark = pytest.mark.process

NO_TARGET = ("--set", "exp.stop_return=1e9", "--quiet", "--record")
KINDS = {
    "dqn": ("walk_dqn", "actor_cfg.num=2", "exp.train_steps=6000"),
    "asynchronous ppo": ("walk_ppo", "hyp.mode=async", "hyp.batch_size=1"),
    "synchronous ppo": ("walk_ppo",),
    "two threads": ("walk_ppo", "learner_cfg.cores=2", "actor_cfg.num=1"),
    "a buffer of its own": ("walk_dqn", "buffer_cfg.cores=1", "exp.train_steps=6000"),
    "apex": ("catch_apex", "actor_cfg.num=2", "exp.train_steps=4000"),
    "impala": ("catch_impala", "actor_cfg.num=2", "exp.train_steps=4000"),
}


@pytest.mark.parametrize(
    "kind",
    [kind if kind == "dqn" else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS],
)
def test_a_run_of_several_processes_comes_out_again(tmp_path, kind):
    task, *overrides = KINDS[kind]
    more = [word for key in overrides for word in ("--set", key)]
    done = train(TASKS / f"{task}.py", tmp_path / "run", *NO_TARGET, *more)
    assert done.status == 0, done.err
    again = tianji("replay", tmp_path / "run")
    assert again.returncode == 0, again.stdout + again.stderr
    said = " ".join(again.stdout.split())
    assert f"{done.summary['updates']:,} updates: every trajectory and" in said
    assert "and so are the weights that the run ended with, bit for bit." in said


@pytest.mark.slow
def test_a_run_that_was_killed_comes_out_again_as_far_as_it_was_written(tmp_path):
    folder = tmp_path / "run"
    process = start(TASKS / "walk_dqn.py", folder, *NO_TARGET, "--set", "exp.train_steps=100000000")
    try:
        eventually(lambda: len(rows(folder)) > 3 or process.poll() is not None, 60, "updates")
        for pid in [*children(process.pid).values(), process.pid]:
            with suppress(ProcessLookupError):  # the rest goes with the first
                os.kill(pid, signal.SIGKILL)
    finally:
        end(process)
    again = tianji("replay", folder)
    said = " ".join(again.stdout.split())
    assert again.returncode == 1, again.stderr
    assert "not the whole run: the record of" in said and "So far every trajectory" in said


@pytest.mark.slow
def test_an_interrupted_run_comes_out_again_up_to_where_it_was_resumed(tmp_path):
    folder, limit = tmp_path / "run", ("--set", "exp.train_steps=3000")
    first = train(TASKS / "walk_dqn.py", folder, *NO_TARGET, *limit)
    assert first.status == 0, first.err
    before = tianji("replay", folder)
    more = tianji("resume", folder, "--quiet", "--set", "exp.train_steps=5000")
    assert more.returncode == 0, more.stderr
    assert "`tianji replay` repeats a run up to where it is resumed" in more.stderr
    again = tianji("replay", folder)
    assert again.returncode == 0, again.stderr
    of_first = " ".join(before.stdout.split()).partition(", and so are")[0]
    assert " ".join(again.stdout.split()).rstrip(".") == of_first.rstrip(".")


def test_a_run_without_a_record_is_refused(tmp_path):
    done = tianji("replay", tmp_path)
    assert done.returncode == 2
    assert "holds no run to replay" in done.stderr
