"""Agents that are played: who acts where, what is left of rewards, and runs that do not fit."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from commands import TASKS
from gymnasium import spaces
from scripted_agents import N_ACTIONS, Script, Scripted

import tianji
from tianji.config.loader import resolve
from tianji.config.reader import parse
from tianji.core.counts import Count
from tianji.core.env import points_of
from tianji.core.errors import TianJiError
from tianji.core.mishaps import Mishaps
from tianji.core.state import copied
from tianji.envs import Rendering, make, make_shown
from tianji.envs.agents import AgentsLoop
from tianji.envs.opponents import Opponents
from tianji.envs.pettingzoo import ParallelGame
from tianji.roles.env_restart import EnvRestart
from tianji.runs.trust import code_of

TEAMS = {"hunters": ["agent_0", "agent_2"], "prey": ["agent_1", "agent_3"]}
PLAYERS = """
def last(obs, mask, random):
    assert obs.shape[1:] == (2, 4) and mask.shape[1:] == (2, 4)
    return (mask * [1, 2, 3, 4]).argmax(-1)


def one(obs, mask, random):
    return mask[:, 0].argmax(-1)


def half(obs, mask, random):
    assert mask is None
    return obs[..., :2] * 0 + 0.5
"""


def game(n_envs=2, cls=Scripted, log=None, sharing="agent", teams=TEAMS, **kwargs):
    scripts = [Script((3, 4, 4, 2), (False,) * 4), Script((2, 2, 3, 3), (True,) * 4)]
    envs = [cls(scripts, log=log, **kwargs) for _ in range(n_envs)]
    games = [ParallelGame("scripted", env, teams) for env in envs]
    return AgentsLoop("scripted", games, max_step=None, time_limit_terminal=False, sharing=sharing)


def against(opponents, folder=".", sharing="agent", teams=TEAMS, **kwargs):
    env = game(sharing=sharing, teams=teams, **kwargs)
    return Opponents("scripted", env, opponents, {"teams": teams, "reward": sharing}, str(folder))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "players_of_this_test.py").write_text(PLAYERS)
    return tmp_path


def any_of(mask, random):
    return np.where(mask, random.random(mask.shape), -1).argmax(-1)


def test_who_is_played_is_not_shown_and_everybody_s_action_goes_where_it_belongs(folder):
    log = []
    env = against({"prey": "players_of_this_test:last"}, folder, n_envs=1, log=log)
    spec, random = env.spec, np.random.default_rng(0)
    assert (spec.agents, spec.teams, spec.n_teams) == (("agent_0", "agent_2"), (0, 0), 1)
    assert {field.name: str(field) for field in spec.observations} == {
        "obs": "float32[2, 4]",
        "mask": "bool[2, 4]",
        "state": "float32[2]",
        "alive": "bool[2]",
    }
    assert spec.reward_per_agent and spec.reward.shape == (2,)
    obs = env.reset(seed=1)
    for _ in range(12):
        episode, t = obs["state"][0]
        assert obs["obs"][0, 0, 2] == 0 and obs["obs"][0, 1, 2] in (0, 2)  # whose view it is
        action = any_of(obs["mask"], random)
        step = env.step(action)
        if not step.first[0]:
            *where, playing, _, actions = log[-1]
            assert where == [episode, t + 1]
            for i, agent in enumerate(spec.agents):
                assert agent not in playing or actions[agent] == action[0, i]
            for agent in {"agent_1", "agent_3"} & set(playing):
                forbidden = int(episode + t + int(agent[-1])) % N_ACTIONS
                assert actions[agent] == (2 if forbidden == 3 else 3)
            want = [(i + (t + 1) / 8) * (f"agent_{i}" in playing) for i in (0, 2)]
            np.testing.assert_allclose(step.reward[0], want)
        obs = step.obs


def test_rewards_of_the_last_team_are_one_and_of_several_the_first_one_s_score():
    action = np.zeros((2, 2), np.int64)
    shared, own = (
        against({"prey": "random"}, sharing=how, masks=None) for how in ("team", "agent")
    )
    for env in (shared, own):
        env.reset(seed=0)
    assert (shared.spec.reward_per_agent, own.spec.reward_per_agent) == (False, True)
    one, each = shared.step(action), own.step(action)
    assert one.reward.shape == (2,) and each.reward.shape == (2, 2)
    np.testing.assert_allclose(one.reward, each.reward.sum(1))
    np.testing.assert_allclose(points_of(one), points_of(each))
    three = {"a": ["agent_0"], "b": ["agent_1", "agent_2"], "c": ["agent_3"]}
    for sharing in ("team", "agent"):
        env = against({"a": "random"}, sharing=sharing, teams=three, masks=None)
        assert env.spec.teams == (0, 0, 1) and env.spec.reward_per_agent
        env.reset(seed=0)
        step = env.step(np.zeros((2, 3), np.int64))
        np.testing.assert_allclose(points_of(step), [1 + 2 + 2 / 8] * 2)


def test_at_random_whatever_is_possible_is_played():
    log = []
    env = against({"agent_[13]": "random"}, log=log, teams=None)
    obs, random = env.reset(seed=0), np.random.default_rng(0)
    for _ in range(100):  # what is forbidden is refused by the game
        obs = env.step(any_of(obs["mask"], random)).obs
    seen = {
        actions[agent]
        for *_, actions in log
        for agent in ("agent_1", "agent_3")
        if agent in actions
    }
    assert seen == set(range(N_ACTIONS))


def test_what_is_played_is_the_same_again_without_a_seed_too():
    played = []
    for log in ([], []):
        env = against({"agent_[13]": "random"}, log=log, teams=None)
        obs = env.reset()
        for _ in range(20):
            obs = env.step(obs["mask"].argmax(-1)).obs
        played.append([actions for *_, actions in log])
    assert played[0] == played[1] and len(played[0]) > 20


class Numbers(Scripted):
    """Agents that give two numbers, and that do not all have the same bounds."""

    def __init__(self, scripts, **kwargs):
        super().__init__(scripts, masks=None, **kwargs)
        for i, agent in enumerate(self.possible_agents):
            self._act[agent] = spaces.Box(float(i), i + 1.0, (2,), np.float32)


def test_numbers_are_played_within_their_bounds(folder):
    log = []
    opponents = {"agent_3": "random", "agent_1": "players_of_this_test:half"}
    env = against(opponents, folder, cls=Numbers, log=log, teams=None)
    assert env.spec.action_low == (0, 0, 2, 2) and env.spec.action_high == (1, 1, 3, 3)
    env.reset(seed=0)
    env.step(np.full((2, 2, 2), 2.5, np.float32))
    for *_, actions in log:
        assert actions["agent_2"].tolist() == [2.5, 2.5] and actions["agent_0"].tolist() == [1, 1]
        assert actions["agent_1"].tolist() == [1, 1]  # .5, clipped
        assert ((actions["agent_3"] > 3) & (actions["agent_3"] < 4)).all()
    drawn = np.array([actions["agent_3"] for *_, actions in log])
    assert len(np.unique(drawn)) == 4


def section(type_, render=False, **kwargs):
    return SimpleNamespace(
        type=type_, gym_name=None, vectorization="auto", kwargs=kwargs, render=render
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Both agents of the two-step game, who remember."""
    folder = tmp_path_factory.mktemp("opponents") / "run"
    tianji.train(TASKS / "two_step_qmix.py", engine="local", run_dir=folder, seed=1)
    return folder


