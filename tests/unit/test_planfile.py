"""The file of a plan: what it sets, and whom it is for."""

import dataclasses
import json

import pytest
from commands import ROOT
from profiles import MACHINE, plan_for, split

from tianji.config import load
from tianji.errors import TianJiError
from tianji.planning import planfile

CONFIGS = ROOT / "configs"
DQN = CONFIGS / "cartpole_dqn.py"


@pytest.fixture
def config():
    return load(DQN, [])


@pytest.fixture
def plan(config):
    return plan_for(config)


def test_a_plan_comes_back_from_its_file(plan, tmp_path):
    planfile.write(plan, tmp_path / "plan.json")
    assert planfile.read(tmp_path / "plan.json") == plan


def test_a_plan_sets_the_keys_of_its_split(plan):
    settings = [f"{key}={value!r}" for key, value in plan.overrides.items()]
    found = load(DQN, settings)
    parallel = found.parallel
    assert (parallel.actor_cfg.num, parallel.actor_cfg.envs, parallel.actor_cfg.cores) == (2, 4, 1)
    assert (parallel.learner_cfg.cores, parallel.buffer_cfg.cores) == (2, None)
    assert found.hyp["LR"] == 0.004


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# TianJi", r"plan.json: this file is no plan: make one with tianji plan CONFIG, and"),
        ("[1]", "this file is no plan: make one with tianji plan CONFIG"),
        ('{"name": "a package"}', "this file is no plan: make one with tianji plan CONFIG"),
        ('{"tianji_plan": 99}', "no plan of this version"),
        ('{"tianji_plan": 1}', "no plan of this version"),
        ('{"tianji_plan": 2}', "damaged"),
    ],
)
def test_what_is_no_plan_is_refused_with_the_way_to_one(text, words, tmp_path):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(TianJiError, match=words):
        planfile.read(tmp_path / "plan.json")
    with pytest.raises(TianJiError, match="make one with tianji plan"):
        planfile.read(tmp_path / "none.json")
    with pytest.raises(TianJiError, match="this is a folder: name the file of a plan"):
        planfile.read(tmp_path)


def test_keys_that_were_edited_are_not_silently_left_out(plan, tmp_path):
    edited = plan.to_json()
    edited["set"]["actor_cfg.num"] = 7
    (tmp_path / "plan.json").write_text(json.dumps(edited))
    with pytest.raises(TianJiError, match="does not follow from the plan's split"):
        planfile.read(tmp_path / "plan.json")
    edited["settings"] = [1]
    (tmp_path / "plan.json").write_text(json.dumps(edited))
    with pytest.raises(TianJiError, match="damaged"):
        planfile.read(tmp_path / "plan.json")


def test_a_plan_for_another_configuration_is_refused(plan):
    other = load(CONFIGS / "cartpole_ppo.py", [])
    with pytest.raises(TianJiError, match="made for another configuration"):
        planfile.check(plan, other, MACHINE, "it")


def test_a_plan_for_other_values_of_its_keys_names_them(plan, tmp_path):
    other = load(DQN, ["hyp.batch_size=64"])
    path = tmp_path / "plan.json"
    planfile.write(plan, path)
    with pytest.raises(
        TianJiError, match=r"\(job: hyp.batch_size was 128 and is 64 now\): make one"
    ):
        planfile.check(planfile.read(path), other, MACHINE, "it")


def test_a_plan_of_an_older_version_that_does_not_know_its_keys_is_read(plan, config, tmp_path):
    plain, path = plan.to_json(), tmp_path / "plan.json"
    del plain["profile"]["work"]["keys"]
    path.write_text(json.dumps(plain))
    older = planfile.read(path)
    assert planfile.check(older, config, MACHINE, "it") == []
    with pytest.raises(TianJiError, match=r"another configuration \(job, or other values of its k"):
        planfile.check(older, load(DQN, ["hyp.batch_size=64"]), MACHINE, "it")


def test_a_plan_for_a_larger_machine_is_refused(plan, config):
    with pytest.raises(TianJiError, match="wants 4 cores and this machine offers 2"):
        planfile.check(plan, config, dataclasses.replace(MACHINE, cores=2), "it")


def test_a_plan_of_another_machine_is_followed_with_a_warning(plan, config):
    assert planfile.check(plan, config, MACHINE, "it") == []
    [words] = planfile.check(plan, config, dataclasses.replace(MACHINE, cpu="other"), "it")
    assert "made on another machine" in words and "other" in words


def test_a_plan_for_another_gpu_is_followed_with_a_warning(plan, config):
    small, large = (dataclasses.replace(MACHINE, gpu=f"GPU of {n} GiB") for n in (8, 80))
    made = dataclasses.replace(plan, profile=dataclasses.replace(plan.profile, machine=small))
    assert planfile.check(made, config, small, "it") == []
    [words] = planfile.check(made, config, large, "it")
    assert "some CPU with GPU of 8 GiB; this one is some CPU with GPU of 80 GiB" in words


def test_cores_that_a_plan_of_a_smaller_machine_leaves_idle_are_counted(plan, config):
    larger = dataclasses.replace(MACHINE, cores=64)
    [words] = planfile.check(plan, config, larger, "it")
    assert "was made on 16 cores and leaves 60 of this machine's 64 cores idle" in words
    assert "tianji plan CONFIG" in words
    [words] = planfile.check(plan, config, larger, "it", hosts=2)
    assert "leaves 62 of" in words
    assert planfile.check(plan, config, larger, "it", hosts=None) == []


def test_a_plan_that_uses_all_cores_is_no_news_wherever_it_was_measured(plan, config):
    large = dataclasses.replace(plan, split=split(actors=62, learner_cores=2))
    assert planfile.check(large, config, dataclasses.replace(MACHINE, cores=64), "it") == []
