"""SMAX and JaxMARL's particles: every step once, no hidden reset, compiled once."""

import importlib.util
import os
from types import SimpleNamespace

import numpy as np
import pytest

from tianji.core.env import points_of
from tianji.core.errors import TianJiError
from tianji.core.state import copied
from tianji.envs import Rendering, make, make_shown
from tianji.envs.jax_games import SETTINGS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # of compiling, on a machine that does other things too
    pytest.mark.skipif(importlib.util.find_spec("jaxmarl") is None, reason="no jaxmarl, 600 MB"),
]


def section(type_, **kwargs):
    return SimpleNamespace(
        type=type_, gym_name=None, vectorization="auto", kwargs=kwargs, render=False
    )


def smax(n_envs, max_step=None, map_name="3m", **kwargs):
    return make(section("SMAXEnv", map_name=map_name, **kwargs), n_envs, ".", max_step)


def mpe(n_envs, scenario="simple_spread", **kwargs):
    kwargs |= {"scenario_name": scenario, "backend": "jax"}
    return make(section("MultiagentParticleEnv", **kwargs), n_envs, ".")


def played(env, n_steps, seed=0, obs=None):
    """All steps of a random policy, with copies of what is seen."""
    random, steps = np.random.default_rng(seed), []
    obs = env.reset(seed) if obs is None else obs
    for _ in range(n_steps):
        if "mask" in obs:
            action = (random.random(obs["mask"].shape) * obs["mask"]).argmax(-1)
        else:
            action = random.random((env.spec.n_envs, *env.spec.action.shape), np.float32)
        steps.append(env.step(action))
        obs = steps[-1].obs
    return steps


def test_the_settings_of_jax_leave_no_trace_in_the_environment():
    before = [os.environ.get(key) for key in SETTINGS]
    mpe(1)
    assert [os.environ.get(key) for key in SETTINGS] == before


def test_smax_battles_end_where_they_end():
    env = smax(8)
    assert {f.name: str(f) for f in env.spec.observations} == {
        "obs": "float32[3, 75]",
        "mask": "bool[3, 8]",
        "state": "float32[72]",
        "alive": "bool[3]",
    }
    assert env.spec.max_episode_steps == 101 and env.spec.reward.shape == ()
    ended = np.zeros(8, bool)
    for step in played(env, 150):
        np.testing.assert_array_equal(step.first, ended)
        np.testing.assert_array_equal(step.valid, ~ended)
        assert not step.reward[ended].any() and not step.truncated.any()
        assert step.obs["alive"][ended].all(), "a row that only resets shows a first observation"
        dead = ~step.obs["alive"]
        assert (step.obs["mask"][dead].sum(-1) == 1).all() and not step.obs["obs"][dead].any()
        assert step.won is not None and not (step.won & ~step.terminated).any()
        ended = step.terminated | step.truncated
    assert env._advance._cache_size() == 1, "compiled a second time"


@pytest.mark.parametrize("terminal", [True, False])
def test_the_time_limit_of_smax_is_a_setting(terminal):
    env = smax(2, max_steps=2, time_limit_terminal=terminal)
    steps = played(env, 4)
    assert [bool(s.terminated[0]) for s in steps] == [False, False, terminal, False]
    assert [bool(s.truncated[0]) for s in steps] == [False, False, not terminal, False]
    assert steps[3].first.all() and not steps[2].won.any()


def test_a_battle_against_a_silent_enemy_can_be_won():
    env = smax(16, enemy_shoots=False, max_steps=60, time_limit_terminal=False)
    obs, won, random = env.reset(0), np.zeros(16, bool), np.random.default_rng(0)
    for _ in range(60):
        # Shoots whenever it can, and goes east until then.
        action = np.where(obs["mask"][..., 5:].any(-1), 5 + obs["mask"][..., 5:].argmax(-1), 1)
        noise = (random.random(obs["mask"].shape) * obs["mask"]).argmax(-1)
        possible = np.take_along_axis(obs["mask"], action[..., None], -1)[..., 0]
        step = env.step(np.where(possible, action, noise))
        assert (step.reward[step.won] >= 1).all()
        won |= step.won
        obs = step.obs
    assert won.all()


def test_environment_e_is_the_same_whatever_e_is():
    few, many = smax(2), smax(5)
    np.testing.assert_array_equal(few.reset(3)["obs"], many.reset(3)["obs"][:2])
    np.testing.assert_array_equal(few.reset(4)["obs"], many.reset(3)["obs"][1:3])


def test_a_restored_environment_goes_on_within_the_same_episodes():
    env, other = smax(4), smax(4)
    obs = played(env, 20)[-1].obs
    state = copied(env.state())
    want = played(env, 40, seed=1, obs=obs)
    other.restore(state)
    for one, two in zip(want, played(other, 40, seed=1, obs=obs), strict=True):
        np.testing.assert_array_equal(one.reward, two.reward)
        np.testing.assert_array_equal(one.obs["state"], two.obs["state"])


def test_particles_last_as_long_as_mpe2_s():
    steps = played(mpe(64), 26)
    cut = [bool(step.truncated.all()) for step in steps]
    assert cut == [False] * 24 + [True, False] and not any(s.terminated.any() for s in steps)
    assert steps[-1].first.all()
    returned = sum(points_of(step) for step in steps)
    assert -95 < returned.mean() < -65, "a random policy gets -81 in the units of mpe2"


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("scenario", ["simple_tag", "simple_world_comm", "simple_speaker_listener"])
def test_particles_are_padded_and_have_teams(scenario, continuous):
    env = mpe(2, scenario, continuous_actions=continuous, reward="team")
    spec = env.spec
    like = make(
        section("MultiagentParticleEnv", scenario_name=scenario, continuous_actions=continuous),
        2,
        ".",
    ).spec
    for fact in ("agents", "teams", "own_inputs", "own_actions", "action", "observations"):
        assert getattr(spec, fact) == getattr(like, fact), fact
    step = played(env, 3)[-1]
    assert step.reward.shape == (2, *spec.reward.shape)
    assert (step.score is not None) == (spec.n_teams > 1)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"map_name": "2s3"}, "'2s3z'"),
        ({"map_name": "3m", "atack_mode": "closest"}, "atack_mode"),
        ({"map_name": "3m", "action_type": "continuous"}, "action_type"),
    ],
)
def test_wrong_maps_and_keys_are_refused(kwargs, words):
    with pytest.raises(TianJiError, match=words):
        make(section("SMAXEnv", **kwargs), 1, ".")


def test_smax_cannot_be_filmed():
    with pytest.raises(TianJiError, match="cannot be shown"):
        make_shown(section("SMAXEnv", map_name="3m"), ".", None, Rendering.PICTURES)
