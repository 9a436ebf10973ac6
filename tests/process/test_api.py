"""Training and using a policy from Python, as a notebook would."""

import subprocess
import sys
import threading

import gymnasium
import numpy as np
import pytest
from commands import ROOT, TASKS

import tianji
from tianji.errors import TianJiError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api") / "run"
    return tianji.train(ROOT / "configs" / "cartpole_ppo.py", "exp.seed=2", run_dir=folder)


def test_training_returns_what_the_run_did(report):
    assert report.exit_status == 0
    assert report.summary["status"] == "solved"
    assert (report.folder / "summary.json").exists()


def test_the_trained_policy_plays_well(report):
    policy = tianji.load(report.folder)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
        total, ended = total + reward, terminated or truncated
    env.close()
    assert total > 300
    assert policy.version == report.summary["updates"]


def test_several_observations_are_acted_on_at_once(report):
    policy = tianji.load(report.folder)
    stack = np.random.default_rng(0).normal(size=(5, 4))
    assert policy.act(stack).tolist() == [policy.act(row).item() for row in stack]
    with pytest.raises(TianJiError, match=r"want an observation of float32\[4\]"):
        policy.act(np.zeros(3))


def test_a_folder_without_a_policy_is_named(tmp_path):
    with pytest.raises(TianJiError, match="holds no trained policy"):
        tianji.load(tmp_path)


def test_importing_the_package_loads_nothing():
    code = "import sys, tianji; print({'numpy', 'torch', 'gymnasium'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    folder = tmp_path / "run"
    overrides = ("hyp.lr=1e30", "hyp.max_grad_norm=None", "exp.stop_return=1e9")
    report = tianji.train(TASKS / "echo_ppo.py", *overrides, run_dir=folder)
    assert report.exit_status == 2
    assert "at update" in report.summary["error"]


def test_an_engine_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TianJiError, match="'Local'"):
        tianji.train(TASKS / "echo_ppo.py", engine="Local", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_config_chooses_the_engine_as_on_the_command_line(tmp_path):
    options = ("global_cfg.use_comm_parallel=False", "exp.train_steps=600", "exp.stop_return=1e9")
    report = tianji.train(TASKS / "echo_ppo.py", *options, run_dir=tmp_path / "run")
    assert report.summary["engine"] == "local"
    assert report.summary["wall_seconds"] < 60


def test_training_works_beside_the_main_thread(tmp_path):
    folder, done = tmp_path / "run", []
    options = ("exp.max_seconds=0.5", "exp.stop_return=1e9")
    thread = threading.Thread(
        target=lambda: done.append(tianji.train(TASKS / "echo_ppo.py", *options, run_dir=folder))
    )
    thread.start()
    thread.join()
    assert done[0].summary["status"] == "stopped"
