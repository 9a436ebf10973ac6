"""Environments of several agents: every step once and true, the dead masked, bad ones refused."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_agents import N_ACTIONS, Script, Scripted

from tianji.config.loader import resolve
from tianji.config.reader import parse
from tianji.core.counts import Count
from tianji.core.env import EnvSpec, points_of
from tianji.core.errors import TianJiError
from tianji.core.imports import load_class
from tianji.core.mishaps import Mishaps, said
from tianji.core.schema import Field
from tianji.envs import make
from tianji.envs.agents import AgentsLoop, GameOutcome, RewardShares, agents_spec, teams_of
from tianji.envs.pettingzoo import ParallelGame
from tianji.job.job import BUILT_IN
from tianji.job.preflight import try_out
from tianji.roles.env_restart import EnvRestart

pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")


def loop(envs, sharing="agent", max_step=None, time_limit_terminal=False, teams=None):
    games = [ParallelGame("scripted", env, teams) for env in envs]
    return AgentsLoop(
        "scripted",
        games,
        max_step=max_step,
        time_limit_terminal=time_limit_terminal,
        sharing=sharing,
    )


def choose(random, mask):
    """One of the possible actions of each agent."""
    return (random.random(mask.shape) * mask).argmax(-1)


@st.composite
def scripts(draw, n_agents):
    lengths = st.integers(1, 5)
    episodes = []
    for _ in range(draw(st.integers(1, 3))):
        absent = draw(st.lists(st.integers(1, n_agents - 1), max_size=n_agents - 1, unique=True))
        episodes.append(
            Script(
                tuple(draw(lengths) for _ in range(n_agents)),
                tuple(draw(st.booleans()) for _ in range(n_agents)),
                tuple(absent),
            )
        )
    return episodes


@settings(max_examples=40, deadline=None)
@given(data=st.data(), n_envs=st.integers(1, 3), masks=st.sampled_from(["obs", "info", None]))
def test_every_step_made_is_a_valid_row_once_and_true(data, n_envs, masks):
    n_agents = 3
    envs = [Scripted(data.draw(scripts(n_agents)), [4, 6, 5], masks) for _ in range(n_envs)]
    env = loop(envs)
    random, made = np.random.default_rng(0), [[] for _ in envs]
    obs = env.reset(seed=1)
    for _ in range(25):
        alive, mask = obs["alive"].copy(), obs["mask"].copy()
        action = choose(random, mask)
        step = env.step(action)
        obs = step.obs
        for e, each in enumerate(envs):
            if not step.valid[e]:
                assert step.first[e] and not step.reward[e].any() and each.t == 0
                assert not (step.terminated[e] or step.truncated[e])
                continue
            made[e].append(each.log[-1])
            check_row(each, e, step, alive[e], action[e])
    for e, each in enumerate(envs):
        assert made[e] == each.log, "each step once, in order"


def check_row(env, e, step, alive_before, action):
    """One valid row against what the environment's own log says."""
    _, t, playing, left, actions = env.log[-1]
    script, names = env.script, env.possible_agents
    for i, name in enumerate(names):
        assert alive_before[i] == (name in playing)
        if name in playing:
            assert actions[name] == action[i]
        want = float(i + t / 8) if name in playing else 0.0
        assert step.reward[e, i] == want
        row, mask = step.obs["obs"][e, i], step.obs["mask"][e, i]
        shown = name in left or (not left and name in playing)  # the last observation of an episode
        if shown:
            np.testing.assert_array_equal(row[: env.sizes[i]], env.sees(i, t))
            assert not row[env.sizes[i] :].any()
            own = np.ones(N_ACTIONS, bool) if env.masks is None else env.mask(i, t).astype(bool)
            np.testing.assert_array_equal(mask, own)
        else:
            assert not row.any() and mask.tolist() == [True] + [False] * (N_ACTIONS - 1)
        still = name in left or (not left and name in playing and script.cut[i])
        assert step.obs["alive"][e, i] == still
    cut = any(script.cut[names.index(name)] for name in playing)
    assert step.truncated[e] == (not left and cut)
    assert step.terminated[e] == (not left and not cut)
    np.testing.assert_array_equal(step.obs["state"][e], [env.episode, t])


def three(cls=Scripted, **kwargs):
    return cls([Script((2, 3, 3), (False,) * 3)], **kwargs)


def test_the_spec_says_what_is_padded_and_travels_as_json():
    spec = loop([three(sizes=[4, 6, 5])], teams={"odd": ["agent_1"], "even": "agent_[02]"}).spec
    assert spec.agents == ("agent_0", "agent_1", "agent_2")
    assert (spec.teams, spec.n_teams) == ((1, 0, 1), 2)
    assert (spec.own_inputs, spec.own_actions) == ((4, 6, 5), ())
    assert {f.name: str(f) for f in spec.observations} == {
        "obs": "float32[3, 6]",
        "mask": "bool[3, 4]",
        "state": "float32[2]",
        "alive": "bool[3]",
    }
    assert (spec.n_actions, str(spec.action), spec.reward.shape) == (4, "int64[3]", (3,))
    assert EnvSpec.from_json(spec.to_json()) == spec


