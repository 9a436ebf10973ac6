"""Particle environments and foraging through their own libraries, step for step."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from scripted_agents import Script, Scripted

from tianji.core.env import points_of
from tianji.core.errors import TianJiError
from tianji.envs import Rendering, make, make_shown
from tianji.envs.mpe import VERSIONS

pytest.importorskip("mpe2", reason="mpe2 is not installed")
api = pytest.importorskip("pettingzoo.test", reason="pettingzoo is not installed")
TASK = "Foraging-5x5-2p-1f-v3"


def section(type_, **kwargs):
    return SimpleNamespace(
        type=type_, gym_name=None, vectorization="auto", kwargs=kwargs, render=False
    )


def mpe(scenario, n_envs=1, **kwargs):
    return make(section("MultiagentParticleEnv", scenario_name=scenario, **kwargs), n_envs, ".")


def lbf(n_envs=1, max_step=None, name=TASK, **kwargs):
    pytest.importorskip("lbforaging", reason="lbforaging is not installed")
    return make(section("LBFEnv", name=name, **kwargs), n_envs, ".", max_step)


def test_pettingzoo_s_own_test_passes_on_the_scripted_environment():
    scripts = [Script((3, 5, 4), (False, True, False)), Script((2, 2, 1), (True,) * 3)]
    for masks in ("obs", None):  # a mask in info alone is not known to its samples
        api.parallel_api_test(Scripted(scripts, masks=masks), num_cycles=20)


@pytest.mark.parametrize("scenario", sorted(VERSIONS.values()))
@pytest.mark.filterwarnings("ignore:Environment's m.*imum state space value")
def test_pettingzoo_s_own_tests_pass_on_what_is_wrapped(scenario, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")  # a window that nobody sees
    module = importlib.import_module(f"mpe2.{scenario}")
    api.parallel_api_test(module.parallel_env(max_cycles=25), num_cycles=30)
    api.parallel_seed_test(module.parallel_env, num_cycles=5)
    api.state_test(module.env(max_cycles=25), module.parallel_env(max_cycles=25))
    api.max_cycles_test(module)
    api.render_test(module.env)


@pytest.mark.parametrize("scenario", sorted(VERSIONS))
@pytest.mark.parametrize("continuous", [False, True])
def test_every_scenario_gives_what_mpe2_gives(scenario, continuous):
    env = mpe(scenario, max_cycles=4, continuous_actions=continuous)
    own = importlib.import_module(f"mpe2.{VERSIONS[scenario]}").parallel_env(
        max_cycles=4, continuous_actions=continuous
    )
    obs, (theirs, _) = env.reset(seed=3), own.reset(seed=3)
    random, agents = np.random.default_rng(0), env.spec.agents
    for t in range(1, 5):
        for a, agent in enumerate(agents):
            size = theirs[agent].size
            np.testing.assert_array_equal(obs["obs"][0, a, :size], theirs[agent])
            assert not obs["obs"][0, a, size:].any() and obs["alive"].all()
        np.testing.assert_array_equal(obs["state"][0], own.state())
        if continuous:
            action = random.random((1, *env.spec.action.shape), np.float32)
            sizes = env.spec.own_actions or (action.shape[-1],) * len(agents)
            moves = {agent: action[0, a, : sizes[a]] for a, agent in enumerate(agents)}
        else:
            action = (random.random(obs["mask"].shape) * obs["mask"]).argmax(-1)
            moves = {agent: int(action[0, a]) for a, agent in enumerate(agents)}
        step, (theirs, rewards, *_) = env.step(action), own.step(moves)
        np.testing.assert_allclose(step.reward[0], [rewards[a] for a in agents], rtol=1e-6)
        assert (step.terminated[0], step.truncated[0]) == (False, t == 4)
        obs = step.obs
    env.close()


def test_adversaries_are_the_first_team_unless_told_otherwise():
    tag = mpe("simple_tag").spec
    assert (tag.teams, tag.own_inputs) == ((0, 0, 0, 1), (16, 16, 16, 14))
    assert mpe("simple_crypto").spec.teams == (0, 1, 1)
    assert mpe("simple_spread").spec.teams == (0, 0, 0)
    prey = mpe("simple_tag", teams={"prey": "agent_0", "hunters": "adversary_*"}).spec
    assert prey.teams == (1, 1, 1, 0)


def test_the_score_of_opponents_is_the_first_team_s():
    env = mpe("simple_tag", 4, reward="team")
    env.reset(seed=1)
    random = np.random.default_rng(0)
    for _ in range(20):
        step = env.step(random.integers(5, size=(4, 4)))
        np.testing.assert_allclose(points_of(step), step.reward[:, 0])
        np.testing.assert_allclose(step.reward[:, 0], step.reward[:, 2])


def test_the_local_ratio_is_the_published_one():
    rewards = []
    for kwargs in ({}, {"local_ratio": 0.5}, {"local_ratio": 0.0}):
        env = mpe("simple_spread", 8, **kwargs)
        env.reset(seed=1)
        rewards.append([env.step(np.ones((8, 3), np.int64)).reward for _ in range(10)])
    assert np.array_equal(rewards[0], rewards[1]) and not np.array_equal(rewards[0], rewards[2])


@pytest.mark.parametrize("backend", ["mpe2", "jax"])
def test_a_game_can_be_filmed_and_is_then_mpe2_s(backend, capsys):
    wanted = section("MultiagentParticleEnv", scenario_name="simple_tag", backend=backend)
    env = make_shown(wanted, ".", None, Rendering.PICTURES)
    assert ("note: MPE simple_tag" in capsys.readouterr().err) == (backend == "jax")
    env.reset(seed=0)
    picture = env.picture()
    assert picture.ndim == 3 and picture.dtype == np.uint8 and env.fps == 10
    for _ in range(2):
        env.step(np.ones((1, 4), np.int64))
    assert (env.picture() != picture).any()
    env.close()


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"scenario_name": "simple_spred"}, "'simple_spread'"),
        ({"scenario_name": "predator_prey"}, "never released"),
        ({"scenario_name": "simple_spread", "backend": "torch"}, "'torch'"),
        ({"scenario_name": "simple_line", "backend": "jax"}, "mpe2 only"),
        ({"scenario_name": "simple_spread", "speed": 3}, "speed"),
        ({"scenario_name": "simple_spread", "reward": "all"}, "'all'"),
        ({"scenario_name": "simple_tag", "teams": {"a": ["agent_9"]}}, "'agent_9'"),
    ],
)
def test_wrong_scenarios_and_keys_are_refused(kwargs, words):
    with pytest.raises(TianJiError, match=words):
        make(section("MultiagentParticleEnv", **kwargs), 1, ".")


def test_foraging_gives_what_lbforaging_gives():
    env = lbf()
    gymnasium = pytest.importorskip("gymnasium")
    own = gymnasium.make(TASK, disable_env_checker=True).unwrapped
    obs, (theirs, _) = env.reset(seed=5), own.reset(seed=5)
    random, over = np.random.default_rng(0), False
    while not over:
        np.testing.assert_array_equal(obs["obs"][0], np.array(theirs))
        np.testing.assert_array_equal(obs["state"][0], np.concatenate(theirs))
        action = random.integers(6, size=(1, 2))
        step, (theirs, rewards, over, *_) = env.step(action), own.step(action[0])
        obs = step.obs
        np.testing.assert_allclose(step.reward[0], rewards, rtol=1e-6)
    assert step.terminated[0] and env.step(action).first[0]
    assert env.spec.max_episode_steps == 50


def test_the_end_of_foraging_is_told_from_its_time_limit():
    env, random, ends = lbf(8, time_limit_terminal=False), np.random.default_rng(0), []
    env.reset(seed=0)
    returned = np.zeros(8)
    for _ in range(120):
        step = env.step(random.integers(6, size=(8, 2)))
        returned += points_of(step)
        for e in np.flatnonzero(step.terminated | step.truncated):
            ends.append((bool(step.terminated[e]), round(float(returned[e]), 3)))
            returned[e] = 0
    assert {terminated for terminated, _ in ends} == {True, False}
    assert all((points == 1) == terminated for terminated, points in ends)


def test_foraging_is_asked_for_a_picture_where_one_is_wanted():
    """Its render() shows a window unless it is told again; a display is not needed to see that."""
    pytest.importorskip("lbforaging", reason="lbforaging is not installed")

    class Viewer:
        def render(self, env, return_rgb_array):
            return np.full((4, 4, 3), 7, np.uint8) if return_rgb_array else True

    from tianji.envs.lbf import ForagingGame

    game = ForagingGame(TASK, {"render_mode": "rgb_array"})
    game._env._rendering_initialized, game._env.viewer = True, Viewer()
    assert game.render().shape == (4, 4, 3)


@pytest.mark.parametrize("name", ["Foraging-8x8-2p-9f-v3", "Foraging-8x8-2p-1f", "CartPole"])
def test_unknown_foraging_tasks_are_refused(name):
    with pytest.raises(TianJiError, match="1f to 4f"):
        lbf(name=name)
