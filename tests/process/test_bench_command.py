"""`tianji bench` as a user would start it, with runs of a second."""

import json
import os
import subprocess
import sys

import pytest
from commands import ROOT

pytestmark = pytest.mark.process

CONFIG = ROOT / "configs" / "cartpole_ppo.py"


def bench(folder, env, *more):
    words = [sys.executable, "-m", "tianji", "bench", str(CONFIG), "--engine", "local"]
    words += ["--out", str(folder), "--set", "exp.train_steps=2000", *more]
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=100)


@pytest.mark.slow
def test_two_seeds_are_trained_and_kept_when_a_third_is_wanted(tmp_path, child_env):
    folder = tmp_path / "out"
    first = bench(folder, child_env, "--seeds", "1-2")
    assert first.returncode == 0, first.stderr
    before = json.loads((folder / "bench.json").read_text())["runs"]
    assert [run["seed"] for run in before] == [1, 2]
    assert all(run["steps_per_second"] > 0 and run["env_steps"] >= 2_000 for run in before)
    assert before[0]["mean_return"] != before[1]["mean_return"]
    made = os.stat(folder / "seed-1" / "summary.json").st_mtime_ns
    assert bench(folder, child_env, "--seeds", "1-3").returncode == 0
    after = json.loads((folder / "bench.json").read_text())
    assert after["runs"][:2] == before and after["all"]["seeds"] == 3
    assert os.stat(folder / "seed-1" / "summary.json").st_mtime_ns == made
    assert [path.name for path in folder.glob("*.txt")] == []


def test_a_mistake_in_the_configuration_is_the_users(tmp_path, child_env):
    done = bench(tmp_path / "out", child_env, "--set", "hyp.nothing=1")
    assert done.returncode == 2 and "nothing" in done.stderr
    assert not (tmp_path / "out").exists()
