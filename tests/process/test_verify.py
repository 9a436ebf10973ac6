"""`tianji verify` as a user starts it: a verdict, its files, its exit status, and how it stops."""

import csv
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from commands import ROOT, TASKS, children, end, eventually
from mpi_pair import MISSING

pytestmark = pytest.mark.process

MPI = pytest.param(
    "mpi",
    marks=[pytest.mark.slow, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))],
)
ECHO = TASKS / "echo_dqn.py"


def begin(config, folder, *options):
    command = [sys.executable, "-m", "tianji", "verify", str(config), "--out", str(folder)]
    return subprocess.Popen(
        [*command, *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )


def verify(config, folder, *options, timeout=250):
    """Runs it to its end; returns (exit status, output, errors, verify.json)."""
    process = begin(config, folder, *options)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        end(process)
    path = folder / "verify.json"
    return process.returncode, out, err, json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize("engine", [pytest.param("process", marks=pytest.mark.slow), MPI])
def test_every_engine_can_be_compared_and_holds_the_replay_ratio(tmp_path, engine):
    options = ("--engine", engine, "--seeds", 2, "--steps", 3_000)
    status, out, err, said = verify(ECHO, tmp_path / "out", *options)
    assert status in (0, 1), err
    holds_the_replay_ratio(tmp_path / "out", engine, status, out, err, said)


def holds_the_replay_ratio(folder, engine, status, out, err, said):
    """Two pairs of 3,000 steps were compared, and written down."""
    assert said["exit_status"] == status and said["pairs"] == 2
    assert said["replay_ratio"]["held"] and said["replay_ratio"]["largest_error"] < 0.03
    assert said["sentence"] in out
    with (folder / "verify.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert [(run["engine"], run["seed"]) for run in runs] == [
        ("serial", "0"),
        (engine, "0"),
        ("serial", "1"),
        (engine, "1"),
    ]
    assert all(3_000 <= int(run["received"]) < 3_000 + 16 * 4 for run in runs)
    assert err.count("left") == 3 and "that was the last" in err


@pytest.mark.slow
def test_no_slack_in_the_local_engine_is_serial_training_and_so_equivalent(tmp_path):
    options = ("--engine", "local", "--seeds", 2, "--steps", 3_000, "--set", "buffer_cfg.slack=0")
    status, out, err, said = verify(ECHO, tmp_path / "out", *options)
    assert (status, said["verdict"]) == (0, "equivalent"), err
    assert all(each["difference"] == 0 for each in said["comparisons"])
    assert [each["ks"] for each in said["samples"]] == [0, 0]
    holds_the_replay_ratio(tmp_path / "out", "local", status, out, err, said)


@pytest.mark.slow
def test_weights_that_hardly_ever_come_make_training_worse(tmp_path):
    """Serial training takes the newest weights; these actors get new ones every 2,000 updates."""
    options = ("--engine", "local", "--seeds", 3, "--steps", 6_000)
    rare = ("--set", "learner_cfg.send_interval=2000")
    status, out, err, said = verify(ECHO, tmp_path / "out", *options, *rare)
    assert (status, said["verdict"]) == (1, "worse"), err
    assert out.count("Worse: return after 6,000 steps") == 1
    staleness = said["samples"][0]
    assert staleness["name"] == "staleness" and staleness["ks"] > 0.3


@pytest.mark.slow
def test_ctrl_c_keeps_what_is_done_and_the_same_command_goes_on(tmp_path):
    folder = tmp_path / "out"
    process = begin(ECHO, folder, "--seeds", 40, "--steps", 2_000)
    try:
        second = folder / "process-seed-1"
        eventually(lambda: second.exists() and children_of(process.pid), 60)
        workers = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 130, err
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers))
    n = json.loads((folder / "verify.json").read_text())["pairs"]
    assert n >= 1 and f"{n} of 40 pairs are kept; to go on: tianji verify" in out
    before = (folder / "process-seed-0" / "summary.json").stat().st_mtime_ns
    status, out, err, said = verify(ECHO, folder, "--seeds", n, "--steps", 2_000)
    assert said["pairs"] == n and "seed 0, process" in err
    assert (folder / "process-seed-0" / "summary.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_signal_that_comes_twice_is_one_wish(tmp_path):
    folder = tmp_path / "out"
    process = begin(ECHO, folder, "--engine", "local", "--seeds", 9, "--steps", 3_000)
    try:
        eventually(lambda: (folder / "serial-seed-1").exists(), 60)
        for _ in range(2):  # as `timeout` and Slurm do
            process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=120)
    finally:
        end(process)
    assert process.returncode == 143, err
    assert re.search("[1-8] of 9 pairs are kept", out)


def children_of(pid):
    """The workers of the run that a comparison has started."""
    path = f"/proc/{pid}/task/{pid}/children"
    with open(path) as file:
        runs = file.read().split()
    return [worker for run in runs for worker in children(int(run)).values()]


def test_what_cannot_be_compared_is_the_users_mistake(tmp_path):
    status, out, err, content = verify(ECHO, tmp_path / "out", "--set", "hyp.lrr=1")
    assert status == 2 and "lrr" in err and "Traceback" not in err
    assert content is None and not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_distributed_training_of_cartpole_is_not_worse_than_serial(tmp_path, algorithm):
    config = ROOT / "configs" / f"cartpole_{algorithm}.py"
    options = ("--seeds", 5, "--steps", 150_000)
    status, out, err, said = verify(config, tmp_path / "out", *options, timeout=800)
    assert said is not None and said["pairs"] == 5, err
    assert said["verdict"] != "worse", out
    assert said["replay_ratio"]["held"]
    age = said["samples"][1]
    assert age["ks"] < 0.05
