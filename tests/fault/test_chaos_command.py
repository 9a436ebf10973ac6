"""`tianji chaos`: real runs under its faults, and its verdict about them."""

import json

import pytest
from commands import TASKS, tianji

pytestmark = [pytest.mark.fault, pytest.mark.process]


def chaos(folder, task, *words, **more):
    """A chaos test of one of the tasks; returns the command and what it wrote."""
    done = tianji("chaos", TASKS / task, "--out", folder, *words, **more)
    return done, json.loads((folder / "chaos.json").read_text())


def test_a_run_that_keeps_its_promises_passes(tmp_path):
    words = ["--faults", "segfault,slow", "--seconds", "1.5", "--every", "0.5", "--seed", "1"]
    done, found = chaos(tmp_path / "out", "echo_dqn.py", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    assert found["held"] and found["faults"]
    assert all(trial["back"] is not None for trial in found["faults"])
    crashed = [t for t in found["faults"] if t["strike"]["fault"] == "segfault"]
    assert crashed and all(t["replaced"] == 1 and t["detected"] <= t["back"] for t in crashed)
    assert found["ending"]["exit_status"] == 143 and found["ending"]["asked"]
    assert "every invariant held." in done.stdout
    assert len(done.stderr.splitlines()) == 1 + len(found["faults"])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("task", ["cartpole_dqn.py", "cartpole_ppo.py"])
def test_every_fault_that_can_be_had_is_survived(tmp_path, task, seed):
    words = ["--seconds", "30", "--every", "1", "--seed", str(seed), "--set", "actor_cfg.num=2"]
    done, found = chaos(tmp_path / "out", task, *words, timeout=500)
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(found["faults"]) >= 3
