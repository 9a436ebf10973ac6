"""Policies out of runs, finished or not, out of checkpoints and files; and what is no policy."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import TASKS

import tianji
from tianji.core import checkpoint
from tianji.core.errors import TianJiError
from tianji.runs.weights_file import save_best


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a short run with two checkpoints: each of its ends leaves one."""
    task, ends = TASKS / "walk_ppo.py", ("exp.train_steps=700", "exp.save_keep=2")
    folder = tmp_path_factory.mktemp("trained") / "run"
    tianji.train(task, *ends, engine="local", run_dir=folder)
    return tianji.resume(folder, exp=dict(train_steps=1500)).folder


@pytest.fixture
def run(finished, tmp_path):
    """A copy that a test may spoil."""
    return shutil.copytree(finished, tmp_path / "run")


def parts(run):
    return checkpoint.folders_of(run)


def unfinished(run):
    (run / "checkpoints" / "final.safetensors").unlink()
    (run / "summary.json").unlink()
    return run


def test_a_finished_run_gives_the_policy_that_it_ended_with(run):
    policy, summary = tianji.load(run), json.loads((run / "summary.json").read_text())
    assert (policy.version, policy.env_steps) == (summary["updates"], summary["env_steps"])
    assert policy.act(np.zeros(3, np.float32)).shape == ()


def test_a_policy_says_what_it_is(run):
    policy = tianji.load(run)
    assert repr(policy) == f"Trained(PPO on walk:Walk, {policy.version:,} updates)"


@pytest.mark.parametrize("kind", [str, Path, tianji.load])
def test_a_run_is_evaluated_by_its_folder_or_by_its_policy(run, kind):
    result = tianji.evaluate(kind(run))
    assert len(result.returns) == 20
    assert result.returns[:2] == tianji.evaluate(kind(run), episodes=2).returns


def test_one_run_is_reported_by_its_folder_or_in_a_list(run):
    assert tianji.report(str(run)) == tianji.report(run) == tianji.report([run])


def test_a_configuration_is_no_run():
    assert "cartpole_ppo.py is a configuration file, not a run: " in refusal(
        TASKS / "cartpole_ppo.py"
    )


def test_predict_is_called_act(run):
    with pytest.raises(TianJiError, match=r"use act\("):
        tianji.load(run).predict(np.zeros(3), deterministic=True)


def test_an_unfinished_run_gives_that_of_its_newest_checkpoint(run, finished):
    policy, end = tianji.load(unfinished(run)), tianji.load(finished)
    assert np.array_equal(policy.weights, end.weights)
    shutil.rmtree(parts(run)[-1])
    older = tianji.load(run)
    assert older.version < end.version
    assert older.env_steps == checkpoint.load(parts(run)[-1]).env_steps


def test_a_newest_checkpoint_that_is_corrupt_gives_way_to_the_one_before(run):
    (parts(unfinished(run))[-1] / "learner-0.0.safetensors").write_bytes(b"")
    assert tianji.load(run).version == checkpoint.load(parts(run)[-2]).version


def test_a_checkpoint_says_all_by_itself_wherever_it_lies(run, tmp_path):
    for i, folder in enumerate(parts(run)):
        there = shutil.copytree(folder, tmp_path / "elsewhere" / f"any name {i}")
        policy = tianji.load(there)
        assert policy.version == checkpoint.load(folder).version
        assert policy.config.name == "walk_ppo"


def test_a_file_of_weights_beside_its_run_is_a_policy(run):
    assert (
        tianji.load(run / "checkpoints" / "final.safetensors").version == tianji.load(run).version
    )


def test_the_best_is_that_of_an_evaluation_or_else_of_a_checkpoint(run):
    best = checkpoint.best(run)
    assert tianji.load(run, "best").version == checkpoint.load(best).version
    weights = tianji.load(run).weights + 1
    save_best(run, weights, 3, "PPO", 0.5, 64)
    found = tianji.load(run, which="best")
    assert np.array_equal(found.weights, weights)
    assert (found.version, found.env_steps) == (3, 64)


def refusal(path, which="final"):
    with pytest.raises(TianJiError) as error:
        tianji.load(path, which)
    return str(error.value)


def test_what_is_not_there_is_named(run, tmp_path):
    assert "does not exist" in refusal(tmp_path / "nowhere")
    assert "is not the folder of a run" in refusal(tmp_path / "run" / "logs")
    assert f"name one of {run}" in refusal(tmp_path)
    assert f"name the run, {run}" in refusal(run / "checkpoints")


def test_a_run_that_has_saved_nothing_has_no_policy_yet(run):
    for folder in parts(unfinished(run)):
        shutil.rmtree(folder)
    assert "has no trained policy yet" in refusal(run)
    assert "has no best policy" in refusal(run, "best")
    save_best(run, np.zeros(7, np.float32), 3, "PPO", 0.5, 64)
    assert "--best" in refusal(run)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256", "learner-0.0.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_damaged_checkpoint_is_refused_when_it_is_asked_for(run, name, damage):
    folder = parts(run)[-1]
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 4
    if damage == "missing":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data if damage == "flipped" else data[:-3])
    said = refusal(folder)
    assert folder.name in said and "no trained policy" not in said


@pytest.mark.parametrize("damage", [b"", b"no safetensors", None])
def test_a_damaged_file_of_weights_is_refused(run, damage):
    path = run / "checkpoints" / "final.safetensors"
    flipped = bytearray(path.read_bytes())
    flipped[-1] ^= 1
    path.write_bytes(flipped if damage is None else damage)
    assert "final.safetensors is damaged" in refusal(path)
    with pytest.warns(UserWarning, match="final.safetensors is damaged"):
        policy = tianji.load(run)  # the newest checkpoint's
    assert policy.version == checkpoint.load(parts(run)[-1]).version
    for folder in parts(run):
        shutil.rmtree(folder)
    assert "final.safetensors is damaged" in refusal(run)


def test_weights_of_another_network_are_refused(run):
    save_best(run, np.zeros(7, np.float32), 3, "PPO", 0.5, 64)
    assert "its 7 weights are not the" in refusal(run, "best")


@pytest.mark.parametrize("text", ["", "[]", '{"config": 3}'])
def test_a_config_that_is_not_ours_is_refused(run, text):
    (run / "config.json").write_text(text)
    assert "config.json is missing or not ours" in refusal(run)
