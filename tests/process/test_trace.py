"""Traces of real runs, in every engine: all that roles do is there, once, and arrows fit."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter

import jobs
import numpy as np
import pytest
from commands import ROOT, TASKS, children, end, eventually, rows, start, train
from mpi_pair import MISSING

import tianji
from tianji.core.tracer import What
from tianji.observe.trace.flows import flows_of
from tianji.observe.trace.format import Doing, Wait
from tianji.observe.trace.timeline import events_of
from tianji.observe.trace.trace_reader import read

pytestmark = pytest.mark.process

NO_TARGET = ("--set", "exp.stop_return=1e9")
WORK = {
    "actor": {Doing.INFERENCE, Doing.SIMULATION, Doing.SEND, Doing.RECEIVE},
    "buffer": {Doing.SEND, Doing.RECEIVE},
    "learner": {Doing.UPDATE, Doing.SEND, Doing.RECEIVE},
}


def command(*words):
    """Runs `tianji trace`."""
    return subprocess.run(
        [sys.executable, "-m", "tianji", "trace", *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )


def check(trace):
    """What must be true of the trace of any run."""
    for role in trace.roles:
        there = set(role.rows["kind"].tolist())
        assert WORK.get(role.name.partition("-")[0], set()) <= there, role.name
        assert (role.rows["began"][1:] >= role.rows["ended"][:-1]).all(), role.name
        assert (role.rows["began"] >= trace.began).all()
        assert (role.rows["ended"] <= trace.ended).all()
    flows = list(flows_of(trace))
    assert Counter(flow.name for flow in flows).keys() == {"trajectory", "batch", "weights"}
    for flow in flows:
        times = [point.at for point in flow.points]
        assert times == sorted(times)
    times = [event["ts"] for event in events_of(trace) if event["ph"] != "M"]
    assert times == sorted(times)
    return {role.name: role.rows for role in trace.roles}


def of(rows, kind, what=None):
    return rows[(rows["kind"] == kind) & ((what is None) | (rows["what"] == what))]


def test_a_run_in_processes_leaves_a_trace_of_all_that_its_roles_did(tmp_path):
    options = [*NO_TARGET, "--trace", "30", "--quiet", "--set", "exp.train_steps=3000"]
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *options, "--set", "actor_cfg.num=2")
    assert done.status == 0, done.err
    told = command(tmp_path / "run")
    assert (told.returncode, told.stderr) == (0, "")
    assert "idle, waiting for" in told.stdout
    data = json.loads((tmp_path / "run" / "trace.json").read_text())
    assert {"M", "X", "s", "t", "f"} == {event["ph"] for event in data["traceEvents"]}
    roles = check(read(tmp_path / "run"))
    assert set(roles) == {"actor-0.0", "actor-0.1", "buffer-0.0", "learner-0.0"}
    updates = of(roles["learner-0.0"], Doing.UPDATE)["version"].tolist()
    assert updates == list(range(done.summary["updates"]))
    sent = [of(roles[f"actor-0.{i}"], Doing.SEND, What.TRAJECTORY) for i in (0, 1)]
    came = of(roles["buffer-0.0"], Doing.RECEIVE, What.TRAJECTORY)
    for i, own in enumerate(sent):
        numbers = came["number"][came["peer"] == i]
        assert numbers.tolist() == list(range(numbers.size))
        assert own.size >= numbers.size > 0


def test_synchronous_actors_wait_for_weights_and_the_learner_for_trajectories(tmp_path):
    options = [*NO_TARGET, "--trace", "30", "--quiet", "--set", "exp.train_steps=6000"]
    done = train(TASKS / "echo_ppo.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    roles = check(read(tmp_path / "run"))

    def waits(name):
        return set(of(roles[name], Doing.IDLE)["what"].tolist())

    assert waits("actor-0.0") == {Wait.WEIGHTS}
    assert waits("learner-0.0") == {Wait.TRAJECTORIES}


def test_actors_that_are_ahead_wait_for_the_balance(tmp_path):
    options = [*NO_TARGET, "--trace", "30", "--quiet", "--set", "exp.train_steps=800"]
    options += ["--set", "global_cfg.replay_ratio=64"]
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    actor = check(read(tmp_path / "run"))["actor-0.0"]
    idle = of(actor, Doing.IDLE)
    later = idle[idle["began"] > of(actor, Doing.INFERENCE)["began"][0]]
    assert set(later["what"].tolist()) == {Wait.BALANCE}


def test_a_run_that_is_killed_leaves_a_trace_that_is_read_while_it_trains_too(tmp_path):
    folder = tmp_path / "run"
    process = start(TASKS / "echo_ppo.py", folder, *NO_TARGET, "--trace", "1", "--set",
                    "exp.train_steps=100000000")  # fmt: skip
    try:
        eventually(lambda: len(rows(folder)) > 2 or process.poll() is not None, 40, "updates")
        alive = read(folder)
        os.kill(children(process.pid)["actor-0.1"], signal.SIGKILL)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        end(process)
    check(alive)
    trace = read(folder)
    assert trace.ended >= alive.ended
    assert {role.name for role in trace.roles if role.rows.size} >= {"actor-0.1", "learner-0.0"}


def trained(folder, *overrides, config="echo_dqn", engine="local", **more):
    limits = ("exp.stop_return=1e9", "exp.train_steps=2000")
    report = tianji.train(
        TASKS / f"{config}.py", *limits, *overrides, engine=engine, run_dir=folder, **more
    )
    assert report.exit_status == 0, report.error
    return tianji.load(folder).weights


@pytest.mark.parametrize("config", ["echo_dqn", "echo_ppo"])
def test_a_run_in_one_process_is_traced_and_learns_the_same(tmp_path, config):
    plain = trained(tmp_path / "plain", config=config)
    traced = trained(tmp_path / "traced", config=config, trace=30)
    np.testing.assert_array_equal(plain, traced)
    assert not (tmp_path / "plain" / "trace").exists()
    trace = read(tmp_path / "traced")
    assert list(trace.homes) == ["local"]
    check(trace)


PLAIN = """
import sys
from pathlib import Path
from tianji.config import load
from tianji.core.tracer import NULL
from tianji.engines.local import LocalEngine
from tianji.job.preflight import try_out

