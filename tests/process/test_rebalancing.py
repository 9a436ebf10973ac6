"""Whole runs whose costs change: who works follows, and what limits them is named."""

import json
import os
import signal

import jobs
import pytest
from commands import TASKS, end, eventually, rows, start, train, training
from mpi_pair import MISSING

pytestmark = pytest.mark.process

CONFIG = TASKS / "drifting_dqn.py"
FAST, SLOW = 0.001, 0.03  # seconds per step
# One actor makes 800 or 32 steps/s and the learner uses 120: on a busy machine too, one is more
# than enough or four are hardly so. What has to happen has minutes to, and mostly takes seconds.
LONG = ("--max-seconds", "900")


def pace(tmp_path, seconds):
    """Says what a step takes from now on; nobody ever reads half of it."""
    path, part = tmp_path / "pace", tmp_path / "pace.part"
    part.write_text(str(seconds))
    part.replace(path)
    return "--set", f"environment.pace={path}"


def decisions(folder):
    """All of them so far, without a line that is just being written."""
    path = folder / "balance.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def of_actors(decided):
    """Without those on threads and buffers, which are tried whenever cores happen to be free."""
    return [row for row in decided if row["kind"] in ("pause", "wake")]


def awake(folder):
    decided = of_actors(decisions(folder))
    return decided[-1]["after"] if decided else 4


@pytest.mark.slow
def test_actors_are_paused_woken_when_the_task_gets_slower_and_paused_again(tmp_path):
    folder = tmp_path / "run"
    process = start(CONFIG, folder, *pace(tmp_path, FAST), *LONG, "--quiet")
    try:
        crew = training(process, folder)
        eventually(lambda: awake(folder) == 1, 120, "a pause of all but one")
        produced = rows(folder)[-1]["env_steps"]
        pace(tmp_path, SLOW)
        eventually(lambda: awake(folder) > 1, 120, "waking")
        pace(tmp_path, FAST)
        eventually(lambda: awake(folder) == 1, 120, "another pause")
        os.kill(process.pid, signal.SIGSTOP)  # the one who decides: nobody waits for it
        try:
            before = cpu_ticks(crew["learner-0.0"])
            eventually(lambda: cpu_ticks(crew["learner-0.0"]) > before + 20, 60, "training")
        finally:
            os.kill(process.pid, signal.SIGCONT)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        end(process)
    summary = json.loads((folder / "summary.json").read_text())
    told = [{name: row[name] for name in row if name != "reading"} for row in decisions(folder)]
    assert told == summary["rebalancing"]
    first = of_actors(told)[0]
    assert (first["kind"], first["before"]) == ("pause", 4)
    assert f"tianji: pause 4 -> {first['after']} actors awake: 4 actors could make" in err
    assert summary["produced"] > produced
    assert sum(role["paused"] for role in summary["roles"].values()) > 0.1
    assert summary["replay_ratio"]["measured"] == pytest.approx(32, rel=0.05)


def cpu_ticks(pid):
    with open(f"/proc/{pid}/stat") as file:
        return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))


@pytest.mark.slow  # it needs a core that is free, and so no tests beside it
@pytest.mark.timeout(300)
def test_a_buffer_that_holds_its_learner_up_gets_a_thread_of_its_own(tmp_path):
    folder = tmp_path / "run"
    options = (*pace(tmp_path, FAST), "--set", "agent.type='drifting:DrawnOutDQN'")
    process = start(CONFIG, folder, *options, *LONG, "--quiet")

    def moves():
        return [row for row in decisions(folder) if row["kind"] == "buffer"]

    def speeds():
        """Updates per second of training, row by row."""
        there = rows(folder)
        last = there[-1]["time/time_elapsed"]
        some = [row for row in there if row["time/time_elapsed"] >= last - 5.5]
        seconds = some[-1]["time/time_elapsed"] - some[0]["time/time_elapsed"]
        return (some[-1]["updates"] - some[0]["updates"]) / seconds

    try:
        training(process, folder)
        eventually(moves, 100, "a buffer that is moved")
        eventually(lambda: speeds() > 85, 100, "more updates than 14 ms each allow")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        end(process)
    summary = json.loads((folder / "summary.json").read_text())
    assert "tianji: buffer 0 -> 1 threads of the buffer's own: to see what it gains" in err
    first = moves()[0]
    assert (first["before"], first["after"]) == (0, 1)
    assert summary["replay_ratio"]["measured"] == pytest.approx(32, rel=0.05)


