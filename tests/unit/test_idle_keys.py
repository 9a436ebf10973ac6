"""Keys that are right but have no effect beside others: each is told in one line."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from commands import TASKS

import tianji
from tianji.config import bind, key, load
from tianji.config.binder import facts_of
from tianji.config.keys import (
    ACTOR_CRITICS,
    ALGORITHMS,
    DUELLING,
    AgentConfig,
    ExpConfig,
    ModelConfig,
)
from tianji.config.loader import resolve
from tianji.config.parallel import WITHOUT_STEP_LEN, ActorConfig
from tianji.config.reader import parse
from tianji.config.section import Place, Section
from tianji.core.algorithm import Algorithm
from tianji.core.errors import TianJiError
from tianji.job.job import BUILT_IN, load_algorithm
from tianji.job.preflight import try_out


@dataclass(frozen=True)
class Hyp:
    """Of an algorithm whose keys depend on each other."""

    mode: Literal["sync", "async"] = "sync"
    decay: int | None = None
    final: float = key(0.0, "after decay", needs={"decay": ...})
    lag: int = key(1, "of async", needs={"mode": ("async",)})
    layers: int = key(2, "of a CNN", needs={"model.type": ("CNN", "ResNet")})


def told(values: dict[str, Any], **others: Any) -> list[str]:
    notices: list[str] = []
    bind(Hyp, Section(values, Place("a.py", 3)), "hyp", notices, others)
    return notices


@pytest.mark.parametrize(
    ("values", "needed"),
    [
        ({"final": 0.1}, "decay"),
        ({"lag": 3}, "mode='async', and that is 'sync'"),
        ({"lag": 1}, "mode='async', and that is 'sync'"),  # what it would be anyway, but in vain
        ({"layers": 3}, "model.type='CNN' or 'ResNet', and that is 'MLP'"),
    ],
)
def test_a_key_that_lacks_what_it_needs_is_told_with_what_that_is(
    values: dict[str, Any], needed: str
) -> None:
    (word,) = values
    want = f"a.py:3: hyp.{word} has no effect here: it needs {needed}"
    assert told(values, model=ModelConfig()) == [want]


@pytest.mark.parametrize(
    "values", [{}, {"final": 0.1, "decay": 5}, {"lag": 3, "mode": "async"}, {"decay": None}]
)
def test_a_key_that_has_what_it_needs_is_not_told(values: dict[str, Any]) -> None:
    assert told(values, model=ModelConfig()) == []


def test_what_is_not_known_or_ones_own_is_not_judged() -> None:
    assert told({"layers": 3}) == []
    assert told({"layers": 3}, model=ModelConfig(type="nets:Mine")) == []


def hyp_of(name: str) -> type[Any]:
    algorithm = class_of(name)
    return algorithm.Hyp


def class_of(name: str) -> type[Algorithm]:
    module, _, word = BUILT_IN[name].partition(":")
    found: type[Algorithm] = getattr(importlib.import_module(module), word)
    return found


KINDS = [ExpConfig, ModelConfig, ActorConfig, *map(hyp_of, ALGORITHMS)]
OTHERS = {"agent": AgentConfig, "model": ModelConfig}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_a_key_needs_is_a_key(kind: type[Any]) -> None:
    for field in dataclasses.fields(kind):
        for path in facts_of(field).needs:
            section, _, name = path.rpartition(".")
            owner = OTHERS[section] if section else kind
            assert name in {each.name for each in dataclasses.fields(owner)}, (field.name, path)


TASKS_OF = ("gym_name='CartPole-v1'", "gym_name='Pendulum-v1'", "type='MatrixGameEnv'")
MODELS = ("MLP", "GRU")


def n_weights_of(name: str, **model: Any) -> int:
    """Of the policy, in the first task and with the first network that the algorithm takes."""
    for task, kind in itertools.product(TASKS_OF, MODELS):
        written = ", ".join(f"{key}={value!r}" for key, value in {"type": kind, **model}.items())
        text = f"environment = dict({task})\nagent = dict(type={name!r})\nmodel = dict({written})"
        try:
            job = try_out(resolve(parse(text, "a.py"), (), "a", "."))
        except TianJiError:
            continue
        return job.algorithm.n_weights(job.task)
    raise AssertionError(f"{name} takes none of these tasks")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_lists_of_algorithms_are_right(name: str) -> None:
    own_length = "rollout_length" in {n for c in class_of(name).__mro__[:-3] for n in vars(c)}
    assert own_length == (name not in WITHOUT_STEP_LEN)
    for key_, names in (("dueling", DUELLING), ("shared", ACTOR_CRITICS)):
        sizes = {n_weights_of(name, **{key_: value}) for value in (True, False)}
        assert (len(sizes) == 2) == (name in names), key_


def test_sections_tell_too() -> None:
    given = ["model.convs=[[8,3,1]]", "exp.eval_times=5", "model.dueling=True", "model.gru=3"]
    notices = load(TASKS / "cartpole_ppo.py", given).notices
    about = [line.split(" has no effect")[0].rpartition(" ")[2] for line in notices]
    assert sorted(about) == ["exp.eval_times", "model.convs", "model.dueling", "model.gru"]
    assert load(TASKS / "cartpole_dqn.py", ["model.dueling=True"]).notices == ()


def test_trajectories_have_the_algorithms_own_length_and_say_so() -> None:
    (notice,) = load(TASKS / "cartpole_ppo.py", ["actor_cfg.send_size=8"]).notices
    assert "actor_cfg.send_size has no effect here: it needs agent.type=" in notice
    assert load(TASKS / "cartpole_dqn.py", ["actor_cfg.send_size=8"]).notices == ()


@pytest.mark.parametrize(
    ("task", "given", "name"),
    [
        ("cartpole_dqn.py", "hyp.alpha=0.7", "hyp.alpha"),
        ("cartpole_dqn.py", "hyp.v_max=100", "hyp.v_max"),
        ("cartpole_ppo.py", "hyp.correction='none'", "hyp.correction"),
        ("cartpole_ppo.py", "hyp.max_lag=3", "hyp.max_lag"),
        ("cartpole_ppo.py", "hyp.weight_cap=3", "hyp.weight_cap"),
    ],
)
def test_an_algorithms_idle_key_is_told_by_the_job(task: str, given: str, name: str) -> None:
    (notice,) = try_out(load(TASKS / task, [given])).notices
    assert f"{name} has no effect here: " in notice
    assert load_algorithm(load(TASKS / task, [given]))  # a worker says nothing


def test_it_is_told_when_a_run_starts(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    tianji.train(
        TASKS / "cartpole_dqn.py",
        "hyp.alpha=0.7",
        engine="local",
        run_dir=tmp_path / "run",
        exp={"train_steps": 64},
    )
    said = capsys.readouterr().err
    assert said.count("hyp.alpha has no effect here") == 1
