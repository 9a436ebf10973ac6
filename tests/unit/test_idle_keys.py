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
from tianji.config.builtin_algorithms import ALGORITHMS, USES
from tianji.config.keys import AgentConfig, ExpConfig, ModelConfig
from tianji.config.loader import resolve
from tianji.config.parallel import ActorConfig
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
    either: int = key(2, "of two", needs={"mode or lag": ("async", 7)})


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
        ({"either": 3}, "mode or lag='async' or 7"),
    ],
)
def test_a_key_that_lacks_what_it_needs_is_told_with_what_that_is(
    values: dict[str, Any], needed: str
) -> None:
    (word,) = values  # of a section with nothing else
    want = f"a.py:3: hyp.{word} has no effect here: it needs {needed}"
    assert told(values, model=ModelConfig()) == [want]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"final": 0.1, "decay": 5},
        {"lag": 3, "mode": "async"},
        {"decay": None},
        {"either": 3, "mode": "async"},
    ],
)
def test_a_key_that_has_what_it_needs_is_not_told(values: dict[str, Any]) -> None:
    assert told(values, model=ModelConfig()) == []


def test_what_is_not_known_or_ones_own_is_not_judged() -> None:
    assert told({"layers": 3}) == []
    assert told({"layers": 3}, model=ModelConfig(type="nets:Mine")) == []
    mine = {"agent": AgentConfig(type="algs:Mine"), "model": ModelConfig(type="nets:Mine")}
    assert told({"layers": 3}, **mine) == []


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
        for path in (each for paths in facts_of(field).needs for each in paths.split(" or ")):
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
    assert own_length == ("send_size" not in USES[name])
    for key_ in ("dueling", "shared", "norm"):
        sizes = {n_weights_of(name, **{key_: value}) for value in (True, False)}
        assert (len(sizes) == 2) == (key_ in USES[name]), key_


def test_sections_tell_too() -> None:
    given = ["model.convs=[[8,3,1]]", "exp.eval_times=5", "model.dueling=True", "model.gru=3"]
    notices = load(TASKS / "cartpole_ppo.py", given).notices
    about = [line.split(" has no effect")[0].rpartition(" ")[2] for line in notices]
    assert sorted(about) == ["exp.eval_times", "model.convs", "model.dueling", "model.gru"]
    assert load(TASKS / "cartpole_dqn.py", ["model.dueling=True"]).notices == ()


def idle(task: str, *given: str) -> list[str]:
    """The keys of which loading says that they have no effect."""
    notices = load(TASKS / task, list(given)).notices
    return sorted(line.split(" has no effect")[0].rpartition(" ")[2] for line in notices)


FOR_OURS = ("hidden=[32]", "act='tanh'", "norm=True", "gru=3", "convs=[[8,3,1]]", "dueling=True")


@pytest.mark.parametrize("key", [*FOR_OURS, "precision='float32'"])
def test_what_a_network_of_ones_own_is_not_told_has_no_effect(key: str) -> None:
    given = ["model.type='nets:Mine'", f"model.{key}"]
    said = idle("cartpole_dqn.py", *given)
    if key == "hidden=[32]" or "act" in key:
        said = sorted({*said})  # both are in the file, too
    assert f"model.{key.partition('=')[0]}" in said
    assert idle("cartpole_dqn.py", "agent.type='algs:Mine'", *given) == []


def test_keys_of_a_network_of_ones_own_are_for_such_a_network() -> None:
    assert idle("cartpole_ppo.py", "model.kwargs=dict(width=3)") == ["model.kwargs"]
    own = ("model.type='nets:Mine'", "model.kwargs=dict(width=3)", "model.depth=3")
    assert "model.kwargs" not in idle("cartpole_ppo.py", *own)


def test_fusion_needs_several_groups() -> None:
    given = ("learner_cfg.send_root_interval=3",)
    assert idle("cartpole_ppo.py", *given) == ["learner_cfg.send_root_interval"]
    assert idle("cartpole_ppo.py", *given, "global_cfg.group_num=2") == []


@pytest.mark.parametrize("word", ["norm", "act"])
def test_what_agents_networks_do_not_have_is_told(word: str) -> None:
    value = {"norm": True, "act": "'tanh'"}[word]
    said = idle("two_step_qmix.py", f"model.{word}={value}")
    assert (f"model.{word}" in said) == (word == "norm")


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
        ("cartpole_ppo.py", "hyp.normalise_updates=3", "hyp.normalise_updates"),
    ],
)
def test_an_algorithms_idle_key_is_told_by_the_job(task: str, given: str, name: str) -> None:
    (notice,) = try_out(load(TASKS / task, [given])).notices
    assert f"{name} has no effect here: " in notice
    assert load_algorithm(load(TASKS / task, [given]))  # a worker says nothing


def test_one_normaliser_is_enough() -> None:
    given = ["hyp.normalise_updates=3", "hyp.normalise_reward=True"]
    assert try_out(load(TASKS / "cartpole_ppo.py", given)).notices == ()


@pytest.mark.parametrize(
    "key", ["global_cfg.transport", "learner_cfg.trigger", "actor_cfg.trigger"]
)
def test_a_class_that_is_not_there_is_refused_before_anything_starts(key: str) -> None:
    with pytest.raises(TianJiError, match=f"{key}: .*nix"):
        try_out(load(TASKS / "cartpole_ppo.py", [f"{key}='nix:Nada'"]))


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


def test_a_minibatch_that_is_larger_than_a_batch_is_told_if_it_was_written() -> None:
    few = ["actor_cfg.num=2", "actor_cfg.envs=4", "hyp.step_len=16"]

    def said(*overrides: str) -> list[str]:
        notices = try_out(load(TASKS / "cartpole_ppo.py", [*few, *overrides])).notices
        return [notice for notice in notices if "minibatch" in notice]

    (notice,) = said("hyp.minibatch=129")
    assert "hyp.minibatch=129 is more than the 128 samples of a batch" in notice
    assert said("hyp.minibatch=128") == said("hyp.minibatch=default") == []
