"""The file of a plan: what it sets, and whom it is for."""

import dataclasses
import json

import pytest
from commands import ROOT
from profiles import MACHINE, plan_for, split

from tianji.config import load
from tianji.core.errors import TianJiError
from tianji.strategy.plan import plan_file

CONFIGS = ROOT / "configs"
DQN = CONFIGS / "cartpole_dqn.py"


@pytest.fixture
def config():
    return load(DQN, [])


@pytest.fixture
def plan(config):
    return plan_for(config)


def test_a_plan_comes_back_from_its_file(plan, tmp_path):
    plan_file.write(plan, tmp_path / "plan.json")
    assert plan_file.read(tmp_path / "plan.json") == plan


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
        plan_file.read(tmp_path / "plan.json")
    with pytest.raises(TianJiError, match="make one with tianji plan"):
        plan_file.read(tmp_path / "none.json")
    with pytest.raises(TianJiError, match="this is a folder: name the file of a plan"):
        plan_file.read(tmp_path)


def test_keys_that_were_edited_are_not_silently_left_out(plan, tmp_path):
    edited = plan.to_json()
    edited["set"]["actor_cfg.num"] = 7
    (tmp_path / "plan.json").write_text(json.dumps(edited))
    with pytest.raises(TianJiError, match="does not follow from the plan's split"):
        plan_file.read(tmp_path / "plan.json")
    edited["settings"] = [1]
    (tmp_path / "plan.json").write_text(json.dumps(edited))
    with pytest.raises(TianJiError, match="damaged"):
        plan_file.read(tmp_path / "plan.json")


