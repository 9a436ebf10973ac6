"""A run of the local engine that was interrupted and resumed ends as if it had never stopped."""

import errno
import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
from commands import TASKS

from tianji.config import load
from tianji.core import checkpoint, disk
from tianji.core.signals import Interrupted
from tianji.core.tensorfile import chunks
from tianji.engines.local import LocalEngine
from tianji.runs import launch, start
from tianji.runs.trained import load as load_trained

EXACT = (
    *("env_steps", "updates", "episodes", "received", "consumed", "dropped", "mean_return_100"),
    *("staleness", "age", "freshness", "new", "replay_ratio", "histograms"),
)
"""What a summary says that does not depend on the clock."""

JOBS = {
    "ppo": ("walk_ppo",),
    "dqn": ("walk_dqn",),
    "dqn with three actors": ("walk_dqn", "actor_cfg.num=3", "actor_cfg.envs=1"),
    "dqn with slack": ("walk_dqn", "buffer_cfg.slack=64", "learner_cfg.send_interval=3"),
    "dqn with a buffer of its own": ("walk_dqn", "buffer_cfg.cores=1"),
    "dqn without slack": ("walk_dqn", "buffer_cfg.slack=0", "hyp.n_step=1"),
    "asynchronous ppo": ("walk_ppo", "hyp.mode=async", "hyp.max_lag=3", "hyp.batch_size=2"),
    "ppo with lag 3": ("walk_ppo", "hyp.mode=async", "hyp.buffer_size=6", "hyp.batch_size=2"),
    "ppo in gymnasium": ("walk_ppo", "environment.type=walk:GymWalk", "actor_cfg.num=1"),
    "two groups": ("walk_dqn", "global_cfg.group_num=2", "learner_cfg.send_root_interval=3"),
    "two learners": ("walk_ppo", "learner_cfg.num=2", "hyp.minibatch=16"),
    "two groups of two learners": (
        *("walk_dqn", "global_cfg.group_num=2", "learner_cfg.num=2"),
        "learner_cfg.send_root_interval=3",
    ),
    "sac": ("aim_sac", "exp.train_steps=2000", "exp.stop_return=1e9", "actor_cfg.envs=2"),
    "td3 in two groups": (
        *("aim_td3", "exp.train_steps=9000", "exp.stop_return=1e9", "global_cfg.group_num=2"),
        *("actor_cfg.num=2", "learner_cfg.send_root_interval=3"),
    ),
    "maddpg": ("two_step_maddpg",),
    "qmix": ("two_step_qmix",),
    "mappo": ("two_step_mappo", "exp.train_steps=4400", "hyp.minibatch=120"),
    "mappo that remembers, asynchronous": (
        *("two_step_mappo", "model.type=GRU", "model.gru=16", "hyp.mode=async"),
        *("actor_cfg.num=2", "actor_cfg.envs=2"),
    ),
    "mappo of two learners in two groups": (
        *("two_step_mappo", "exp.train_steps=12000", "learner_cfg.num=2", "actor_cfg.num=2"),
        "global_cfg.group_num=2",
    ),
    "dqn with evaluation": ("walk_dqn", "exp.eval_step=500", "exp.eval_times=3"),
}


def job(name, *more):
    task, *overrides = JOBS[name]
    return load(TASKS / f"{task}.py", [*overrides, *more])


def train(config, folder, engine="local", **options):
    return launch.train(config, launch.TrainRequest(engine, folder, quiet=True, **options))


class Interruption:
    """Raises in the n-th of all checks between two rounds, and again that much later."""

    def __init__(self, monkeypatch, every):
        self.left = self.every = every
        self.n = 0
        original = launch._train_to_the_end

        def trained(engine, limits, tick, check):
            return original(engine, limits, tick, self.check)

        monkeypatch.setattr(launch, "_train_to_the_end", trained)

    def check(self):
        self.left -= 1
        if self.left == 0:
            self.left = self.every
            self.n += 1
            raise Interrupted(signal.SIGTERM)


