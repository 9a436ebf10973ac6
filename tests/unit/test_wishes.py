"""Options of a run as options of the plan that is made for it."""

import pytest
from commands import ROOT

from tianji.cli import parser
from tianji.planning.solver import Wish
from tianji.probing.wishes import as_options, wish_of
from tianji.verbs.plan import _wish

DQN = ROOT / "configs" / "cartpole_dqn.py"


def test_a_wish_has_what_was_given_and_leaves_the_rest_open():
    given = ["hyp.lr=0.1", "actor_cfg.num=2", "parallel_parameters.learner_cfg.cores=3"]
    assert wish_of(DQN, given, 8, 2, None) == Wish(8, 2, actors=2, learner_cores=3)
    assert wish_of(DQN, [], 8, 1, 99) == Wish(8, memory_bytes=99)


@pytest.mark.parametrize(("word", "alone"), [("1", True), ("None", False)])
def test_a_buffer_that_was_given_its_place_stays_there(word, alone):
    assert wish_of(DQN, [f"buffer_cfg.cores={word}"], 8, 1, None).buffer_alone is alone


def test_a_single_core_is_nobodys_own():
    given = ["actor_cfg.cores=None", "learner_cfg.cores=None"]
    assert wish_of(DQN, given, 1, 1, None) == Wish(1)


def test_a_plan_with_the_same_options_wishes_for_the_same():
    given = ["actor_cfg.num=2", "global_cfg.group_num=2", "environment.kwargs={'a b': 1}"]
    words = as_options(DQN, given)
    assert words[6:] == ["--groups", "2", "--actors", "2"]
    options = parser(["plan"]).parse_args(["plan", str(DQN), "--cores", "8", *words])
    assert options.overrides == given
    wish = _wish(options)
    assert wish == wish_of(DQN, given, 8, 1, wish.memory_bytes)
    assert (wish.groups, wish.actors, wish.envs) == (2, 2, None)