def test_a_missing_state_is_all_that_the_agents_see():
    env = loop([three(sizes=[4, 6, 5], state=False)])
    obs = env.reset()
    assert obs["state"].shape == (1, 15)
    np.testing.assert_array_equal(obs["state"][0, 4:10], obs["obs"][0, 1])


class Pixels(Scripted):
    """Agents that see bytes, of as many places as `sizes` says."""

    def _space(self, i):
        return spaces.Box(0, 255, (self.sizes[i],), np.uint8)

    def sees(self, i, t):
        return np.full(self.sizes[i], 51 * (i + t), np.uint8)


@pytest.mark.parametrize(("sizes", "unit"), [([4, 4, 4], 51), ([4, 6, 5], 0.2)])
def test_bytes_lie_between_0_and_1_wherever_they_become_floats(sizes, unit):
    env = loop([three(cls=Pixels, sizes=sizes, masks=None, state=False)])
    obs = env.reset()
    assert obs["obs"].dtype == (np.uint8 if unit == 51 else np.float32)
    np.testing.assert_allclose(obs["obs"][0, :, 0], [0, unit, 2 * unit], rtol=1e-6)
    assert obs["state"].dtype == np.float32
    np.testing.assert_allclose(obs["state"][0, [0, -1]], [0, 0.4], rtol=1e-6)


class Continuous(Scripted):
    """Agents that move by one and by two numbers."""

    def __init__(self, scripts):
        super().__init__(scripts, masks=None)
        for i, agent in enumerate(self.possible_agents):
            self._act[agent] = spaces.Box(0.0, 2.0, (1 + i % 2,), np.float32)


def test_continuous_actions_are_clipped_and_their_padding_is_ignored():
    each = Continuous([Script((2, 2, 2), (False,) * 3)])
    env = loop([each])
    assert (str(env.spec.action), env.spec.own_actions) == ("float32[3, 2]", (1, 2, 1))
    assert env.spec.action_low == (0, -1, 0, 0, 0, -1) and env.spec.action_high[1] == 1
    assert "mask" not in env.reset()
    env.step(np.full((1, 3, 2), 5, np.float32))
    assert [a.tolist() for a in each.log[-1][4].values()] == [[2.0], [2.0, 2.0], [2.0]]


def test_max_step_cuts_and_a_terminal_time_limit_ends():
    long = Script((9, 9, 9), (False,) * 3)
    for terminal in (False, True):
        env = loop([Scripted([long], masks=None)], max_step=2, time_limit_terminal=terminal)
        assert env.spec.max_episode_steps == 2
        env.reset()
        ends = [env.step(np.zeros((1, 3), np.int64)) for _ in range(1)]
        assert not (ends[0].terminated[0] or ends[0].truncated[0])
        last = env.step(np.zeros((1, 3), np.int64))
        assert (last.terminated[0], last.truncated[0]) == (terminal, not terminal)
        assert last.obs["alive"].all()
        assert env.step(np.zeros((1, 3), np.int64)).first[0]


def test_rewards_of_teams_are_shared_within_them_and_the_first_one_has_the_score():
    own = np.array([[1, 2, 4]], np.float32)

    def shared(sharing, teams):
        spec = agents_spec("abc", three_obs(), 1, n_actions=2, teams=teams)
        reward, score = RewardShares("x", spec, sharing).of(own)
        return reward.tolist(), None if score is None else score.tolist()

    assert shared("agent", (0, 0, 0)) == ([[1, 2, 4]], None)
    assert shared("team", (0, 0, 0)) == ([7], None)
    assert shared("agent", (0, 1, 0)) == ([[1, 2, 4]], [5])
    assert shared("team", (0, 1, 0)) == ([[5, 2, 5]], [5])


@pytest.mark.parametrize(
    ("sharing", "teams", "ends_alone"),
    [
        ("agent", {"all": ["*"]}, True),
        ("team", {"all": ["*"]}, False),
        ("agent", {"a": ["agent_0"], "b": ["agent_1", "agent_2"]}, True),
        ("team", {"a": ["agent_0"], "b": ["agent_1", "agent_2"]}, False),
    ],
)
def test_only_an_agent_with_rewards_of_its_own_gains_nothing_more_when_it_leaves(
    sharing, teams, ends_alone
):
    assert loop([three(masks=None)], sharing=sharing, teams=teams).spec.ends_alone is ends_alone


def three_obs():
    return Field("obs", "float32", (2,))


