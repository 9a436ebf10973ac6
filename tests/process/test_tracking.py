"""Weights & Biases and trackio, played by small modules that write down how they are called."""

import json
import os

import pytest
from commands import ROOT, TASKS

import tianji
from tianji.cli import main
from tianji.config import load
from tianji.observe.sinks import Sinks, Tracking

pytestmark = pytest.mark.process

WANDB = """
import json, os, sys

def note(*words):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps(words) + "\\n")

class Settings(dict):
    pass

class Run:
    summary = {}

    def define_metric(self, name, step_metric):
        note("define_metric", name, step_metric)

    def log(self, values):
        if os.environ.get("BREAKS"):
            raise RuntimeError("the network is gone")
        note("log", values)

    def finish(self, exit_code):
        note("finish", exit_code, self.summary)

def init(**options):
    note("init", options)
    print("a greeting that nobody asked for")
    if os.environ.get("HANGS"):
        sys.stdin.read()
        import threading
        threading.Event().wait(30)
    return Run()
"""

TRACKIO = """
from wandb import note

class Run:
    def log(self, values, step):
        note("trackio log", values, step)

    def finish(self):
        note("trackio finish")

def init(**options):
    note("trackio init", options)
    return Run()
"""


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Installs the two modules; returns a function that reads what they were asked to do."""
    library = tmp_path / "library"
    library.mkdir()
    (library / "wandb.py").write_text(WANDB)
    (library / "trackio.py").write_text(TRACKIO)
    monkeypatch.syspath_prepend(str(library))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(library), str(ROOT)]))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    for name in ("WANDB_PROJECT", "WANDB_NAME", "TRACKIO_PROJECT", "BREAKS", "HANGS"):
        monkeypatch.delenv(name, raising=False)

    def read():
        return [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]

    return read


def sinks_of(folder):
    config = load(TASKS / "echo_ppo.py", ['exp.track=["wandb"]'])
    return Sinks([Tracking("wandb", folder, config)])


def test_every_row_reaches_the_trackers(tmp_path, calls, capfd):
    report = tianji.train(
        TASKS / "echo_ppo.py",
        engine="local",
        run_dir=tmp_path / "run",
        track=["wandb", "trackio"],
        stop_return=1e9,
        exp=dict(train_steps=2_000),
    )
    assert report.exit_status == 0
    made = calls()
    init = next(options for name, options in (c for c in made if c[0] == "init"))
    name = json.loads((report.folder / "tracking.json").read_text())["id"]
    assert (init["project"], init["name"], init["id"]) == ("tianji", "run", name)
    assert init["config"]["exp"]["train_steps"] == 2_000
    assert (init["resume"], init["settings"]) == ("allow", {"console": "off"})
    assert ["define_metric", "*", "env_steps"] in made
    logged = [call[1] for call in made if call[0] == "log"]
    there = [{k: v for k, v in row.items() if v is not None} for row in report.metrics()]
    assert logged == there
    finish = next(call for call in made if call[0] == "finish")
    assert finish[1] == 0 and finish[2]["status"] == "finished"
    stored = [call[1:] for call in made if call[0] == "trackio log"]
    assert stored == [[row, row["env_steps"]] for row in there]
    assert ["trackio finish"] in made
    out, err = capfd.readouterr()
    assert "greeting" not in out + err
    assert "greeting" in (report.folder / "logs" / "wandb.log").read_text()


def test_a_resumed_run_goes_on_as_the_same_one(tmp_path, calls):
    for step in (10, 20):
        sinks = sinks_of(tmp_path)
        sinks.add({"env_steps": step}, step)
        sinks.close({"status": "finished"})
    first, second = (call[1]["id"] for call in calls() if call[0] == "init")
    assert first == second


def test_a_tracker_that_breaks_is_a_warning_and_no_more(tmp_path, calls, monkeypatch, capfd):
    monkeypatch.setenv("BREAKS", "yes")
    report = tianji.train(
        TASKS / "echo_ppo.py",
        run_dir=tmp_path / "run",
        engine="local",
        track="wandb",
        exp=dict(train_steps=2_000),
    )
    assert report.exit_status == 0
    err = capfd.readouterr().err
    assert err.count("tianji: warning: wandb") == 1
    assert "RuntimeError: the network is gone (all of it in " in err


def test_a_tracker_that_hangs_delays_neither_rows_nor_the_end(tmp_path, calls, monkeypatch, capfd):
    monkeypatch.setenv("HANGS", "yes")
    monkeypatch.setattr("tianji.observe.sinks.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("tianji.observe.sinks.MOST_BEHIND", 300_000)
    tracking = Tracking("wandb", tmp_path, load(TASKS / "echo_ppo.py"))
    sinks = Sinks([tracking])
    for step in range(100):
        sinks.add({f"a/{i}": 1.0 for i in range(100)}, step)
    sinks.close({"status": "finished"})
    assert "it has more to send after 0.2 s, and goes on as process" in capfd.readouterr().err
    tracking._process.kill()
    tracking._process.wait()


def test_a_tracker_that_never_reads_is_dropped(tmp_path, calls, monkeypatch, capfd):
    monkeypatch.setenv("HANGS", "yes")
    monkeypatch.setattr("tianji.observe.sinks.MOST_BEHIND", 10_000)
    tracking = Tracking("wandb", tmp_path, load(TASKS / "echo_ppo.py"))
    sinks = Sinks([tracking])
    for step in range(300):
        sinks.add({f"a/{i}": 1.0 for i in range(100)}, step)
    assert "it does not read what it is sent" in capfd.readouterr().err
    assert tracking._process.returncode is not None


def test_a_tracker_that_is_not_there_is_refused_before_anything_starts(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    folder = tmp_path / "run"
    config = str(TASKS / "echo_ppo.py")
    assert main.main(["train", config, "--run-dir", str(folder), "--track", "wandb"]) == 2
    assert capsys.readouterr().err == (
        "tianji: --track wandb needs the package wandb: pip install 'tianji[wandb]'\n"
    )
    assert not folder.exists()
