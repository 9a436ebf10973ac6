"""Settings under which training would stand still are refused before it starts."""

import pytest
from commands import ROOT

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.job.factory import make_env
from tianji.job.job import prepare


def prepared(*overrides):
    config = load(ROOT / "configs" / "cartpole_ppo.py", overrides)
    return prepare(config, make_env(config).spec)


def test_synchronous_training_must_publish_every_update():
    with pytest.raises(TianJiError, match="publishes after every update"):
        prepared("learner_cfg.send_interval=2")


def test_weights_must_be_published_within_the_lag_that_is_allowed():
    with pytest.raises(TianJiError, match="more than the 2 that a rollout may be behind"):
        prepared("hyp.mode=async", "hyp.max_lag=2", "learner_cfg.send_interval=3")
    assert prepared("hyp.mode=async", "hyp.max_lag=3", "learner_cfg.send_interval=3")
