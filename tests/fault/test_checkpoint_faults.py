"""Whatever kills a run, and whenever: a valid checkpoint is left, and the same command goes on."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoint_child import make
from commands import TASKS, alive, end, eventually, rows, start, train, training

from tianji.core import checkpoint

pytestmark = [pytest.mark.fault, pytest.mark.process]

DQN = TASKS / "walk_dqn.py"
ENDLESS = ("--set", "exp.train_steps=100000000", "--quiet")


def saved(folder):
    return checkpoint.folders_of(folder)


def test_a_kill_between_any_two_changes_on_disk_leaves_a_valid_checkpoint(tmp_path, child_env):
    child = Path(__file__).with_name("checkpoint_child.py")
    subprocess.run([sys.executable, str(child), str(tmp_path)], env=child_env, check=True)
    runs = sorted(tmp_path.iterdir(), key=lambda run: int(run.name))
    assert len(runs) > 60
    found = []
    for run in runs:
        newest, notices = checkpoint.newest(run)
        assert notices == [], run  # nothing half written can be seen
        found.append(newest.version)
        checkpoint.sweep(run)
        make(run, 3)
        left = [path.name for path in (run / "checkpoints").iterdir()]
        assert left == ["0003-step-30"], run
    assert found == sorted(found)
    assert set(found) == {1, 2}  # before the rename, and after it


@pytest.fixture
def run(tmp_path):
    """Starts the same endless run as often as one likes."""
    folder, begun = tmp_path / "run", []

    def go(*options):
        process = start(DQN, folder, *ENDLESS, *options, start_new_session=True)
        begun.append(process)
        return process, folder

    yield go
    for process in begun:
        end(process)


def goes_on(process, folder, beyond):
    """Waits until a resumed run has done something, and ends it."""
    eventually(lambda: rows(folder) and rows(folder)[-1]["env_steps"] > beyond, what="more steps")
    assert process.poll() is None
    return leaves(process, signal.SIGTERM)


def leaves(process, number):
    """Sends a signal; the process ends in order. Returns what it said."""
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    return err


def is_sorted(values):
    return values == sorted(values)


def test_the_same_command_goes_on_after_everything_was_killed(run):
    every = ("--set", "exp.save_seconds=1.5")
    process, folder = run(*every)
    eventually(lambda: saved(folder), what="a checkpoint")
    first = checkpoint.load(saved(folder)[0])
    crew = training(process, folder)
    eventually(lambda: rows(folder)[-1]["env_steps"] > first.env_steps, what="a row after it")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    eventually(lambda: not any(map(alive, crew.values())), 5, "the end of the children")
    kept, notices = checkpoint.newest(folder)
    assert notices == []
    before = rows(folder)

    process, folder = run(*every)
    err = goes_on(process, folder, before[-1]["env_steps"])
    said = f"resumed from {kept.folder.name}: {kept.env_steps:,} steps and {kept.version:,} updates"
    assert said in err
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["resumes"] == 1
    after = rows(folder)
    for name in ("env_steps", "updates", "rollout/episodes", "wall_s"):
        assert is_sorted([row[name] for row in after]), name
    lost = [json.loads(line) for line in _lines(folder / "metrics.lost.jsonl")]
    assert [row for row in before if row["env_steps"] > kept.env_steps] == lost
    assert [row for row in before if row["env_steps"] <= kept.env_steps] == after[
        : len(before) - len(lost)
    ]
    went_on = after[len(before) - len(lost)]
    assert went_on["env_steps"] >= kept.env_steps and went_on["updates"] >= kept.version
    assert list((folder / "checkpoints").glob(".*")) == []


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGUSR1, marks=pytest.mark.slow)]
)
def test_a_preempted_run_saves_itself_and_the_same_command_goes_on(run, number):
    process, folder = run()
    crew = training(process, folder)
    leaves(process, number)
    assert not any(map(alive, crew.values()))
    kept, notices = checkpoint.newest(folder)
    first = json.loads((folder / "summary.json").read_text())
    assert first["status"] == "interrupted"
    assert notices == first["warnings"] == []
    assert kept.manifest["replay"] == "kept"
    assert (kept.env_steps, kept.version) == (first["env_steps"], first["updates"])

    process, folder = run()
    err = goes_on(process, folder, kept.env_steps)
    assert f"note: resumed from {kept.folder.name}" in err
    second = json.loads((folder / "summary.json").read_text())
    assert (first["resumes"], second["resumes"]) == (0, 1)
    for name in ("env_steps", "updates", "episodes", "consumed", "received", "wall_seconds"):
        assert second[name] > first[name], name


def test_a_second_process_in_the_same_folder_is_refused(run):
    process, folder = run()
    training(process, folder)
    before = (folder / "config.json").read_bytes()
    second = train(DQN, folder, *ENDLESS)
    assert second.status == 2
    assert "is in use: another process is training there" in second.err
    assert (folder / "config.json").read_bytes() == before
    assert not (folder / "summary.json").exists()
    steps = rows(folder)[-1]["env_steps"]
    goes_on(process, folder, steps)  # the first has noticed nothing


def test_a_run_that_was_killed_before_it_saved_anything_begins_again_and_says_so(run):
    process, folder = run()
    training(process, folder)
    eventually(lambda: rows(folder)[-1]["env_steps"] > 0, what="a step")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = rows(folder)
    assert saved(folder) == []
    process, folder = run()
    eventually(lambda: rows(folder) not in ([], before), what="a row")
    err = leaves(process, signal.SIGTERM)
    assert "holds a run that had saved nothing: it begins again" in err
    lost = [row for row in before if row["env_steps"] > 0]  # a row of no steps stays
    assert len(_lines(folder / "metrics.lost.jsonl")) == len(lost)


def test_a_full_disk_is_a_loud_warning_and_training_goes_on(run):
    process, folder = run("--set", "exp.save_seconds=0.5", "--set", "exp.save_keep=1")
    crew = training(process, folder)
    eventually(lambda: saved(folder), what="a checkpoint")
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    resource.prlimit(crew["learner-0.0"], resource.RLIMIT_FSIZE, (4_000, unlimited[1]))
    steps = rows(folder)[-1]["env_steps"]
    eventually(lambda: rows(folder)[-1]["env_steps"] > steps + 3_000, what="more steps")
    kept = saved(folder)
    assert checkpoint.load(kept[-1])
    resource.prlimit(crew["learner-0.0"], resource.RLIMIT_FSIZE, unlimited)
    eventually(lambda: saved(folder)[-1] != kept[-1], what="another checkpoint")
    err = leaves(process, signal.SIGTERM)
    assert "tianji: warning: a checkpoint could not be written: File too large" in err
    assert "training goes on, the newest is still 00" in err
    warnings = json.loads((folder / "summary.json").read_text())["warnings"]
    assert warnings and all("File too large" in warning for warning in warnings)
    assert checkpoint.newest(folder)[1] == []


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of its own, with room for one checkpoint and not for two."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk is not permitted here")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.slow
def test_a_disk_that_is_full_to_the_end_ends_no_run(small_disk):
    options = ("--set", "exp.save_seconds=0.5", "--max-seconds", "5", *ENDLESS)
    done = train(DQN, small_disk / "run", *options)
    assert (done.status, done.summary["status"]) == (0, "stopped")
    assert "a checkpoint could not be written: No space left on device" in done.err
    assert "what the run has learned last is in no checkpoint" in done.err
    assert len(saved(done.folder)) == 1
    assert checkpoint.newest(done.folder)[1] == []
    assert [path.name for path in (done.folder / "checkpoints").iterdir()] == [
        saved(done.folder)[0].name
    ]


def test_a_killed_actor_costs_neither_the_learners_work_nor_the_counts(run):
    options = ("--set", "actor_cfg.num=2", "--set", "global_cfg.restarts=0")
    process, folder = run(*options)
    crew = training(process, folder)
    os.kill(crew["actor-0.0"], signal.SIGKILL)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "actor-0.0 saved nothing at the end" in err
    first = json.loads((folder / "summary.json").read_text())
    kept, _ = checkpoint.newest(folder)
    assert (kept.env_steps, kept.version) == (first["env_steps"], first["updates"])

    process, folder = run(*options)
    err = goes_on(process, folder, kept.env_steps)
    assert "nothing was saved of actor-0.0: it begins anew" in err
    second = json.loads((folder / "summary.json").read_text())
    assert second["updates"] > first["updates"]
    assert is_sorted([row["env_steps"] for row in rows(folder)])


STUCK = """
import sys
import time


