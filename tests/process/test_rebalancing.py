"""Whole runs whose costs change: who works follows, and what limits them is named."""

import json
import os
import signal

import jobs
import pytest
from commands import TASKS, end, eventually, rows, start, train, training
from puppets import MISSING

pytestmark = pytest.mark.process

CONFIG = TASKS / "drifting_dqn.py"
FAST, SLOW = (
    0.004,
    0.02,
)  # seconds per step: one actor makes 230 or 48 steps/s, the learner uses 120


def pace(tmp_path, seconds):
    """Says what a step takes from now on; nobody ever reads half of it."""
    path, part = tmp_path / "pace", tmp_path / "pace.part"
    part.write_text(str(seconds))
    part.replace(path)
    return "--set", f"environment.pace={path}"


def decisions(folder):
    path = folder / "balance.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def awake(folder):
    decided = [row for row in decisions(folder) if row["kind"] in ("pause", "wake")]
    return decided[-1]["after"] if decided else 4


def test_actors_are_paused_woken_when_the_task_gets_slower_and_paused_again(tmp_path):
    folder = tmp_path / "run"
    process = start(CONFIG, folder, *pace(tmp_path, FAST), "--max-seconds", "90", "--quiet")
    try:
        crew = training(process, folder)
        eventually(lambda: awake(folder) == 1, 40, "a pause of all but one")
        produced = rows(folder)[-1]["env_steps"]
        pace(tmp_path, SLOW)
        eventually(lambda: awake(folder) > 1, 20, "waking")
        pace(tmp_path, FAST)
        eventually(lambda: awake(folder) == 1, 40, "another pause")
        os.kill(process.pid, signal.SIGSTOP)  # the one who decides: nobody waits for it
        try:
            before = cpu_ticks(crew["learner-0.0"])
            eventually(lambda: cpu_ticks(crew["learner-0.0"]) > before + 20, 20, "training")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    finally:
        end(process)
    summary = json.loads((folder / "summary.json").read_text())
    kinds = [row["kind"] for row in summary["rebalancing"]]
    assert kinds[0] == kinds[-1] == "pause" and "wake" in kinds
    assert [row["kind"] for row in decisions(folder)] == kinds
    assert "tianji: pause 4 -> 2 actors awake: 4 actors can make" in err
    assert summary["produced"] > produced
    assert summary["roles"]["actor-0.1"]["paused"] > 0.1
    assert summary["replay_ratio"]["measured"] == pytest.approx(32, rel=0.03)


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


def test_with_the_switch_off_nothing_is_changed(tmp_path):
    options = (*pace(tmp_path, FAST), "--set", "global_cfg.rebalance=False")
    done = train(CONFIG, tmp_path / "run", *options, "--max-seconds", "12")
    assert done.status == 0, done.err
    assert done.summary["rebalancing"] == [] and not (tmp_path / "run" / "balance.jsonl").exists()
    assert all(role["paused"] == 0 for role in done.summary["roles"].values())
    assert "pause" not in done.err


def test_a_run_with_paused_actors_is_resumed_with_all_of_them(tmp_path):
    folder = tmp_path / "run"
    options = (*pace(tmp_path, FAST), "--max-seconds", "60")
    process = start(CONFIG, folder, *options, "--quiet")
    try:
        training(process, folder)
        eventually(lambda: decisions(folder), 30, "a pause")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        process = start(CONFIG, folder, *options, "--quiet")
        before = len(decisions(folder))
        eventually(lambda: len(decisions(folder)) > before, 40, "a pause after the resume")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    finally:
        end(process)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["resumes"] == 1
    first, *others = summary["rebalancing"]
    assert first["before"] == 4 and others[before - 1]["before"] == 4


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_ranks_of_two_machines_rest_and_whoever_dies_training_goes_on(tmp_path):
    folder, options = tmp_path / "run", (*pace(tmp_path, FAST), "--max-seconds", "60")
    process = jobs.start(CONFIG, folder, *options, machines={"a": 3, "b": 3})
    try:
        crew = jobs.training(process, folder)
        eventually(lambda: awake(folder) == 1, 40, "a pause of all but one")
        before = len(decisions(folder))
        for name in ("actor-0.0", "actor-0.1", "actor-0.2"):
            os.kill(crew[name], signal.SIGKILL)
        updates = rows(folder)[-1]["updates"]
        eventually(lambda: rows(folder)[-1]["updates"] > updates + 300, 30, "training")
        kinds = [row["kind"] for row in decisions(folder)[before:]]
        assert set(kinds) <= {"wake"}  # none, if the one that lives was awake
    finally:
        jobs.end(process, folder)


WORKLOADS = {
    "sample-bound": (SLOW, "actor_cfg.num=1"),
    "training-bound": (FAST, "global_cfg.rebalance=False"),
    "communication-bound": (0.0, "actor_cfg.num=1", "global_cfg.transport=drifting:SlowLink"),
}


@pytest.mark.parametrize("kind", WORKLOADS)
def test_what_limits_a_run_is_named_and_so_is_what_would_help(tmp_path, kind):
    seconds, *overrides = WORKLOADS[kind]
    options = [word for override in overrides for word in ("--set", override)]
    if kind == "communication-bound":
        options += ["--set", "agent.type=DQN"]
    done = train(CONFIG, tmp_path / "run", *pace(tmp_path, seconds), *options, "--max-seconds", "4")
    assert done.status == 0, done.err
    said = done.summary["bottleneck"]
    assert said.startswith(f"{kind}: ") and " would bring " in said, said