def test_points_are_the_sum_over_agents_with_one_team():
    env = loop([three(masks=None)], sharing="team")
    env.reset()
    assert points_of(env.step(np.zeros((1, 3), np.int64))).tolist() == [3 + 3 / 8]


@pytest.mark.parametrize(
    ("teams", "words"),
    [
        ({"a": ["agent_0", "agnt_1"]}, "'agent_1'"),
        ({"a": ["agent_0"]}, "agent_1"),
        ({"a": ["agent_*"], "b": ["agent_2"]}, "two teams"),
        (["agent_0"], "teams"),
    ],
)
def test_teams_that_do_not_fit_the_agents_are_refused(teams, words):
    with pytest.raises(TianJiError, match=words):
        teams_of("x", ["agent_0", "agent_1", "agent_2"], teams)


class Growing(Scripted):
    def step(self, actions):
        result = super().step(actions)
        if self.t == 2:
            self.agents = list(self.possible_agents)
        return result


class Nameless(Scripted):
    def __init__(self, scripts):
        super().__init__(scripts)
        self.possible_agents = []


class Stuck(Scripted):
    def mask(self, i, t):
        return np.zeros(N_ACTIONS, np.int8) if (i, t) == (1, 1) else super().mask(i, t)


class Stranger(Scripted):
    def reset(self, seed=None, options=None):
        result = super().reset()
        self.agents = [*self.agents, "guest"]
        return result


class Narrow(Scripted):
    def mask(self, i, t):
        return super().mask(i, t)[:2]


class Blind(Scripted):
    def _all_see(self, agents):
        return {a: v for a, v in super()._all_see(agents).items() if a != "agent_1"}


class NotFinite(Scripted):
    def sees(self, i, t):
        return super().sees(i, t) + (np.nan if t == 1 else 0)


class Turns(Scripted):
    def __init__(self, scripts):
        super().__init__(scripts)
        self._act["agent_1"] = spaces.MultiDiscrete([2, 2])


@pytest.mark.parametrize(
    ("cls", "script", "words"),
    [
        (Growing, Script((1, 3, 3), (False,) * 3), "'agent_0' appeared during an episode"),
        (Growing, Script((3, 3, 3), (False,) * 3, (1,)), "'agent_1' appeared"),
        (Nameless, Script((3,), (False,)), "possible_agents"),
        (Stuck, Script((3, 3, 3), (False,) * 3), "'agent_1' forbids all 4"),
        (Stranger, Script((3, 3, 3), (False,) * 3), "'guest' is not in possible_agents"),
        (Narrow, Script((3, 3, 3), (False,) * 3), r"want \[4\]"),
        (Blind, Script((3, 3, 3), (False,) * 3), "no observation for agent 'agent_1'"),
        (NotFinite, Script((3, 3, 3), (False,) * 3), "'obs' has NaN or Inf at step 1"),
        (Turns, Script((3, 3, 3), (False,) * 3), "action spaces"),
    ],
)
def test_broken_environments_are_refused(cls, script, words):
    with pytest.raises(TianJiError, match=words):
        env = loop([cls([script])])
        obs = env.reset()
        for _ in range(2):
            obs = env.step(obs["mask"].argmax(-1)).obs


def test_the_end_may_forbid_everything():
    class Ending(Scripted):
        def mask(self, i, t):
            return np.zeros(N_ACTIONS, np.int8) if t == 2 else np.ones(N_ACTIONS, np.int8)

    env = loop([Ending([Script((2, 2, 2), (True,) * 3)])])
    obs = env.reset()
    for _ in range(2):
        step = env.step(obs["mask"].argmax(-1))
    assert step.truncated[0] and step.obs["mask"][0].sum(-1).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (np.full((1, 3), 9), "outside its mask"),
        (np.full((1, 3), -1), "outside its mask"),
        (np.ones((1, 3), np.int64), r"'agent_0' in environment 0 .*possible are \[0, 2, 3\]"),
        (np.zeros((1, 2), np.int64), r"int64\[1, 3\]"),
        (np.zeros((1, 3)), "float64"),
    ],
)
def test_actions_that_cannot_be_taken_are_refused(action, words):
    env = loop([three()])
    env.reset()
    with pytest.raises(TianJiError, match=words):
        env.step(action)


def test_an_action_for_an_environment_that_only_resets_may_be_any():
    env = loop([Scripted([Script((1, 1, 1), (False,) * 3)], masks=None)])
    env.reset()
    env.step(np.zeros((1, 3), np.int64))
    assert env.step(np.full((1, 3), 99)).first[0]


class Breaking:
    """A game that breaks in every step."""

    spec = agents_spec(["a"], three_obs(), 1, n_actions=1)

    def reset(self, rows, seed=None):
        rows["mask"][...] = True
        self.resets = getattr(self, "resets", 0) + 1

    def step(self, action, rows):
        return GameOutcome(0.0, False, False, lost=True)

    def close(self):
        pass