engine = LocalEngine(try_out(load(sys.argv[1])), Path(sys.argv[2]))
assert all(role.tracer is NULL for role in engine.roles)
print(*[m for m in sys.modules if m.startswith("tianji.observe.trace")])
"""


def test_a_run_that_is_not_traced_knows_nothing_of_it(tmp_path, child_env):
    line = [sys.executable, "-c", PLAIN, str(TASKS / "echo_dqn.py"), str(tmp_path)]
    done = subprocess.run(line, env=child_env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")
    assert not (tmp_path / "trace").exists()


def test_a_traced_run_goes_on_bit_for_bit_and_its_arrows_still_fit(tmp_path):
    parts, plain = tmp_path / "parts", tmp_path / "plain"
    trained(parts, "exp.episodes=20", config="walk_dqn")  # what is in flight then is kept
    shutil.copytree(parts, plain)
    for folder, more in ((plain, {}), (parts, {"trace": 30})):
        report = tianji.resume(folder, "exp.episodes=60", **more)
        assert report.exit_status == 0, report.error
    weights = [tianji.load(folder).weights for folder in (plain, parts)]
    np.testing.assert_array_equal(*weights)
    trace = read(tmp_path / "parts")
    roles = check(trace)
    sent = of(roles["actor-0.0"], Doing.SEND, What.TRAJECTORY)
    came = of(roles["buffer-0.0"], Doing.RECEIVE, What.TRAJECTORY)
    by_number = dict(zip(sent["number"], sent["version"], strict=True))
    assert came["number"].min() < 0  # sent before
    for number, version in zip(came["number"], came["version"], strict=True):
        assert number < 0 or by_number[number] == version


def test_learners_of_a_group_wait_for_each_other(tmp_path):
    overrides = ("learner_cfg.num=2", "exp.train_steps=1000")
    trained(tmp_path / "run", *overrides, trace=30)
    roles = check(read(tmp_path / "run"))
    for i in (0, 1):
        learner = roles[f"learner-0.{i}"]
        assert of(learner, Doing.SEND, What.GRADIENT).size > 0
        assert of(learner, Doing.RECEIVE, What.GRADIENT).size > 0


def test_groups_that_are_fused_show_their_reducer(tmp_path):
    overrides = ("global_cfg.group_num=2", "learner_cfg.send_root_interval=5")
    trained(tmp_path / "run", *overrides, trace=30)
    reducer = check(read(tmp_path / "run"))["reducer-0.0"]
    assert of(reducer, Doing.RECEIVE, What.PARAMETERS).size > 0
    assert of(reducer, Doing.SEND, What.PARAMETERS).size > 0
    assert set(of(reducer, Doing.IDLE)["what"].tolist()) <= {Wait.GROUPS}


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_ranks_on_two_machines_are_traced_on_one_clock(tmp_path):
    options = [*NO_TARGET, "--trace", "30", "--set", "exp.train_steps=3000"]
    machines = {"a": 2, "b": 2}
    options += ["--set", "actor_cfg.num=2"]
    done = jobs.train(TASKS / "echo_dqn.py", tmp_path / "run", *options, machines=machines)
    assert done.status == 0, done.err
    trace = read(tmp_path / "run")
    assert {heading.host for heading in trace.homes.values()} == {"a", "b"}
    roles = check(trace)
    assert set(roles) == {"actor-0.0", "actor-0.1", "buffer-0.0", "learner-0.0"}


def test_a_run_without_a_trace_is_told_how_to_record_one(tmp_path):
    trained(tmp_path / "run", "exp.train_steps=300")
    done = command(tmp_path / "run")
    assert done.returncode == 2
    assert done.stderr == (
        f"tianji: {tmp_path}/run has no trace: record one with `tianji train CONFIG --trace`, or "
        "`exp.trace_seconds` in the config\n"
    )


@pytest.mark.parametrize(
    "words, told",
    [
        (
            ("nowhere",),
            "nowhere does not exist: name the folder of a run, as in runs/cartpole_ppo-...",
        ),
        (("nowhere", "--seconds", "0"), "--seconds: want more than 0, got 0"),
    ],
)
def test_bad_input_is_the_users_mistake(words, told):
    done = command(*words)
    assert (done.returncode, done.stderr) == (2, f"tianji: {told}\n")


def test_too_long_a_trace_is_refused(tmp_path):
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", "--trace", "1000")
    assert done.status == 2
    assert "trace_seconds" in done.err and "60" in done.err
