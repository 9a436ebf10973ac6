"""What goes wrong beside training, or before it, loses nothing and ends nothing that goes well."""

import json
import os
import shutil
import signal
import textwrap
import threading
from contextlib import suppress

import pytest
from commands import TASKS

import tianji
from tianji.core import checkpoint
from tianji.core.errors import TianJiError
from tianji.core.signals import DROPPED_SECONDS, Interrupted, Signals
from tianji.core.state import split

SHORT = ("exp.train_steps=300", "exp.stop_return=1e9")


def train(config, folder, *overrides):
    return tianji.train(config, *SHORT, *overrides, engine="local", run_dir=folder)


def own_task(folder, methods):
    """A configuration beside an environment that is a walk with some methods of its own."""
    folder.mkdir()
    shutil.copy(TASKS / "walk.py", folder / "ground.py")
    body = textwrap.indent(textwrap.dedent(methods).strip(), "    ")
    code = f"import numpy as np\nfrom ground import Walk\n\n\nclass Mine(Walk):\n{body}\n"
    name = f"mine_{abs(hash(methods)) % 10**8}"
    (folder / f"{name}.py").write_text(code)
    config = (TASKS / "walk_dqn.py").read_text().replace("walk:Walk", f"{name}:Mine")
    (folder / "job.py").write_text(config)
    return folder / "job.py"


def test_a_checkpoint_of_another_configuration_is_refused_and_nothing_changes(tmp_path):
    train(TASKS / "walk_dqn.py", tmp_path / "a")
    train(TASKS / "walk_ppo.py", tmp_path / "b")
    (tmp_path / "a" / "summary.json").unlink()  # as if it had been killed
    shutil.rmtree(checkpoint.folders_of(tmp_path / "a")[0])
    other = checkpoint.folders_of(tmp_path / "b")[0]
    shutil.copytree(other, tmp_path / "a" / "checkpoints" / other.name)
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    with pytest.raises(TianJiError, match="is a checkpoint of another configuration"):
        train(TASKS / "walk_dqn.py", tmp_path / "a")
    after = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    assert after == before


def test_a_state_that_no_file_can_hold_is_refused_before_training(tmp_path):
    config = own_task(tmp_path / "job", 'def state(self): return {"z": np.zeros(2, np.complex128)}')
    with pytest.raises(TianJiError, match="complex128 cannot be saved"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_key_that_would_become_another_is_refused():
    with pytest.raises(TianJiError, match="key 0 is no string"):
        split({"a": {0: 1.0}})


def test_a_state_that_fails_later_costs_the_checkpoints_and_not_the_run(tmp_path, capsys):
    methods = """
    def state(self):
        self.asked = getattr(self, "asked", 0) + 1
        if self.footprints.sum() > 2:
            raise ValueError("no state today")
        return super().state()
    """
    config = own_task(tmp_path / "job", methods)
    report = train(config, tmp_path / "run", "exp.save_freq=1", "exp.train_steps=600")
    assert report.status == "finished"
    assert (tmp_path / "run" / "checkpoints" / "final.safetensors").exists()
    assert "no state today" in capsys.readouterr().err


def test_an_evaluator_that_fails_is_a_warning(tmp_path):
    methods = """
    made = 0

    def init(self, **kwargs):
        super().init(**kwargs)
        Mine.made += 1
        self.last = Mine.made > 4

    def reset(self):
        if self.last:
            raise ValueError("not in front of an audience")
        return super().reset()
    """
    config = own_task(tmp_path / "job", methods)
    report = train(config, tmp_path / "run", "exp.eval_step=50", "exp.eval_times=1")
    assert report.status == "finished"
    warned = "\n".join(json.loads((tmp_path / "run" / "summary.json").read_text())["warnings"])
    assert "not in front of an audience" in warned


def test_a_run_that_cannot_be_taken_up_says_why(tmp_path):
    config = TASKS / "walk_dqn.py"
    train(config, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    rows = tmp_path / "run" / "metrics.jsonl"
    rows.write_text(rows.read_text() + json.dumps({"env_steps": 10**9}) + "\n")
    (tmp_path / "run" / "metrics.lost.jsonl").mkdir()
    with pytest.raises(TianJiError, match="cannot be taken up"):
        train(config, tmp_path / "run")


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1, signal.SIGTERM])
def test_the_same_wish_twice_within_a_second_is_one_wish(number):
    with Signals() as signals:
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        with pytest.raises(Interrupted) as stop:
            signals.check()
    assert stop.value.exit_status == 128 + number


@pytest.mark.parametrize("interrupted", [False, True])
def test_when_a_run_is_over_signals_do_not_keep_its_end_from_being_written(
    monkeypatch, interrupted
):
    monkeypatch.setattr("tianji.core.signals.ECHO_SECONDS", -1.0)
    gone = []
    before = signal.signal(signal.SIGTERM, lambda number, _: gone.append(number))
    try:
        with Signals() as signals:
            if interrupted:
                os.kill(os.getpid(), signal.SIGTERM)
            signals.only_note()
            for _ in range(2):
                os.kill(os.getpid(), signal.SIGTERM)
            assert signals.number == signal.SIGTERM
            assert bool(gone) is interrupted  # who has asked for the end may go at once
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_was_dropped_on_its_way_is_raised_again():
    with Signals() as signals, pytest.raises(Interrupted) as stop:
        signals.at_once = True
        for _ in range(2):
            with suppress(Interrupted):
                os.kill(os.getpid(), signal.SIGTERM)
                threading.Event().wait(20)
        threading.Event().wait(20)
    assert stop.value.number == signal.SIGTERM


def test_a_signal_that_was_answered_is_not_raised_again():
    with Signals() as signals:
        signals.at_once = True
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Interrupted:
            signals.at_once = False
        assert not threading.Event().wait(5 * DROPPED_SECONDS)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
