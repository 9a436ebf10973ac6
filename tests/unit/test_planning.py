"""The file of a plan: whom it is for, what it sets, and what came of it."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from profiles import MACHINE, graded, split, work

from tianji.algorithms.dqn import DQNHyp
from tianji.algorithms.ppo import PPOHyp
from tianji.config import load
from tianji.config.schema import SECTIONS
from tianji.errors import TianJiError
from tianji.planning import planfile
from tianji.planning.digest import COSTLESS, SPLIT, digest_of
from tianji.planning.model import predict
from tianji.planning.outcome import Comparison, Pace, Steady, compare
from tianji.planning.planfile import Plan

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
DQN = CONFIGS / "cartpole_dqn.py"


@pytest.fixture
def config():
    return load(DQN, [])


@pytest.fixture
def plan(config):
    costs = dataclasses.replace(graded(), work=work(digest=digest_of(config)))
    chosen = split(actors=2, learner_cores=2)
    return Plan(costs, chosen, predict(costs, chosen), {"hyp.lr": 0.004})


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


def test_the_digest_is_of_what_costs_and_not_of_the_split(config):
    def digest(*overrides):
        return digest_of(load(DQN, overrides))

    own = digest_of(config)
    assert digest("actor_cfg.num=7", "learner_cfg.cores=2", "exp.seed=9") == own
    assert digest("hyp.batch_size=64") != own
    assert digest("model.hidden=[8]") != own
    assert digest("global_cfg.replay_ratio=1") != own
    assert digest("exp.max_step=20") != own


def test_one_plan_serves_a_sweep_of_what_costs_nothing(config):
    def digest(*overrides):
        return digest_of(load(DQN, overrides))

    own = digest_of(config)
    assert digest("hyp.lr=0.1", "hyp.lr_decay=9", "hyp.gamma=0.5", "environment.seed=3") == own
    ends = ("learner_cfg.exit_val=dict(learn_step=9)", "exp.train_steps=9", "exp.max_seconds=9")
    assert digest(*ends) == own
    assert digest("hyp.n_step=3") != own


def test_a_key_that_nobody_has_thought_of_counts(config):
    def grown(config):
        return config.to_json() | {"exp": config.to_json()["exp"] | {"novel": 1}, "new": {"lr": 1}}

    own = digest_of(config)
    strange = SimpleNamespace(to_json=lambda: grown(config))
    assert digest_of(strange) != own
    assert digest_of(SimpleNamespace(to_json=config.to_json)) == own


def test_every_key_that_is_left_out_is_a_key():
    known = {"name", "folder", "notices"}
    kinds = {name: [kind] for name, kind in SECTIONS.items()} | {"hyp": [DQNHyp, PPOHyp]}
    pending = [(name, kind) for name, some in kinds.items() for kind in some]
    while pending:
        path, kind = pending.pop()
        for each, hint in get_type_hints(kind).items():
            known.add(f"{path}.{each}")
            if dataclasses.is_dataclass(hint):
                pending.append((f"{path}.{each}", hint))
    assert known >= SPLIT | COSTLESS


def test_a_plan_for_another_configuration_is_refused(plan):
    other = load(CONFIGS / "cartpole_ppo.py", [])
    with pytest.raises(TianJiError, match="made for another configuration"):
        planfile.check(plan, other, MACHINE, "it")


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


def test_rates_are_taken_when_the_run_has_settled():
    steady = Steady()
    assert steady.pace() is None
    for i in range(31):  # a tenth of a second each; warm-up for one second, then ten times as slow
        made = 100 * i if i < 20 else 2_000 + 10 * (i - 20)
        steady.read(i / 10, int(i >= 10), made, 2 * made)
    assert steady.pace() == Pace(pytest.approx(100), pytest.approx(200))


def test_prediction_and_measurement_stand_side_by_side(plan):
    made, learned = plan.prediction.production, plan.prediction.consumption
    found = compare(plan, Pace(made / 1.1, learned / 1.2))
    errors = found.to_json()["error"]
    assert errors["production_per_second"] == pytest.approx(0.1, abs=1e-4)
    assert errors["consumption_per_second"] == pytest.approx(0.2, abs=1e-4)
    assert f"predicted {made:,.0f} steps/s made, {learned:,.0f} samples/s" in found.sentence()
    measured = f"measured {made / 1.1:,.0f} (+10 %) and {learned / 1.2:,.0f} (+20 %)"
    assert found.sentence().endswith(measured)
    again = Comparison.from_json(json.loads(json.dumps(found.to_json())))
    assert again.sentence() == found.sentence()


def test_a_run_that_was_too_short_is_not_compared(plan):
    found = compare(plan, None)
    assert found.to_json()["measured"] is None and found.to_json()["error"] is None
    assert "too short" in Comparison.from_json(found.to_json()).sentence()


def test_a_rate_of_zero_has_no_error(plan):
    found = compare(plan, Pace(0.0, 1.0))
    assert found.to_json()["error"]["production_per_second"] is None
    assert "measured 0 and 1 (+" in found.sentence()
