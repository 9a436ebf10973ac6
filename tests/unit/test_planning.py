"""The model, the solver and the file of a plan, on profiles made by hand."""

import dataclasses
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tianji.algorithms.dqn import DQNHyp
from tianji.algorithms.ppo import PPOHyp
from tianji.config import load
from tianji.config.schema import SECTIONS
from tianji.errors import TianJiError
from tianji.planning import planfile, table
from tianji.planning.digest import COSTLESS, SPLIT, digest_of
from tianji.planning.model import actor_cost, learner_cost, predict
from tianji.planning.outcome import Comparison, Pace, Steady, compare
from tianji.planning.planfile import Plan
from tianji.planning.profile import ActorCost, LearnerCost, Machine, Profile, Work
from tianji.planning.solver import NOISE, Wish, candidates, solve
from tianji.planning.split import Bound, Split

MB = 2**20
MACHINE = Machine("some CPU", 16, memory_bytes=2**34)


def work(**changes):
    facts = {
        "name": "job", "digest": "d", "steps": 10, "batch": 100, "pool": 10_000, "warmup": 0,
        "ratio": 2.0, "envs": 4, "alternates": False, "weights_bytes": 4_000,
    }  # fmt: skip
    return Work(**facts | changes)


def profile(step=0.001, update=0.01, receive=0.0001, speedup=0.8, **changes):
    """Actors of 1 and 4 environments; each doubling of cores makes updates `speedup` as long."""
    return Profile(
        MACHINE,
        work(**changes),
        tuple(ActorCost(e, step * (1 + e / 4), 1e-5, receive, 1_000 * e, 20 * MB) for e in (1, 4)),
        tuple(
            LearnerCost(c, 100, update * speedup**i, 0.001, 100 * MB)
            for i, c in enumerate((1, 2, 4))
        ),
    )


def split(**changes):
    return Split(**{"groups": 1, "learner_cores": 1, "actors": 1, "envs": 4, "batch": 100,
                    "pool": 10_000} | changes)  # fmt: skip


# ---------------------------------------------------------------------------------------- the model


def test_production_is_the_smaller_of_what_both_sides_could_do():
    found = predict(profile(), split())
    acting = 40 / (10 * 0.002 + 1e-5)  # units of a trajectory over T_sp + T_sd
    taking = 1 / (0.0001 / 40 + 2 * 0.011 / 100)  # T_rv, and an update for every 50 units
    assert found.could_produce == pytest.approx(acting)
    assert found.could_take == pytest.approx(taking)
    assert found.production == pytest.approx(min(acting, taking))
    assert found.consumption == pytest.approx(2 * found.production)
    assert found.bound is Bound.SAMPLE


def test_weights_that_must_be_loaded_cost_the_actors_time():
    slow = dataclasses.replace(profile(), load_seconds=0.005)
    per_second = predict(slow, split()).could_produce
    updates = 2 * per_second / 100
    free = predict(profile(), split()).could_produce
    assert per_second == pytest.approx(free * (1 - updates * 0.005))


def test_who_takes_turns_needs_the_sum_of_both_times():
    turns = profile(alternates=True, on_policy=True, ratio=1.0, batch=100, pool=100)
    found = predict(turns, split(pool=100))
    whole = 1 / found.could_produce + 1 / found.could_take
    assert found.production == pytest.approx(1 / whole)
    assert found.staleness == 0


def test_a_buffer_with_a_core_of_its_own_works_beside_the_learner():
    costs = profile(receive=0.01)  # as dear as an update
    rides, alone = predict(costs, split()), predict(costs, split(buffer_alone=True))
    assert alone.could_take == pytest.approx(1 / (0.01 / 40 + 2 * 0.001 / 100))
    assert alone.could_take > 1.5 * rides.could_take


@pytest.mark.parametrize(
    ("costs", "bound"),
    [
        (profile(step=0.1), Bound.SAMPLE),
        (profile(step=1e-5, update=0.1), Bound.TRAINING),
        (profile(step=1e-5, update=1e-5, receive=0.1), Bound.COMMUNICATION),
        (profile(step=0.00044), Bound.NONE),
    ],
)
def test_the_bound_is_named_after_the_side_that_is_slower(costs, bound):
    assert predict(costs, split()).bound is bound


def test_groups_multiply_rates_and_memory_and_keep_freshness():
    one, four = predict(profile(), split()), predict(profile(), split(groups=4))
    assert four.production == pytest.approx(4 * one.production)
    assert four.memory_bytes == 4 * one.memory_bytes
    assert (four.freshness, four.staleness) == (one.freshness, one.staleness)


def test_costs_between_those_measured_lie_on_a_line():
    assert actor_cost(profile(), 2).step_seconds == pytest.approx(0.001 * 1.5)
    assert actor_cost(profile(), 8).step_seconds == pytest.approx(0.001 * 3)
    assert learner_cost(profile(), 3, 100).update_seconds == pytest.approx(0.008)  # as with two


def test_equation_1_has_its_knee_where_receiving_takes_as_long_as_making():
    assert predict(profile(), split()).knee == pytest.approx((10 * 0.002 + 1e-5) / 0.0001)


# --------------------------------------------------------------------------------------- the solver


