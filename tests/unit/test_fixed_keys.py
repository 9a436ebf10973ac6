"""Options of a run as options of the plan that is made for it."""

import pytest
from commands import ROOT

from tianji.cli.main import parser
from tianji.cli.plan import _wish
from tianji.core.errors import TianJiError
from tianji.strategy.plan.solver import PlanRequest
from tianji.strategy.probe.fixed_keys import wish_of

DQN = ROOT / "configs" / "cartpole_dqn.py"


def test_a_wish_has_what_was_given_and_leaves_the_rest_open():
    given = ["hyp.lr=0.1", "actor_cfg.num=2", "parallel_parameters.learner_cfg.cores=3"]
    assert wish_of(DQN, given, 8, 2, None) == PlanRequest(8, 2, actors=2, learner_cores=3)
    assert wish_of(DQN, [], 8, 1, 99) == PlanRequest(8, memory_bytes=99)


@pytest.mark.parametrize(("word", "alone"), [("1", True), ("None", False)])
def test_a_buffer_that_was_given_its_place_stays_there(word, alone):
    assert wish_of(DQN, [f"buffer_cfg.cores={word}"], 8, 1, None).buffer_alone is alone


def test_a_single_core_is_nobodys_own():
    given = ["actor_cfg.cores=None", "learner_cfg.cores=None"]
    assert wish_of(DQN, given, 1, 1, None) == PlanRequest(1)


def planned_with(*words):
    """What `tianji plan` wishes for, by its keys and options."""
    return _wish(parser(["plan"]).parse_args(["plan", str(DQN), "--cores", "8", *words]))


def test_a_plan_with_the_same_keys_wishes_for_the_same():
    given = ["actor_cfg.num=2", "global_cfg.group_num=2", "learner_cfg.cores=3"]
    wish = planned_with(*(part for word in given for part in ("--set", word)))
    assert wish == wish_of(DQN, given, 8, 1, wish.memory_bytes)
    assert (wish.groups, wish.actors, wish.learner_cores, wish.envs) == (2, 2, 3, None)


def test_keys_and_options_of_a_plan_go_together():
    wish = planned_with("--set", "actor_cfg.num=2", "--actors", "2", "--envs", "4")
    assert (wish.actors, wish.envs, wish.groups, wish.buffer_alone) == (2, 4, None, None)
    wish = planned_with("--set", "buffer_cfg.cores=None")
    assert wish.buffer_alone is False


@pytest.mark.parametrize(
    ("key", "option"),
    [
        ("actor_cfg.num=2", "--actors 3"),
        ("actor_cfg.envs=2", "--envs 3"),
        ("global_cfg.group_num=1", "--groups 2"),
        ("learner_cfg.cores=1", "--learner-cores 2"),
        ("buffer_cfg.cores=None", "--buffer-alone"),
    ],
)
def test_a_key_and_an_option_that_do_not_agree_are_both_named(key, option):
    said = f"^{option}: --set says {key.partition('=')[2]}".replace("None", "False")
    with pytest.raises(TianJiError, match=said):
        planned_with("--set", key, *option.split())