def test_lost_episodes_count_as_resets_until_there_are_too_many():
    game = Breaking()
    env = AgentsLoop("x", [game], max_step=None, time_limit_terminal=False)
    env.reset()
    action = np.zeros((1, 1), np.int64)
    for n in range(1, 11):
        step = env.step(action)
        assert (step.valid[0], step.first[0], env.n_lost, game.resets) == (False, True, n, n + 1)
        assert not (step.terminated[0] or step.truncated[0])
    with pytest.raises(TianJiError, match="10 episodes"):
        env.step(action)


def test_lost_episodes_are_told_to_whoever_counts_mishaps():
    env = AgentsLoop("x", [Breaking()], max_step=None, time_limit_terminal=False)
    counts = np.zeros(len(Count))
    mishaps = Mishaps("actor-0.0", counts, budget=0)  # which they use up nothing of
    EnvRestart(lambda: env, 0, mishaps).mend(env)
    env.reset()
    for _ in range(2):
        env.step(np.zeros((1, 1), np.int64))
    assert counts[Count.LOST_EPISODES] == 2 and counts.sum() == 2
    assert "environment 0" in said(mishaps.words)


def section(type_, **kwargs):
    return SimpleNamespace(
        type=type_, gym_name=None, vectorization="auto", kwargs=kwargs, render=False
    )


@pytest.mark.parametrize(
    ("type_", "kwargs", "words"),
    [
        ("PettingZooEnv", {}, "name"),
        ("PettingZooEnv", {"name": "nowhere_v1"}, "nowhere_v1"),
        ("PettingZooEnv", {"name": "pettingzoo.utils.agent_selectr"}, "'agent_selector'"),
        ("PettingZooEnv", {"name": "scripted_agents"}, "parallel_env"),
        ("PettingZooEnv", {"name": "scripted_agents:Scriptd"}, "'Scripted'"),
        ("PettingZooEnv", {"name": "scripted_agents:Scripted", "size": 3}, "size"),
        ("PettingZooEnv", {"name": "scripted_agents:Script", "lasts": 1, "cut": 1}, "possible"),
        ("MatrixGameEnv", {"size": 3}, "size"),
    ],
)
def test_bad_keys_are_told_by_name(type_, kwargs, words):
    with pytest.raises(TianJiError, match=words):
        make(section(type_, **kwargs), 1, ".")


def test_ways_of_stepping_that_do_not_fit_are_refused():
    for mode in ("single", "vector"):
        with pytest.raises(TianJiError, match="vectorization"):
            wanted = section("MatrixGameEnv")
            wanted.vectorization = mode
            make(wanted, 2, ".")


FOR_ONE = [name for name, path in BUILT_IN.items() if not load_class(path, ".").several_agents]


@pytest.mark.parametrize("name", FOR_ONE)
def test_algorithms_of_one_agent_refuse_several(name):
    text = f"environment = dict(type='MatrixGameEnv')\nagent = dict(type={name!r})"
    with pytest.raises(TianJiError) as caught:
        try_out(resolve(parse(text, "a"), (), "a", "."))
    for word in ("MatrixGameEnv", "2: ", repr(name), "one agent", "several_agents"):
        assert word in str(caught.value)


def test_own_functions_are_named_in_the_config():
    one = Script((1, 1), (False, False))
    env = make(section("PettingZooEnv", name="scripted_agents:Scripted", scripts=[one]), 2, ".")
    assert env.spec.n_envs == 2 and env.reset()["obs"].shape == (2, 2, 4)
    assert env.picture().shape == (2, 3, 3)


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(TianJiError, match=r"tianji\[mpe\]"):
        make(section("PettingZooEnv", name="scripted_agents:Scripted"), 1, ".")


def test_the_two_step_game_pays_what_the_paper_says():
    env = make(section("MatrixGameEnv"), 8, ".")
    first = np.array([[a, 0] for a in (0, 1) for _ in range(4)])
    second = np.array([[a, b] for _ in range(2) for a in (0, 1) for b in (0, 1)])
    assert env.reset()["state"].tolist() == [[1, 0, 0]] * 8
    step = env.step(first)
    assert not step.reward.any() and step.obs["state"][:, 1].tolist() == [1] * 4 + [0] * 4
    state = env.state()
    step = env.step(second)
    assert step.reward.tolist() == [7, 7, 7, 7, 0, 1, 1, 8] and step.terminated.all()
    again = env.step(second)
    assert again.first.all() and not again.valid.any() and not again.reward.any()
    env.restore(state)
    assert env.step(second).reward.tolist() == [7, 7, 7, 7, 0, 1, 1, 8]