def oracle(costs, cores):
    """Every tuple of small numbers that keeps to the cores, without any of the solver's thrift."""
    best = 0.0
    counts = range(1, cores + 1)
    for groups, learner, actors in itertools.product(counts, counts, counts):
        if learner not in {cost.cores for cost in costs.learners}:
            continue
        for envs, alone in itertools.product((1, 4), (False, True)):
            found = split(groups=groups, learner_cores=learner, actors=actors, envs=envs,
                          buffer_alone=alone)  # fmt: skip
            if found.cores(costs.work.alternates) <= cores:
                best = max(best, predict(costs, found).production)
    return best


costs_of_all_kinds = st.builds(
    profile,
    step=st.floats(1e-5, 0.1),
    update=st.floats(1e-4, 0.1),
    receive=st.floats(1e-6, 0.01),
    speedup=st.floats(0.4, 1.2),
    ratio=st.sampled_from([0.25, 1.0, 4.0, 32.0]),
)


@given(costs_of_all_kinds, st.integers(2, 9))
def test_no_split_is_faster_than_the_solvers_beyond_noise(costs, cores):
    assert solve(costs, Wish(cores))[0].prediction.production >= (1 - NOISE) * oracle(costs, cores)


@given(costs_of_all_kinds, st.integers(1, 40), st.integers(1, 4))
def test_no_split_uses_more_cores_or_changes_what_freshness_is_made_of(costs, cores, hosts):
    for found in candidates(costs, Wish(cores, hosts)):
        assert found.cores(costs.work.alternates) <= cores * hosts
        assert (found.batch, found.pool) == (costs.work.batch, costs.work.pool)


def test_of_equally_fast_splits_the_simplest_is_chosen():
    idle = profile(step=1e-6, update=0.1)  # one actor outruns the learner by far
    chosen = solve(idle, Wish(4, groups=1, learner_cores=1))[0].split
    assert (chosen.actors, chosen.envs, chosen.buffer_alone) == (1, 4, False)


def test_slow_environments_get_the_cores():
    found = solve(profile(step=0.05), Wish(16))[0]
    assert found.split.groups * found.split.actors >= 14
    assert found.prediction.bound is Bound.SAMPLE


def test_slow_updates_get_more_groups():
    found = solve(profile(step=1e-5, update=0.1, speedup=1.0), Wish(16))[0].split
    assert (found.groups, found.actors) == (8, 1)


def test_an_on_policy_batch_keeps_its_environments_however_many_actors_have_them():
    costs = profile(alternates=True, on_policy=True, ratio=1.0, envs=12, batch=120, pool=120)
    for found in candidates(costs, Wish(16)):
        assert found.actors * found.envs == 12


def test_rollouts_that_were_counted_are_not_cut():
    costs = profile(on_policy=True, ratio=1.0, envs=8, batch=80, pool=80, rollouts=2)
    assert {found.envs for found in candidates(costs, Wish(16))} == {4}


def test_a_store_has_room_for_a_trajectory_of_every_actor():
    costs = profile(step=0.05, pool=200, batch=100)
    assert {(c.actors, c.envs) for c in candidates(costs, Wish(8, groups=1, learner_cores=1))} == {
        *((n, 1) for n in range(1, 8)),
        *((n, 4) for n in range(1, 6)),
    }


def test_a_single_core_is_shared():
    [best, *_] = solve(profile(), Wish(1))
    assert best.split.one_core and best.split.cores(alternates=False) == 1
    both = 1 / best.prediction.could_produce + 1 / best.prediction.could_take
    assert best.prediction.production == pytest.approx(1 / both)


def test_next_best_splits_have_other_roles_and_come_in_order():
    choices = solve(profile(), Wish(8))
    rates = [choice.prediction.production for choice in choices[1:]]
    assert rates == sorted(rates, reverse=True) and len(rates) == 6
    roles = {(c.split.groups, c.split.learner_cores, c.split.actors, c.split.buffer_alone)
             for c in choices}  # fmt: skip
    assert len(roles) == len(choices)


def test_what_does_not_fit_into_memory_is_no_plan():
    small = solve(profile(), Wish(16, memory_bytes=300 * MB))[0]
    assert small.prediction.memory_bytes <= 300 * MB
    with pytest.raises(TianJiError, match="no plan fits into memory: the smallest needs 120 MiB"):
        solve(profile(), Wish(16, memory_bytes=100 * MB))


def test_what_cannot_be_split_says_what_was_asked():
    with pytest.raises(TianJiError, match="no split of 4 cores on 1 host has --actors 9"):
        solve(profile(), Wish(4, actors=9))


# --------------------------------------------------------------------------- the file and the words


CONFIGS = Path(__file__).resolve().parents[2] / "configs"
DQN = CONFIGS / "cartpole_dqn.py"


@pytest.fixture
def config():
    return load(DQN, [])


@pytest.fixture
def plan(config):
    costs = dataclasses.replace(profile(), work=work(digest=digest_of(config)))
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
        ("{", "this is no plan"),
        ("[1]", "no plan of this version"),
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


def test_the_table_has_the_plan_its_numbers_and_what_limits_the_others():
    costs = profile()
    choices = solve(costs, Wish(8))
    text = table.describe(costs, choices, choices[1])
    assert f"{choices[0].split.name}: " in text
    assert f"{choices[0].prediction.production:,.0f} steps/s made" in text
    assert text.count("bound") + text.count("balanced") >= len(choices)
    assert "config" in text.splitlines()[-1]


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
