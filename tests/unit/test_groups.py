"""From a configuration to several groups and learners: names, channels, seeds, shares, refusals."""

import sys

import numpy as np
import pytest
from commands import ROOT, TASKS

from tianji import config as configs
from tianji.core.errors import TianJiError
from tianji.job import factory
from tianji.job.job import prepare
from tianji.job.wiring import channels_of, n_bytes_of
from tianji.machine.resources import assign
from tianji.roles import Buffer, Learner
from tianji.roles.reducer import Reducer
from tianji.roles.role_specs import (
    LAUNCHER,
    Kind,
    group_of,
    homes_of,
    is_first_learner,
    kind_of,
    roles_of,
)
from tianji.transports.local import LocalTransport

GROUPS, LEARNERS = "global_cfg.group_num=2", "learner_cfg.num=2"
ALONE = "global_cfg.use_group_parallel=False"


def load(*overrides, name="echo_dqn"):
    return configs.load(TASKS / f"{name}.py", overrides)


def job(*overrides, name="echo_dqn"):
    config = load(*overrides, name=name)
    env = factory.make_env(config)
    env.close()
    return prepare(config, env.spec)


def built(made):
    transport = LocalTransport(channels_of(made))
    return {spec.name: factory.build(spec, made, transport) for spec in roles_of(made.config)}


def test_roles_are_named_after_their_group_and_there_is_one_reducer():
    names = [role.name for role in roles_of(load(GROUPS, LEARNERS))]
    assert names == [
        *("learner-0.0", "learner-0.1", "buffer-0.0", "actor-0.0"),
        *("learner-1.0", "learner-1.1", "buffer-1.0", "actor-1.0"),
        "reducer-0.0",
    ]
    assert [group_of(name) for name in names] == [0] * 4 + [1] * 4 + [0]
    assert [name for name in names if is_first_learner(name)] == ["learner-0.0", "learner-1.0"]


def test_without_fusion_there_is_no_reducer():
    assert not any(role.kind is Kind.REDUCER for role in roles_of(load(GROUPS, ALONE)))
    assert not any(role.kind is Kind.REDUCER for role in roles_of(load(LEARNERS)))


def test_a_buffer_rides_with_the_first_learner_of_its_group():
    homes = homes_of(load(GROUPS, LEARNERS))
    assert (homes["buffer-0.0"], homes["buffer-1.0"]) == ("learner-0.0", "learner-1.0")
    assert homes["reducer-0.0"] == "reducer-0.0"


def test_channels_stay_within_a_group_but_for_those_of_the_reducer():
    specs = {spec.name: spec for spec in channels_of(job(GROUPS, LEARNERS))}
    for name, spec in specs.items():
        ends = {spec.source, *spec.targets, *spec.readers} - {"launcher"}
        if not ends & {"reducer-0.0"} and name not in ("control", "orders"):
            assert len({group_of(end) for end in ends}) == 1, name
    assert specs["mean"].targets == ("learner-0.0", "learner-1.0")
    assert (specs["parameters 1"].source, specs["parameters 1"].depth) == ("learner-1.0", 1)
    assert specs["gradients 1.0>1"].targets == ("learner-1.1",)
    assert len(specs["control"].targets) == 4


def test_the_first_group_has_the_seeds_of_a_run_with_one_group():
    one, two = job(), job(GROUPS)
    for kind in Kind:
        entropy = (one.config.exp.seed, int(kind), 3)
        expected = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        assert one.seed(kind, 3) == two.seed(kind, 3) == two.seed(kind, 3, 0) == expected


def test_no_two_roles_have_the_same_seed():
    made = job("global_cfg.group_num=9")
    seeds = [made.seed(kind, i, group) for kind in Kind for i in range(9) for group in range(9)]
    assert len(set(seeds)) == len(seeds)
    given = job("global_cfg.group_num=3", "actor_cfg.num=2", "environment.seed=100")
    n_envs = given.task.env.n_envs
    firsts = [given.env_seed(i, group) for group in range(3) for i in range(2)]
    assert firsts == [100 + n * n_envs for n in range(6)]


def test_the_steps_of_a_run_are_shared_among_its_groups():
    made = job("global_cfg.group_num=3", "exp.train_steps=1000")
    assert [made.train_steps(group) for group in range(3)] == [334, 333, 333]
    with pytest.raises(TianJiError, match="not one for each of the 3 groups"):
        job("global_cfg.group_num=3", "exp.train_steps=2")


def test_fused_groups_begin_alike_and_others_do_not():
    for overrides, alike in ((("global_cfg.group_num=2",), True), ((GROUPS, ALONE), False)):
        for name in ("echo_dqn", "echo_ppo"):
            roles = built(job(*overrides, name=name))
            first, second = (roles[f"learner-{g}.0"].algorithm for g in (0, 1))
            assert np.allclose(first.parameters(), second.parameters(), atol=1e-6) is alike
            if name == "echo_dqn":
                state = second.state()
                assert np.array_equal(state["target"], state["parameters"])


