"""A slow side of a run paces the other: memory and staleness stay bounded, and the run says why."""

import pytest
from commands import TASKS, train

pytestmark = [pytest.mark.fault, pytest.mark.process]

SLOW = """

class Slow(Echo):
    def step(self, action):
        time.sleep(0.002)
        return super().step(action)
"""
SECONDS = ("--max-seconds", "1.5", "--set", "exp.stop_return=1e9", "--set", "exp.train_steps=10**9")


def test_a_slow_learner_paces_the_actors_and_the_run_says_so(tmp_path):
    options = ("--set", "global_cfg.replay_ratio=64", "--set", "model.hidden=[512, 512]")
    done = train(TASKS / "echo_dqn.py", tmp_path / "run", *SECONDS, *options)
    assert done.status == 0, done.err
    found = done.summary
    assert found["bottleneck"].startswith("training-bound: the actors wait")
    assert found["roles"]["actor-0.0"]["refused"] > 0
    assert found["produced"] - found["received"] <= 3 * 64  # of 16 steps in 4 environments each
    assert found["staleness"]["max"] <= found["updates"] and found["dropped"] == 0


def test_slow_environments_do_not_make_the_learner_learn_more_often(tmp_path):
    (tmp_path / "echo.py").write_text((TASKS / "echo.py").read_text() + SLOW)
    config = tmp_path / "slow.py"
    config.write_text((TASKS / "echo_dqn.py").read_text().replace("echo:Echo", "echo:Slow"))
    done = train(config, tmp_path / "run", *SECONDS)
    assert done.status == 0, done.err
    found = done.summary
    assert found["bottleneck"].startswith("sample-bound: the learner idles")
    assert found["consumed"] <= (found["received"] - 64) * 8
    assert found["replay_ratio"]["measured"] <= 8.0
