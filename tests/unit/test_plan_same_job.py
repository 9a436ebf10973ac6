"""What makes a configuration another one for a plan: all that costs, and nothing else."""

import dataclasses
from types import SimpleNamespace
from typing import get_type_hints

import pytest
from commands import ROOT
from profiles import work

from tianji.algorithms.dqn import DQNHyp
from tianji.algorithms.ppo import PPOHyp
from tianji.config import load
from tianji.config.keys import SECTIONS
from tianji.strategy.plan.same_job import COSTLESS, SPLIT, digest_of, keys_of, told_apart

DQN = ROOT / "configs" / "cartpole_dqn.py"


@pytest.fixture
def config():
    return load(DQN, [])


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


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["hyp.batch_size=64"], "job: hyp.batch_size was 128 and is 64 now"),
        (
            ["actor_cfg.send_size=9", "environment.kwargs={'hard': True}", "actor_cfg.num=7"],
            "job: actor_cfg.send_size was 16 and is 9 now, "
            "environment.kwargs.hard was not there and is True now",
        ),
    ],
)
def test_keys_that_set_a_configuration_apart_are_named(config, overrides, said):
    assert told_apart(work(keys=keys_of(config)), load(DQN, overrides)) == said


def test_values_that_are_too_long_to_be_shown_are_told_apart_as_well(config):
    one, other = (load(DQN, [f"model.hidden={[8] * 40 + [n]}"]) for n in (8, 9))
    assert told_apart(work(keys=keys_of(one)), other).startswith("job: model.hidden was [8, 8, 8,")


def test_of_many_keys_that_differ_the_first_are_named(config):
    said = told_apart(work(keys=keys_of(config)), load(ROOT / "configs" / "cartpole_ppo.py", []))
    assert said.startswith("job: agent.type was 'DQN' and is 'PPO' now, ")
    assert said.count(" was ") == 3 and said.endswith(" more keys")


def test_the_keys_are_those_of_the_digest(config):
    """Whatever changes the digest is a key that differs, and the other way round."""
    for override in ("hyp.n_step=3", "model.hidden=[8]", "exp.seed=9", "actor_cfg.num=7"):
        other = load(DQN, [override])
        assert (keys_of(other) == keys_of(config)) is (digest_of(other) == digest_of(config))
