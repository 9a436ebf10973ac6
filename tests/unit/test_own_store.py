"""A third kind of store is a class in a user's file; nobody asks which kind it is."""

import pytest
from commands import TASKS

import tianji
from tianji.config import load
from tianji.strategy.probe.measure import LearnerProbe

GIVEN = (
    "agent.type='own_store:PPOTwice'",
    "hyp.mode='async'",
    "hyp.step_len=8",
    "actor_cfg.envs=4",
    "exp.train_steps=2000",
)


def test_a_store_of_ones_own_trains(tmp_path):
    report = tianji.train(
        TASKS / "cartpole_ppo.py", *GIVEN, engine="local", run_dir=tmp_path / "run"
    )
    assert report.error is None
    assert report.summary["replay_ratio"]["target"] == 2
    assert report.summary["replay_ratio"]["measured"] == pytest.approx(2, rel=0.3)
    assert report.summary["new"] == pytest.approx(0.5, rel=0.2)


def test_its_costs_are_measured_without_a_change_of_it():
    learning = LearnerProbe(load(TASKS / "cartpole_ppo.py", GIVEN)).run(0.05)
    assert learning.updates >= 2
    assert learning.storing > 0


@pytest.mark.parametrize("name", ["Sequences", "Sampling", "Store", "Amount", "trajectory_schema"])
def test_what_it_needs_is_at_the_front_door(name):
    assert name in tianji.__all__