def facts(report):
    """Everything that must be the same."""
    said = {name: report.summary[name] for name in EXACT}
    weights = load_trained(report.folder).weights
    saved, _ = checkpoint.newest(report.folder)
    assert (saved.updates, saved.env_steps) == (said["updates"], said["env_steps"])
    names = sorted(n.removesuffix(".safetensors") for n in saved.manifest["files"])
    whole = {name: saved.part(name) for name in names if "-" in name}
    parts = [part["algorithm"] for part in whole.values() if "algorithm" in part]
    parts += [part["policy"] for part in whole.values() if "policy" in part]
    parts += [part["env"] or {} for part in whole.values() if "env" in part]
    parts += [part for name, part in whole.items() if name.endswith(".store")]
    parts += [part["fusion"] for part in whole.values() if part.get("fusion")]
    parts += [
        {n: part[n] for n in ("came", "gathered")} for part in whole.values() if "came" in part
    ]
    assert len(parts) >= 4  # the learner's with its optimiser, the actor's two, and the samples
    return said, weights.tobytes(), [b"".join(chunks(part)) for part in parts]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody interrupted, trained once for all tests."""
    done = {}

    def get(name, *more):
        if (name, more) not in done:
            folder = tmp_path_factory.mktemp("whole") / "run"
            report = train(job(name, *more), folder)
            assert report.summary["status"] == "finished"
            done[name, more] = facts(report)
        return done[name, more]

    return get


def resumed_to_its_end(config, folder, interruption, most=60):
    for n in range(most):
        report = train(config, folder)
        assert report.summary["resumes"] == n
        if report.summary["status"] != "interrupted":
            assert interruption.n == n
            return report
        assert report.exit_status == 143
    raise AssertionError("it never ended")


QUICK = (
    *("ppo", "dqn with slack", "asynchronous ppo", "ppo with lag 3", "dqn with evaluation"),
    *("two groups", "two learners", "sac", "maddpg", "mappo"),
)


def each(names, quick):
    """Test cases of which only some are for every day."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", each(JOBS, QUICK))
def test_an_interrupted_run_ends_as_if_it_had_never_stopped(tmp_path, monkeypatch, whole, name):
    expected = whole(name)
    interruption = Interruption(monkeypatch, 401)  # rounds: never at the same place of a look
    report = resumed_to_its_end(job(name), tmp_path / "run", interruption)
    assert interruption.n >= 2
    assert report.summary["warnings"] == []
    assert facts(report) == expected


@pytest.mark.parametrize("every", [29, 64, 65])
def test_wherever_it_is_interrupted(tmp_path, monkeypatch, whole, every):
    short = "exp.train_steps=700"
    expected = whole("dqn", short)
    interruption = Interruption(monkeypatch, every)
    report = resumed_to_its_end(job("dqn", short), tmp_path / "run", interruption)
    assert facts(report) == expected


def killed(source, folder, number):
    """A copy of a run's folder as a process would have left it that died after checkpoint n."""
    shutil.copytree(source, folder)
    (folder / "summary.json").unlink()
    (folder / "checkpoints" / "final.safetensors").unlink()
    found = checkpoint.folders_of(folder)
    for later in found:
        if checkpoint.number(later) > number:
            shutil.rmtree(later)
    (folder / "checkpoints" / ".writing-99").mkdir()
    return folder


