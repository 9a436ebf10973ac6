"""Training and using a policy from Python, as a notebook would."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from commands import ROOT, TASKS, alive, eventually, rows

import tianji
from tianji.core.errors import TianJiError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api") / "run"
    return tianji.train(ROOT / "configs" / "cartpole_ppo.py", seed=2, run_dir=folder)


def test_training_returns_what_the_run_did(report):
    assert report.exit_status == 0
    assert report.solved and report.status == "solved" and report.error is None
    assert report.summary == json.loads((report.folder / "summary.json").read_text())
    assert report.mean_return >= 475 and report.final_time_seconds > 0
    assert [row["env_steps"] for row in report.metrics()][-1] == report.summary["env_steps"]


def test_a_notebook_shows_what_the_command_line_prints(report):
    assert repr(report).startswith("Solved in ")
    assert str(report.folder) in repr(report)
    assert len(repr(report).splitlines()) <= 12


def test_the_trained_policy_plays_well(report):
    policy = report.policy()
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
    with pytest.raises(TianJiError, match=r"'obs'.*float32\[4\].*\[3\]"):
        policy.act(np.zeros(3))


def test_a_folder_without_a_policy_is_named(tmp_path):
    with pytest.raises(TianJiError, match="is not the folder of a run"):
        tianji.load(tmp_path)


def test_importing_the_package_loads_nothing():
    code = "import sys, tianji; print({'numpy', 'torch', 'gymnasium'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
    folder = tmp_path / "run"
    overrides = ("hyp.lr=1e30", "hyp.max_grad_norm=None", "exp.stop_return=1e9")
    report = tianji.train(TASKS / "echo_ppo.py", *overrides, run_dir=folder)
    assert report.exit_status == 2 and not report.solved
    assert "at update" in report.error and "at update" in str(report)


def test_an_engine_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TianJiError, match="'Local'"):
        tianji.train(TASKS / "echo_ppo.py", engine="Local", run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_config_chooses_the_engine_as_on_the_command_line(tmp_path):
    options = ("global_cfg.use_comm_parallel=False", "exp.train_steps=600", "exp.stop_return=1e9")
    report = tianji.train(TASKS / "echo_ppo.py", *options, run_dir=tmp_path / "run")
    assert report.summary["engine"] == "local"


def test_training_works_beside_the_main_thread(tmp_path):
    folder, done = tmp_path / "run", []
    options = ("exp.max_seconds=0.5", "exp.stop_return=1e9")
    thread = threading.Thread(
        target=lambda: done.append(tianji.train(TASKS / "echo_ppo.py", *options, run_dir=folder))
    )
    thread.start()
    thread.join()
    assert done[0].summary["status"] == "stopped"


def test_keywords_are_overrides(tmp_path):
    report = tianji.train(
        TASKS / "echo_ppo.py",
        engine="local",
        run_dir=tmp_path / "run",
        seed=3,
        stop_return=1e9,
        exp=dict(train_steps=1_000),
        hyp=dict(lr=1e-3),
        **{"actor_cfg.num": 1},
    )
    written = json.loads((report.folder / "config.json").read_text())
    assert (written["seed"], written["hyp"]["lr"]) == (3, 1e-3)
    assert written["config"]["parallel"]["actor_cfg"]["num"] == 1
    assert report.status == "finished"


def test_a_misspelt_keyword_gets_the_nearest_one(tmp_path):
    with pytest.raises(TianJiError, match="Did you mean 'stop_return'"):
        tianji.train(TASKS / "echo_ppo.py", run_dir=tmp_path / "run", stop_retrun=3)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("stdin", ["closed", pytest.param("null", marks=pytest.mark.slow)])
def test_a_process_like_a_notebooks_trains_as_often_as_it_likes(tmp_path, child_env, stdin):
    child = [sys.executable, str(Path(__file__).with_name("notebook_child.py")), str(tmp_path)]
    command = ["sh", "-c", '"$@" <&-', "sh", *child] if stdin == "closed" else child
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=child_env,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said["statuses"]) == 6 and set(said["statuses"].values()) == {"stopped"}
    assert "updates" in said["shown"]
    assert done.stderr == ""


INTERRUPTED = """
import sys, tianji
report = tianji.train(sys.argv[1], run_dir=sys.argv[2], stop_return=1e9)
print(report.status, report.exit_status)
"""


def test_an_interrupted_cell_still_gets_its_report(tmp_path, child_env):
    folder = tmp_path / "run"
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(TASKS / "cartpole_ppo.py"), str(folder)],
        stdout=subprocess.PIPE,
        env=child_env,
        text=True,
    )
    try:
        eventually(lambda: rows(folder), what="the first row")
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
    finally:
        child.kill()
    assert out.split() == ["interrupted", "130"]
    assert child.returncode == 0 and not alive(child.pid)


SNIPPET = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_snippets_of_the_page_run_one_after_the_other(tmp_path, child_env):
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    script = tmp_path / "page.py"
    script.write_text("\n".join(SNIPPET.findall(page)), encoding="utf-8")
    os.symlink(ROOT / "configs", tmp_path / "configs")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=child_env,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    assert "Solved in " in done.stdout