def two_step(opponents, n_envs=3):
    return make(section("MatrixGameEnv", opponents=opponents), n_envs, ".")


def test_a_run_plays_what_it_learned(run):
    env, whole = two_step({"agent_1": str(run)}), two_step(None)
    policy, random = tianji.load(run), np.random.default_rng(0)
    obs, all_see = env.reset(seed=0), whole.reset(seed=0)
    first = np.ones(3, bool)
    for _ in range(9):
        both = policy.act(all_see, first)
        both[:, 0] = random.integers(2, size=3)
        step, want = env.step(both[:, :1]), whole.step(both)
        np.testing.assert_array_equal(step.reward, want.reward)
        np.testing.assert_array_equal(step.obs["obs"], want.obs["obs"][:, :1])
        all_see, first = want.obs, want.first
    assert env.spec.agents == ("agent_0",) and obs["mask"].shape == (3, 1, 2)
    assert env.state() is None, "what the run remembers is not in it"


def test_restored_games_go_on_as_they_would_have():
    env, other = two_step({"agent_1": "random"}, 64), two_step({"agent_1": "random"}, 64)
    action = np.ones((64, 1), np.int64)
    env.reset(seed=3)
    env.step(action)
    state = copied(env.state())
    other.reset(seed=4)
    other.restore(state)
    for _ in range(5):
        one, two = env.step(action), other.step(action)
        np.testing.assert_array_equal(one.reward, two.reward)
        np.testing.assert_array_equal(one.obs["obs"], two.obs["obs"])


