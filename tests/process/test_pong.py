"""The preset for Pong on two cores trains as it stands, but for its size."""

import re

import pytest
from commands import ROOT, rows, train

pytestmark = pytest.mark.process

SMALL = ("actor_cfg.envs=8", "hyp.step_len=32", "exp.max_step=250", "exp.train_steps=8000")


def test_pong_on_two_cores_produces_learns_and_tells_score_and_number_format(tmp_path):
    pytest.importorskip("ale_py")
    options = [word for each in SMALL for word in ("--set", each)]
    done = train(ROOT / "configs" / "atari" / "pong_laptop.py", tmp_path / "run", *options)
    assert done.status == 0, done.err
    log = (tmp_path / "run" / "logs" / "learner-0.0.log").read_text()
    assert re.search("^updates compute in (float32|bfloat16)", log, re.MULTILINE)
    s = done.summary
    assert s["status"] == "finished"
    assert s["produced"] >= 8000 and s["updates"] >= 30 and s["production_per_second"] > 0
    assert s["episodes"] >= 24 and -21 <= s["mean_return_100"] <= 21
    assert s["learned_return_100"] == s["mean_return_100"]  # Pong has no lives, its points are 1
    last = rows(tmp_path / "run")[-1]
    assert last["rollout/learned_return"] == pytest.approx(s["learned_return_100"])
    assert last["rollout/ep_rew_mean"] == pytest.approx(s["mean_return_100"])
