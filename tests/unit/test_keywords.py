"""Overrides as Python keywords: the same path, and the same errors, as `--set`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.core.errors import TianJiError

JOB = Path(__file__).parents[1] / "tasks" / "cartpole_dqn.py"


def loaded(**settings: Any) -> Config:
    return load(JOB, as_overrides(settings))


def test_the_options_of_the_command_line_are_keywords() -> None:
    exp = loaded(seed=2, stop_return=300, max_seconds=60, track="wandb").exp
    assert (exp.seed, exp.stop_return, exp.max_seconds, exp.track) == (2, 300.0, 60.0, ("wandb",))


def test_sections_are_dicts_that_add_to_what_the_file_says() -> None:
    config = loaded(hyp=dict(lr=1e-3), exp=dict(train_steps=10_000), actor_cfg=dict(num=2))
    assert config.hyp["LR"] == 1e-3 and config.hyp["batch_size"] == 32
    assert config.exp.train_steps == 10_000
    assert config.parallel.actor_cfg.num == 2 and config.parallel.actor_cfg.send_size == 16


def test_names_may_be_dotted() -> None:
    config = loaded(**{"hyp.lr": 1e-3, "parallel_parameters.actor_cfg.num": 3})
    assert (config.hyp["LR"], config.parallel.actor_cfg.num) == (1e-3, 3)


def test_values_are_those_of_python() -> None:
    config = loaded(
        model=dict(hidden=(32, np.int64(16)), dueling=False, act="tanh"),
        hyp=dict(lr=np.float32(0.5), max_grad_norm=None),
        environment=dict(kwargs=dict(path=PurePosixPath("a/b"), names=["x y", "it's"])),
        learner_cfg=dict(device="cpu"),
    )
    assert config.model.hidden == (32, 16) and config.model.dueling is False
    assert config.hyp["LR"] == 0.5 and config.hyp["max_grad_norm"] is None
    assert config.environment.kwargs == {"path": "a/b", "names": ("x y", "it's")}


def test_a_list_of_dicts_is_a_list_of_sections() -> None:
    config = loaded(environment=dict(wrappers=[dict(type="MonitorEnv")]))
    assert config.environment.wrappers[0].type == "MonitorEnv"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(stop_retrun=3), r"train\(stop_retrun=...\): .*Did you mean 'stop_return'"),
        (dict(max_second=3), "Did you mean 'max_seconds'"),
        (dict(hpy=dict(lr=1)), "Did you mean 'hyp'"),
        (dict(lr=1e-3), r"train\(lr=...\): there is no such option or section. There are: "),
        ({"a=b": 1}, "no such option"),
        (dict(exp=dict(sede=3)), "--set exp.sede: exp has no key 'sede'. Did you mean 'seed'"),
        (dict(seed="two"), "--set exp.seed: exp.seed must be a whole number, found 'two'"),
        (dict(seed=float("nan")), "exp.seed must be a whole number"),
        (dict(seed=object()), "--set exp.seed: cannot read the value"),
        (dict(hyp=3), "hyp must be dict"),
    ],
)
def test_what_is_wrong_is_said_as_on_the_command_line(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TianJiError, match=message):
        loaded(**settings)
