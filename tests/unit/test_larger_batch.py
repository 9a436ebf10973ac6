"""`--batch-scale`: what grows with a batch, and what stays."""

import pytest

from tianji import config as configs
from tianji.core.errors import TianJiError
from tianji.strategy.probe.larger_batch import DEFAULT, scaled, scaling_keys


@pytest.fixture
def keys(root):
    def scaled(file, *overrides, factor=4, rule=DEFAULT):
        return scaling_keys(configs.load(root / file, list(overrides)), factor, rule)

    return scaled


def test_an_optimiser_step_learns_from_more_and_an_update_makes_as_many_as_before(keys):
    found = keys("configs/cartpole_ppo.py")
    rates = {"hyp.lr": 0.02, "hyp.lr_final": 0.002, "hyp.lr_decay": 38}
    assert found == {"actor_cfg.envs": 256, "hyp.minibatch": 4096, **rates}
    samples = 32 * found["actor_cfg.envs"]
    assert samples / found["hyp.minibatch"] == 32 * 64 / 1024


def test_rollouts_that_are_counted_are_multiplied(keys):
    found = keys("configs/cartpole_ppo.py", "hyp.batch_size=2")
    rates = {"hyp.lr": 0.02, "hyp.lr_final": 0.002, "hyp.lr_decay": 38}
    assert found == {"hyp.batch_size": 8, "hyp.minibatch": 4096, **rates}
    found = keys("configs/cartpole_ppo.py", "hyp.batch_size=2", "hyp.buffer_size=6")
    assert (found["hyp.batch_size"], found["hyp.buffer_size"]) == (8, 24)


def test_a_pool_of_rollouts_grows_with_the_environments_of_each(keys):
    found = keys("configs/cartpole_ppo.py", "hyp.buffer_size=3")
    assert found["actor_cfg.envs"] == 256 and "hyp.buffer_size" not in found


@pytest.mark.parametrize(("rule", "times"), [("sqrt", 2.0), ("linear", 4.0)])
def test_the_end_of_a_falling_learning_rate_follows_its_beginning(keys, rule, times):
    found = keys("tests/tasks/walk_ppo.py", rule=rule)
    assert found["hyp.lr"] == pytest.approx(5e-3 * times)
    assert found["hyp.lr_final"] == pytest.approx(5e-4 * times)


def test_a_learning_rate_falls_over_as_many_samples_as_before(keys):
    for rule in ("none", "linear"):
        assert keys("tests/tasks/walk_ppo.py", factor=3, rule=rule)["hyp.lr_decay"] == 10


def test_a_learning_rate_may_stay_as_it_is(keys):
    found = keys("configs/cartpole_dqn.py", rule="none")
    assert found == {"hyp.batch_size": 512, "hyp.buffer_size": 200_000}


def test_the_same_batch_changes_nothing(keys):
    assert keys("configs/cartpole_ppo.py", factor=1) == {}


OWN = """
from dataclasses import dataclass
from tianji.algorithms.dqn import DQN

@dataclass(frozen=True)
class Hyp:
    batch_size: int = 32
    capacity: int = 1000

class Own(DQN):
    Hyp = Hyp
"""


def test_what_cannot_be_multiplied_is_named(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "job.py").write_text(
        "environment = dict(type='GymEnv', gym_name='CartPole-v1')\nagent = dict(type='own:Own')\n"
    )
    config = configs.load(tmp_path / "job.py", [])
    with pytest.raises(TianJiError, match=r"own:Own has no hyp.buffer_size, so batch and pool"):
        scaling_keys(config, 2, "none")


@pytest.mark.parametrize(
    ("name", "overrides", "found"),
    [
        ("cartpole_dqn", [], {"batch_size": 512, "buffer_size": 50_000}),
        ("cartpole_ppo", [], {"minibatch": 4096}),
        ("cartpole_ppo", ["hyp.batch_size=2"], {"minibatch": 4096, "batch_size": 8}),
    ],
)
def test_a_larger_batch_is_measured_with_the_same_pool(root, name, overrides, found):
    config = configs.load(root / f"configs/{name}.py", overrides)
    larger = scaled(config, 4)
    assert {key: larger.hyp[key] for key in found} == found
    by_envs = name == "cartpole_ppo" and not overrides
    assert larger.parallel.actor_cfg.envs == config.parallel.actor_cfg.envs * (4 if by_envs else 1)


def test_a_key_is_multiplied_however_it_was_written(tmp_path, root):
    text = (root / "configs/cartpole_dqn.py").read_text().replace("batch_size=", "BATCH_SIZE=")
    (tmp_path / "loud.py").write_text(text)
    assert scaled(configs.load(tmp_path / "loud.py", []), 2).hyp["BATCH_SIZE"] == 256