def write_with(plan, path, value, file):
    """Writes a plan with another value of one of its keys."""
    plain = plan.to_json()
    *parents, last = path.split(".")
    place = plain
    for name in parents:
        place = place[int(name) if isinstance(place, list) else name]
    place[last] = value
    file.write_text(json.dumps(plain))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("split.hosts", 1.5),
        ("split.batch", True),
        ("split.one_core", 0),
        ("split.groups", 0),
        ("split.actors", -1),
        ("split.envs", "4"),
        ("profile.load_seconds", []),
        ("profile.unevenness", -5),
        ("profile.unevenness", 2.5),
        ("profile.machine.gpu", 3),
        ("profile.machine.cores", 0),
        ("profile.work.keys", "none"),
        ("profile.work.batch", 0),
        ("profile.work.ratio", 0),
        ("profile.actors", []),
        ("profile.actors.0.envs", "4"),
        ("profile.actors.0.step_seconds", 0.0),
        ("profile.actors.0.computing", 1.5),
        ("profile.learners", []),
        ("profile.learners.0.update_seconds", -1),
        ("profile.learners.0.draw_seconds", -0.1),
        ("profile.learners.2.contention", 0),
        ("profile.learners.1.on_gpu", [[2, "x"]]),
        ("profile.learners.1.on_gpu", [[2, -1.0]]),
        ("profile.learners.1.on_gpu", [[2]]),
        ("env_scale", 0),
        ("env_scale", "2"),
    ],
)
def test_a_value_that_nobody_can_have_measured_is_damage(plan, path, value, tmp_path):
    """Costs of zero or less ended in a division by them, or in a plan that made no sense."""
    write_with(plan, path, value, tmp_path / "plan.json")
    name = path.rpartition(".")[2]
    with pytest.raises(TianJiError, match=rf"plan.json: .*{name}.*: this plan is damaged"):
        plan_file.read(tmp_path / "plan.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_without_end_is_damage(plan, value, tmp_path):
    write_with(plan, "profile.learners.0.update_seconds", value, tmp_path / "plan.json")
    with pytest.raises(TianJiError, match=r"plan.json: .*: this plan is damaged"):
        plan_file.read(tmp_path / "plan.json")


def test_what_is_predicted_follows_from_the_costs_whatever_a_file_says(plan, tmp_path):
    write_with(plan, "predicted.production", "25118", tmp_path / "plan.json")
    assert plan_file.read(tmp_path / "plan.json").prediction == plan.prediction


def test_learners_that_share_a_gpu_come_back_from_a_file(plan, tmp_path):
    learners = [dataclasses.replace(cost, on_gpu=((2, 1.5),)) for cost in plan.profile.learners]
    costs = dataclasses.replace(plan.profile, learners=tuple(learners))
    plan_file.write(dataclasses.replace(plan, profile=costs), tmp_path / "plan.json")
    assert plan_file.read(tmp_path / "plan.json").profile == costs


def test_whole_numbers_are_numbers(plan, tmp_path):
    write_with(plan, "profile.load_seconds", 1, tmp_path / "plan.json")
    assert plan_file.read(tmp_path / "plan.json").profile.load_seconds == 1.0


def test_a_plan_for_another_configuration_is_refused(plan):
    other = load(CONFIGS / "cartpole_ppo.py", [])
    with pytest.raises(TianJiError, match="made for another configuration"):
        plan_file.check(plan, other, MACHINE, "it")


def test_a_plan_for_other_values_of_its_keys_names_them(plan, tmp_path):
    other = load(DQN, ["hyp.batch_size=64"])
    path = tmp_path / "plan.json"
    plan_file.write(plan, path)
    with pytest.raises(
        TianJiError, match=r"\(job: hyp.batch_size was 128 and is 64 now\): make one"
    ):
        plan_file.check(plan_file.read(path), other, MACHINE, "it")


def test_a_plan_of_an_older_version_that_does_not_know_its_keys_is_read(plan, config, tmp_path):
    plain, path = plan.to_json(), tmp_path / "plan.json"
    del plain["profile"]["work"]["keys"]
    path.write_text(json.dumps(plain))
    older = plan_file.read(path)
    assert plan_file.check(older, config, MACHINE, "it") == []
    with pytest.raises(TianJiError, match=r"another configuration \(job, or other values of its k"):
        plan_file.check(older, load(DQN, ["hyp.batch_size=64"]), MACHINE, "it")


def test_a_plan_of_an_older_version_that_knows_more_of_its_machine_is_read(plan, tmp_path):
    plain = plan.to_json()
    plain["profile"]["machine"]["memory_bytes"] = 2**34
    (tmp_path / "plan.json").write_text(json.dumps(plain))
    assert plan_file.read(tmp_path / "plan.json") == plan


def test_a_plan_for_a_larger_machine_is_refused(plan, config):
    with pytest.raises(TianJiError, match="wants 4 cores and this machine offers 2"):
        plan_file.check(plan, config, dataclasses.replace(MACHINE, cores=2), "it")


def test_a_plan_of_another_machine_is_followed_with_a_warning(plan, config):
    assert plan_file.check(plan, config, MACHINE, "it") == []
    [words] = plan_file.check(plan, config, dataclasses.replace(MACHINE, cpu="other"), "it")
    assert "made on another machine" in words and "other" in words


def test_a_plan_for_another_gpu_is_followed_with_a_warning(plan, config):
    small, large = (dataclasses.replace(MACHINE, gpu=f"GPU of {n} GiB") for n in (8, 80))
    made = dataclasses.replace(plan, profile=dataclasses.replace(plan.profile, machine=small))
    assert plan_file.check(made, config, small, "it") == []
    [words] = plan_file.check(made, config, large, "it")
    assert "some CPU with GPU of 8 GiB; this one is some CPU with GPU of 80 GiB" in words


def test_cores_that_a_plan_of_a_smaller_machine_leaves_idle_are_counted(plan, config):
    larger = dataclasses.replace(MACHINE, cores=64)
    [words] = plan_file.check(plan, config, larger, "it")
    assert "16 cores" in words and "4 of this machine's 64" in words
    assert "tianji plan CONFIG" in words
    [words] = plan_file.check(plan, config, larger, "it", hosts=2)
    assert "4 of" in words  # a group is on one host
    four, eight = (dataclasses.replace(MACHINE, cores=n) for n in (4, 8))
    costs = dataclasses.replace(plan.profile, machine=four)
    three = dataclasses.replace(
        plan, profile=costs, split=split(groups=3, actors=2, learner_cores=2)
    )
    assert plan_file.check(three, config, eight, "it", hosts=2) == []  # one of them has two groups
    assert plan_file.check(plan, config, larger, "it", hosts=None) == []


def test_a_plan_for_a_single_core_is_told_to_be_one_where_there_are_more(plan, config):
    single = dataclasses.replace(MACHINE, cores=1)
    shared = dataclasses.replace(
        plan,
        profile=dataclasses.replace(plan.profile, machine=single),
        split=split(one_core=True),
    )
    assert plan_file.check(shared, config, single, "it") == []
    [words] = plan_file.check(shared, config, dataclasses.replace(MACHINE, cores=2), "it")
    assert "was made on 1 core " in words


def test_one_core_is_not_called_cores(plan, config):
    alternating = dataclasses.replace(plan.profile.work, alternates=True)
    costs = dataclasses.replace(
        plan.profile, work=alternating, machine=dataclasses.replace(MACHINE, cores=1)
    )
    turns = dataclasses.replace(plan, profile=costs, split=split())
    [words] = plan_file.check(turns, config, dataclasses.replace(MACHINE, cores=2), "it")
    assert "1 core " in words and "1 of this machine's 2" in words


def test_a_plan_that_uses_all_cores_is_no_news_wherever_it_was_measured(plan, config):
    large = dataclasses.replace(plan, split=split(actors=62, learner_cores=2))
    assert plan_file.check(large, config, dataclasses.replace(MACHINE, cores=64), "it") == []


def test_a_plan_sets_no_class(plan, tmp_path):
    evil = dataclasses.replace(plan, settings={"environment.type": "evil:Env"})
    plan_file.write(evil, tmp_path / "plan.json")
    with pytest.raises(TianJiError, match=r"a plan does not set 'environment\.type'"):
        plan_file.read(tmp_path / "plan.json")