@pytest.mark.slow
def test_with_the_switch_off_nothing_is_changed_and_the_learner_is_named(tmp_path):
    options = (*pace(tmp_path, FAST), "--set", "global_cfg.rebalance=False")
    done = train(CONFIG, tmp_path / "run", *options, "--max-seconds", "6")
    assert done.status == 0, done.err
    assert done.summary["rebalancing"] == [] and not (tmp_path / "run" / "balance.jsonl").exists()
    assert all(role["paused"] == 0 for role in done.summary["roles"].values())
    assert "pause" not in done.err
    said = done.summary["bottleneck"]
    assert said.startswith("training-bound: ") and ": at most +" in said, said


@pytest.mark.slow
def test_a_run_with_paused_actors_is_resumed_with_all_of_them(tmp_path):
    folder = tmp_path / "run"
    options = (*pace(tmp_path, FAST), *LONG, "--quiet")

    def n_decided():
        return len(of_actors(decisions(folder)))

    process = start(CONFIG, folder, *options)
    try:
        training(process, folder)
        eventually(n_decided, 120, "a pause")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
        before = n_decided()
        process = start(CONFIG, folder, *options)
        eventually(lambda: n_decided() > before, 120, "a pause after the resume")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    finally:
        end(process)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["resumes"] == 1
    decided = of_actors(summary["rebalancing"])
    for first in (decided[0], decided[before]):
        assert (first["kind"], first["before"]) == ("pause", 4)


@pytest.mark.slow
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_ranks_of_two_machines_rest_and_whoever_dies_training_goes_on(tmp_path):
    folder, options = tmp_path / "run", (*pace(tmp_path, FAST), *LONG)
    process = jobs.start(CONFIG, folder, *options, machines={"a": 3, "b": 3})
    try:
        crew = jobs.training(process, folder)
        eventually(lambda: awake(folder) == 1, 120, "a pause of all but one")
        for name in ("actor-0.0", "actor-0.1", "actor-0.2"):
            os.kill(crew[name], signal.SIGKILL)
        updates = rows(folder)[-1]["updates"]

        def the_last_one_works():
            last = rows(folder)[-1]
            return last["updates"] > updates + 300 and 0.9 < last["balance/awake"] < 1.1

        eventually(the_last_one_works, 120, "training with the one that lives")
    finally:
        jobs.end(process, folder)


WORKLOADS = {
    "sample-bound": (SLOW, "actor_cfg.num=1"),
    "communication-bound": (0.0, "actor_cfg.num=1", "global_cfg.transport=drifting:SlowLink"),
}


@pytest.mark.parametrize(
    "kind", ["sample-bound", pytest.param("communication-bound", marks=pytest.mark.slow)]
)
def test_what_limits_a_run_is_named_and_so_is_what_would_help(tmp_path, kind):
    seconds, *overrides = WORKLOADS[kind]
    options = [word for override in overrides for word in ("--set", override)]
    if kind == "communication-bound":
        options += ["--set", "agent.type=DQN"]
    done = train(CONFIG, tmp_path / "run", *pace(tmp_path, seconds), *options, "--max-seconds", "5")
    assert done.status == 0, done.err
    said = done.summary["bottleneck"]
    assert said.startswith(f"{kind}: ") and " %" in said.partition(";")[2], said
