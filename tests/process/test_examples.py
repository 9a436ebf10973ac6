"""Every example trains from the command line, as a newcomer would start it."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


@pytest.fixture
def train(root, child_env, tmp_path):
    def run(example, *options):
        command = [sys.executable, "-m", "tianji", "train", str(root / "examples" / example)]
        command += ["--run-dir", str(tmp_path / "run"), "--max-seconds", "200", *options]
        ended = subprocess.run(
            command, env=child_env, cwd=tmp_path, capture_output=True, text=True, timeout=250
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads((tmp_path / "run" / "summary.json").read_text()), tmp_path / "run"

    return run


@pytest.mark.parametrize("engine", ["local", "process"])
@pytest.mark.parametrize("example", ["own_environment_config.py", "own_algorithm_config.py"])
def test_the_example_is_solved_in_either_engine(train, example, engine):
    summary, _ = train(example, "--engine", engine)
    assert summary["status"] == "solved"
    assert summary["engine"] == engine


def test_parts_of_ones_own_are_used(train):
    summary, folder = train("own_parts_config.py", "--stop-return", "60")
    assert summary["status"] == "solved"
    actor, learner = summary["roles"]["actor-0.0"], summary["roles"]["learner-0.0"]
    assert actor["pushed"] > actor["produced"] / 64, "pushed before trajectories were full"
    assert learner["pushed"] < summary["updates"], "published less often than updated"
    log = (folder / "logs" / "actor-0.0.log").read_text()
    assert f"trajectories actor-0.0: {actor['pushed']:,} messages" in log