@pytest.mark.parametrize(
    ("opponents", "words"),
    [
        ({"pray": "random"}, "'pray'.*'prey'"),
        ({"bird": "random"}, "its agents are agent_0"),
        ({"agent_*": "random"}, "names all agents"),
        ({"hunters": "random", "prey": "random"}, "names all agents"),
        ({"prey": "random", "agent_1": "random"}, "'agent_1' is in 'prey' and in 'agent_1'"),
        ("random", "dict"),
        ({"prey": 3}, "dict"),
        ({"prey": "players_of_this_test:lust"}, "'last'"),
        ({"prey": "no_such_module_here:last"}, "no_such_module_here"),
        ({"prey": "runs/nothing"}, "runs/nothing"),
    ],
)
def test_opponents_that_cannot_be_are_refused(folder, opponents, words):
    with pytest.raises(TianJiError, match=words):
        against(opponents, folder)


def test_actions_of_another_form_are_refused(folder):
    env = against({"prey": "players_of_this_test:one"}, folder)
    env.reset()
    with pytest.raises(TianJiError, match=r"one gave int64\[2\]: want int64\[2, 2\]"):
        env.step(np.zeros((2, 2), np.int64))
    with pytest.raises(TianJiError, match=r"int64\[2, 2\], got int64\[2, 4\]"):
        env.step(np.zeros((2, 4), np.int64))


def test_a_run_that_does_not_fit_is_refused_with_what_was_found(run):
    mpe = pytest.importorskip("mpe2") and "MultiagentParticleEnv"
    with pytest.raises(TianJiError, match=r"want obs float32\[2, 12\].*found obs float32\[2, 3\]"):
        make(
            section(mpe, scenario_name="simple_spread", N=2, opponents={"agent_1": str(run)}),
            1,
            ".",
        )
    with pytest.raises(TianJiError, match="does not play 'adversary_0': it plays agent_0, agent_1"):
        make(section(mpe, scenario_name="simple_tag", opponents={"adversary_*": str(run)}), 1, ".")


def test_code_that_plays_counts_as_code_of_the_run():
    text = "environment = dict(type='MatrixGameEnv', opponents=dict(agent_1='mine:play'))"
    assert code_of(resolve(parse(text, "a"), (), "a", ".")) == ["mine:play"]
    text = text.replace("mine:play", "random")
    assert code_of(resolve(parse(text, "a"), (), "a", ".")) == []


def test_a_game_with_opponents_is_shown_and_tells_of_lost_episodes():
    pytest.importorskip("mpe2")
    wanted = section(
        "MultiagentParticleEnv", scenario_name="simple_tag", opponents={"agent_0": "random"}
    )
    env = make_shown(wanted, ".", None, Rendering.PICTURES)
    env.reset(seed=0)
    assert env.picture().ndim == 3 and env.fps == 10
    env.close()
    counts, own = np.zeros(len(Count)), make(wanted, 1, ".")
    EnvRestart(lambda: own, 0, Mishaps("actor-0.0", counts, 0)).mend(own)
    own.reset()
    broken = own._whole._games[0]
    outcome = broken.step
    broken.step = lambda *given: replace(outcome(*given), lost=True)
    assert own.step(np.zeros((1, 3), np.int64)).first[0] and counts[Count.LOST_EPISODES] == 1