def test_learners_of_a_group_begin_alike_to_the_last_bit():
    roles = built(job(LEARNERS, "actor_cfg.num=2", name="echo_ppo"))
    first, second = (roles[f"learner-0.{i}"].algorithm.parameters() for i in (0, 1))
    assert first.tobytes() == second.tobytes()


def test_roles_are_made_with_what_they_need():
    roles = built(job(GROUPS, LEARNERS))
    firsts = [role for name, role in roles.items() if is_first_learner(name)]
    others = [roles["learner-0.1"], roles["learner-1.1"]]
    assert all(isinstance(role, Learner) and role.exchange for role in (*firsts, *others))
    assert all(role.weights is not None and role.fusion is not None for role in firsts)
    assert all(role.weights is None and role.fusion is None for role in others)
    assert isinstance(roles["reducer-0.0"], Reducer)
    assert isinstance(roles["buffer-1.0"], Buffer)
    alone = built(job())["learner-0.0"]
    assert (alone.exchange, alone.fusion) == (None, None)


def test_a_batch_that_cannot_be_split_is_refused_with_one_that_can():
    with pytest.raises(TianJiError, match=r"32 samples .* 3 learners: write batch_size=33"):
        job("learner_cfg.num=3")
    with pytest.raises(TianJiError, match=r"1 rollouts .* 2 learners: write batch_size=2"):
        job("learner_cfg.num=2", "actor_cfg.num=1", name="echo_ppo")
    with pytest.raises(TianJiError, match=r"3 rollouts .* 2 learners: write batch_size=6"):
        job("learner_cfg.num=2", "actor_cfg.num=3", name="echo_ppo")
    assert job("learner_cfg.num=2", "actor_cfg.num=3", "hyp.batch_size=6", name="echo_ppo")


def test_an_algorithm_without_updates_has_one_learner_in_any_number_of_groups(monkeypatch):
    monkeypatch.delitem(sys.modules, "own_algorithm", raising=False)  # of a page's own copy
    path = ROOT / "examples" / "own_algorithm_config.py"
    with pytest.raises(TianJiError, match=r"cannot be shared by 2 learners: define updates"):
        config = configs.load(path, (LEARNERS,))
        env = factory.make_env(config)
        env.close()
        prepare(config, env.spec)
    config = configs.load(path, (GROUPS,))
    roles = built(prepare(config, env.spec))
    vector = roles["learner-1.0"].algorithm.parameters().copy()
    roles["learner-1.0"].algorithm.shift(np.ones_like(vector))
    assert np.allclose(roles["learner-1.0"].algorithm.parameters(), vector + 1, atol=1e-6)


def test_memory_is_that_of_all_groups():
    two, one = n_bytes_of(job(GROUPS)), n_bytes_of(job())
    assert two["store"] == 2 * one["store"]
    assert two["channels"] > 2 * one["channels"]


def test_cores_are_shared_among_learners_and_groups():
    shares = assign(load(GROUPS, LEARNERS, "actor_cfg.num=2"), tuple(range(16)), alternates=False)
    assert {home for home in shares if home.startswith("learner")} == {
        *("learner-0.0", "learner-0.1", "learner-1.0", "learner-1.1")
    }
    assert all(share.cores == tuple(range(16)) for share in shares.values())
    assert shares["learner-1.1"].threads == (16 - 4) // 4
    assert shares["reducer-0.0"].threads == 1
    fixed = ("learner_cfg.cores=2", "actor_cfg.cores=1")
    shares = assign(load(GROUPS, LEARNERS, *fixed), tuple(range(12)), alternates=False)
    given = [shares[home].cores for home in shares if home != "reducer-0.0"]
    assert sorted(core for cores in given for core in cores) == list(range(10))
    assert shares["reducer-0.0"].cores == (10, 11)
    with pytest.raises(TianJiError, match="want 8 cores, actors 2, but this machine offers 9"):
        assign(load(GROUPS, LEARNERS, *fixed), tuple(range(9)), alternates=False)


def test_the_kind_of_every_role_is_in_its_name_and_the_launcher_has_none():
    roles = roles_of(load(GROUPS))
    assert {kind_of(role.name) for role in roles} >= {Kind.REDUCER, Kind.LEARNER, Kind.ACTOR}
    assert all(kind_of(role.name) is role.kind for role in roles)
    assert kind_of(LAUNCHER) is None


def test_keys_of_groups_without_groups_change_nothing():
    config = load("global_cfg.exit_val.fusion_step=3", "learner_cfg.send_root_interval=2")
    assert (config.fuses, config.max_fusions) == (False, None)
    assert load(GROUPS, "global_cfg.exit_val.fusion_step=3").max_fusions == 3