class Stuck(Walk):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 200 and "actor-0.1" in sys.argv:
            time.sleep(100)
        return super().step(action)
"""


@pytest.mark.slow
def test_an_actor_that_is_stuck_holds_up_no_preemption(tmp_path):
    (tmp_path / "walk.py").write_text((TASKS / "walk.py").read_text() + STUCK)
    config = tmp_path / "stuck.py"
    config.write_text(DQN.read_text().replace("walk:Walk", "walk:Stuck"))
    folder = tmp_path / "run"
    process = start(config, folder, *ENDLESS, "--set", "actor_cfg.num=2")
    try:
        training(process, folder)
        eventually(lambda: rows(folder)[-1]["env_steps"] > 3_000, what="more steps")
        err = leaves(process, signal.SIGTERM)
    finally:
        end(process)
    assert "actor-0.1 did not end within" in err
    assert "actor-0.1 saved nothing at the end" in err
    kept, notices = checkpoint.newest(folder)
    summary = json.loads((folder / "summary.json").read_text())
    assert notices == []
    assert (kept.env_steps, kept.version) == (summary["env_steps"], summary["updates"])


@pytest.mark.parametrize("damage", ["flipped", "truncated", "missing"])
def test_a_run_whose_only_checkpoint_is_broken_is_refused_and_not_begun_anew(
    tmp_path, whole_run, damage
):
    folder = tmp_path / "run"
    shutil.copytree(whole_run, folder)
    path = saved(folder)[-1] / "learner-0.0.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flipped" else data[:-100])
    before = _everything(folder)
    done = train(DQN, folder, "--engine", "local", "--quiet")
    assert done.status == 2
    assert "none of its checkpoints is intact" in done.err
    assert "Traceback" not in done.err
    assert _everything(folder) == before


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """The folder of an interrupted run, with one checkpoint."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = train(DQN, folder, "--engine", "local", "--quiet")
    assert done.status == 0, done.err
    summary = done.summary | {"status": "interrupted"}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def _everything(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _lines(path):
    return path.read_text().splitlines()
