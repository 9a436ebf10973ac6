"""`train --plan auto`, and plans for on-policy batches and GPUs, with probes of a moment."""

import json
import os
import signal
import subprocess
import sys
from importlib import metadata

import pytest
from commands import ROOT, TASKS
from mpi_pair import MISSING
from profiles import profile

import tianji
from tianji.cli.main import main
from tianji.core.errors import TianJiError
from tianji.machine import resources
from tianji.strategy.plan import plan_file

pytestmark = pytest.mark.process

DQN, PPO = str(TASKS / "walk_dqn.py"), str(TASKS / "walk_ppo.py")
SHORT = ("--quiet", "--set", "exp.train_steps=3000")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Measurements last next to nothing, and this machine has two cores."""
    monkeypatch.setattr("tianji.strategy.probe.probe_children.LONGEST_SECONDS", 0.05)
    cores = resources.available_cores()[:2]
    if len(cores) < 2:
        pytest.skip("a plan for two cores needs two")
    monkeypatch.setattr(resources, "quota", lambda: 2.0)


def settings_of(folder):
    parallel = json.loads((folder / "config.json").read_text())["config"]["parallel"]
    return {
        "global_cfg.group_num": parallel["global_cfg"]["group_num"],
        "learner_cfg.cores": parallel["learner_cfg"]["cores"],
        "actor_cfg.num": parallel["actor_cfg"]["num"],
        "actor_cfg.envs": parallel["actor_cfg"]["envs"],
        "actor_cfg.cores": parallel["actor_cfg"]["cores"],
        "buffer_cfg.cores": parallel["buffer_cfg"]["cores"],
    }


def test_a_run_makes_its_plan_follows_and_keeps_it(tmp_path, capfd):
    run = tmp_path / "run"
    assert main(["train", DQN, "--plan", "auto", "--run-dir", str(run), *SHORT]) == 0
    assert "note: measuring this job" in capfd.readouterr().err
    plan = plan_file.of_run(run)
    assert settings_of(run) == plan.overrides
    assert plan.split.cores(plan.profile.work) == 2
    summary = json.loads((run / "summary.json").read_text())
    assert summary["plan"]["split"] == plan.split.name == "L1A1"
    apart = summary["planning_seconds"] + summary["startup_seconds"]
    assert 0 < summary["planning_seconds"] < apart < summary["wall_seconds"]


@pytest.mark.slow
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_ranks_follow_the_plan_that_was_made_before_they_were_started(tmp_path, capfd):
    run = tmp_path / "run"
    given = ("--engine", "mpi", "--plan", "auto", "--run-dir", str(run))
    assert main(["train", DQN, *given, *SHORT]) == 0
    said = capfd.readouterr().err
    assert said.count("measuring this job") == 1  # not by rank 0 again
    plan = plan_file.of_run(run)
    assert settings_of(run) == plan.overrides
    assert json.loads((run / "summary.json").read_text())["engine"] == "mpi"


@pytest.mark.slow
def test_who_would_run_where_is_shown_as_planned(capfd):
    assert main(["train", DQN, "--plan", "auto", "--dry-run"]) == 0
    shown = capfd.readouterr()
    roles = [line.split()[0] for line in shown.out.splitlines()[1:]]
    assert roles == ["launcher", "learner-0.0", "buffer-0.0", "actor-0.0"]
    last = shown.err.splitlines()[-1]
    assert last == f"note: a dry run keeps no plan: to have one for --plan FILE, tianji plan {DQN}"


@pytest.mark.slow
def test_a_plan_that_was_there_before_a_dry_run_is_there_after_it(tmp_path, capfd):
    run = tmp_path / "run"
    assert main(["train", DQN, "--plan", "auto", "--run-dir", str(run), *SHORT]) == 0
    for where in (("--plan", "auto", "--run-dir", str(run)), ("--plan", str(run / "plan.json"))):
        assert main(["train", DQN, *where, "--dry-run"]) == 0
    assert "keeps no plan" not in capfd.readouterr().err


@pytest.mark.slow
def test_an_on_policy_batch_grows_by_its_environments(tmp_path, capfd):
    out = tmp_path / "ppo.plan.json"
    larger = ("--batch-scale", "2", "--lr-rule", "linear", "--out", str(out), "--quiet")
    assert main(["plan", PPO, *larger]) == 0
    plan = plan_file.read(out)
    assert plan.settings == {
        "hyp.minibatch": 256,
        "hyp.lr_decay": 15,
        "hyp.lr": 0.01,
        "hyp.lr_final": 0.001,
    }
    assert plan.split.actors * plan.split.envs == 2 * (2 * 4)
    assert plan.split.batch == 32 * 16
    assert main(["train", PPO, "--plan", str(out), "--dry-run"]) == 0, capfd.readouterr().err


def test_a_learner_on_the_gpu_is_measured_there_or_refused(tmp_path, capfd):
    out = tmp_path / "gpu.plan.json"
    status = main(["plan", DQN, "--gpu", "--out", str(out), "--quiet"])
    if resources.gpu_of("cuda") is None:
        assert status == 2 and "torch sees no GPU here" in capfd.readouterr().err
    else:
        assert status == 0
        assert plan_file.read(out).profile.machine.gpu == resources.gpu_of("cuda")


def test_a_plan_for_the_gpu_has_the_learner_compute_there(tmp_path, monkeypatch):
    costs = profile()  # what it costs is not what this is about
    monkeypatch.setattr("tianji.strategy.probe.planner.probe", lambda *_: costs)
    monkeypatch.setattr(resources, "gpu_of", lambda _: "a GPU")
    out = tmp_path / "gpu.plan.json"
    assert main(["plan", DQN, "--gpu", "--out", str(out), "--quiet"]) == 0
    assert plan_file.read(out).overrides["learner_cfg.device"] == "cuda"


@pytest.fixture
def unmeasured(monkeypatch):
    """Fails where something is measured."""

    def probe(*_):
        raise AssertionError("measured")

    monkeypatch.setattr("tianji.strategy.probe.planner.probe", probe)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_missing_mpi_is_said_before_anything_is_measured(unmeasured, monkeypatch, capfd, more):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert main(["train", DQN, "--plan", "auto", "--engine", "mpi", *more]) == 2
    said = capfd.readouterr().err
    assert said == (
        "tianji: engine mpi needs mpi4py, which is not installed: pip install 'tianji[mpi]'\n"
    )


def test_a_program_is_told_what_is_missing_before_anything_is_measured(unmeasured, monkeypatch):
    with pytest.raises(TianJiError, match="an MPI job is started on the command line"):
        tianji.train(DQN, plan="auto", engine="mpi")

    def refuse_missing(libraries):
        raise TianJiError(f"{libraries[0]} is not installed")

    monkeypatch.setattr("tianji.observe.sinks.refuse_missing", refuse_missing)
    with pytest.raises(TianJiError, match="wandb is not installed"):
        tianji.train(DQN, plan="auto", track="wandb")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "words",
    [("train", DQN, "--plan", "auto", "--run-dir", "run"), ("plan", DQN, "--out", "plan.json")],
)
def test_who_stops_a_measurement_is_told_that_nothing_was_written(tmp_path, words, number):
    process = subprocess.Popen(
        [sys.executable, "-m", "tianji", *words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    first = process.stderr.readline()
    assert "measuring" in first
    process.send_signal(number)
    said = process.communicate(timeout=120)[1]
    assert process.returncode == 128 + number
    others = [line for line in said.splitlines() if not line.startswith("measuring: ")]
    assert others == ["tianji: stopped while measuring: nothing was written"]
    assert not list(tmp_path.iterdir())