@pytest.mark.parametrize("name", each(JOBS, ("ppo", "dqn")))
def test_a_killed_run_goes_on_from_any_periodic_checkpoint(tmp_path, whole, name):
    expected = whole(name)
    config = job(name, "exp.save_freq=5", "exp.save_keep=1000")
    first = train(config, tmp_path / "first")
    assert facts(first) == expected  # writing them down changes nothing
    saved = [checkpoint.number(f) for f in checkpoint.folders_of(tmp_path / "first")]
    assert len(saved) >= 4
    for number in sorted({saved[0], saved[len(saved) // 2], saved[-2]}):
        folder = killed(tmp_path / "first", tmp_path / f"killed-{number}", number)
        report = train(config, folder)
        assert facts(report) == expected
        assert report.summary["resumes"] == 1
        assert not (folder / "checkpoints" / ".writing-99").exists()


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_a_run_that_was_given_more_episodes_equals_one_that_had_them_at_once(tmp_path, whole, name):
    at_once = train(job(name, "exp.episodes=400"), tmp_path / "at-once")
    train(job(name, "exp.episodes=150"), tmp_path / "in-two")
    in_two = train(job(name, "exp.episodes=400"), tmp_path / "in-two", extend=True)
    assert at_once.summary["status"] == in_two.summary["status"] == "finished"
    assert facts(in_two) == facts(at_once)


def test_rows_of_metrics_go_on_where_they_were(tmp_path, monkeypatch):
    config = job("dqn")
    interruption = Interruption(monkeypatch, 500)
    for _ in range(9):
        report = train(config, tmp_path / "run", row_seconds=0.001)
        if report.summary["status"] == "finished":
            break
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for name in ("env_steps", "updates", "rollout/episodes", "wall_s", "time/time_elapsed"):
        values = [row[name] for row in rows]
        assert values == sorted(values), name
    assert {row["time/resumes"] for row in rows} == set(range(interruption.n + 1))


def test_an_environment_that_cannot_remember_begins_its_episodes_anew_and_that_is_said(
    tmp_path, monkeypatch, capsys
):
    config = load(TASKS / "walk_dqn.py", ["environment.type=walk:Forgetful"])
    interruption = Interruption(monkeypatch, 700)
    report = train(config, tmp_path / "run")
    assert "episodes in progress" not in capsys.readouterr().err
    report = resumed = train(config, tmp_path / "run")
    while report.summary["status"] == "interrupted":
        report = train(config, tmp_path / "run")
    said = capsys.readouterr().err
    assert "the episodes in progress begin anew: the environment has no state()" in said
    assert "resumed from 0001-step-" in said
    assert resumed.summary["resumes"] == 1
    assert report.summary["status"] == "finished"
    assert report.summary["env_steps"] >= 3_000
    lengths = report.summary["episodes"], interruption.n
    assert min(lengths) > 0


def test_fresh_episodes_are_not_the_first_ones_once_more(tmp_path, monkeypatch):
    config = load(TASKS / "walk_dqn.py", ["environment.type=walk:Forgetful"])
    Interruption(monkeypatch, 700)
    train(config, tmp_path / "run")
    saved, _ = checkpoint.newest(tmp_path / "run")
    made = start._try_out(config)
    fresh, resumed = LocalEngine(made), LocalEngine(made, tmp_path / "run", saved)
    assert not np.array_equal(fresh.roles[2].obs["obs"], resumed.roles[2].obs["obs"])


@pytest.mark.parametrize("replay", ["auto", "never"])
def test_samples_are_left_out_where_they_are_not_wanted(tmp_path, monkeypatch, capsys, replay):
    config = job("dqn", f"exp.save_replay={replay}")
    Interruption(monkeypatch, 900)
    train(config, tmp_path / "run")
    saved, _ = checkpoint.newest(tmp_path / "run")
    assert (saved.part("buffer-0.0.store") is None) == (replay == "never")
    assert (saved.manifest["replay"] == "kept") == (replay == "auto")
    train(config, tmp_path / "run")
    said = capsys.readouterr().err
    assert ("the samples were left out: exp.save_replay is 'never'" in said) == (replay == "never")


def test_without_its_samples_a_run_fills_its_store_again_and_keeps_its_balance(
    tmp_path, monkeypatch
):
    config = job("dqn", "exp.save_replay=never")
    interruption = Interruption(monkeypatch, 900)
    report = resumed_to_its_end(config, tmp_path / "run", interruption)
    assert interruption.n == 1 or interruption.n == 2
    assert report.summary["replay_ratio"]["measured"] == pytest.approx(8, rel=0.03)
    assert report.summary["env_steps"] >= 3_000


def test_a_corrupt_checkpoint_is_said_and_the_one_before_it_gives_the_same_end(
    tmp_path, whole, capsys
):
    config = job("dqn", "exp.save_freq=50", "exp.save_keep=1000")
    train(config, tmp_path / "first")
    folder = killed(tmp_path / "first", tmp_path / "run", 4)
    newer = checkpoint.folders_of(folder)[-1]
    data = bytearray((newer / "buffer-0.0.store.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (newer / "buffer-0.0.store.safetensors").write_bytes(data)
    report = train(config, folder)
    said = capsys.readouterr().err
    assert f"{newer.name}/buffer-0.0.store.safetensors is not what was written" in said
    assert "an older one is used" in said
    assert facts(report) == whole("dqn")


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(tmp_path, monkeypatch, whole, capsys):
    expected = whole("dqn")
    config = job("dqn", "exp.save_freq=20")
    monkeypatch.setattr(disk, "FILES", Full(lambda n: 10 <= n <= 20))
    report = train(config, tmp_path / "run")
    assert report.summary["status"] == "finished"
    said, warnings = capsys.readouterr().err, report.summary["warnings"]
    assert warnings
    for warning in warnings:
        assert f"tianji: warning: {warning}" in said
        assert "a checkpoint could not be written: No space left on device" in warning
        assert "training goes on, the newest is still 0001-step-" in warning
    assert facts(report) == expected


class Full(disk.Files):
    """A disk that is full while `is_full(n)`, for its n-th file."""

    def __init__(self, is_full):
        self.is_full = is_full
        self.n = 0

    def write(self, path, pieces):
        self.n += 1
        if self.is_full(self.n):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().write(path, pieces)


def test_a_disk_that_stays_full_is_no_failure_of_the_run(tmp_path, monkeypatch, capsys):
    config = job("dqn", "exp.save_freq=100")
    monkeypatch.setattr(disk, "FILES", Full(lambda n: True))

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("tianji.runs.weights_file._save", refuse)
    report = train(config, tmp_path / "run")
    assert (report.summary["status"], report.exit_status) == ("finished", 0)
    assert any("in no checkpoint" in warning for warning in report.summary["warnings"])
    assert any("final policy" in warning for warning in report.summary["warnings"])
    assert checkpoint.folders_of(tmp_path / "run") == []
    assert "No space left on device" in capsys.readouterr().err


def test_an_environment_that_leaves_is_not_saved_in_the_middle_of_its_step(tmp_path, monkeypatch):
    """`sys.exit` in a step is no order to stop between two rounds."""
    sys.path.insert(0, str(TASKS))
    monkeypatch.setattr("walk.Walk.step", lambda self, action: sys.exit(3))
    with pytest.raises(SystemExit):
        train(job("dqn"), tmp_path / "run")
    assert checkpoint.folders_of(tmp_path / "run") == []
