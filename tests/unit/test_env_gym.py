"""The gymnasium adapter: names, spaces, seeds and everything an environment can do wrong."""

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Text
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tianji.core.errors import TianJiError
from tianji.envs import make
from tianji.envs.gym import VectorAdapter
from tianji.envs.loop import LoopEnv

LINE = Box(-1, 1, (4,), np.float32)


def config(gym_name="CartPole-v1", vectorization="auto", render=False, type="GymEnv", **kwargs):
    return SimpleNamespace(
        type=type, gym_name=gym_name, vectorization=vectorization, kwargs=kwargs, render=render
    )


class Scripted(gymnasium.Env):
    """Shows and pays what the test tells it to, one entry per step; repeats the last one."""

    def __init__(self, space=LINE, shows=(None,), pays=(1.0,), actions=None, first=None, **unused):
        assert not unused or unused == {"render_mode": None}
        self.observation_space, self.action_space = space, actions or Discrete(2)
        self.shows, self.pays, self.first = shows, pays, first
        self.given = []

    def _pick(self, values, i):
        value = values[min(i, len(values) - 1)]
        return np.zeros(4, np.float32) if value is None else value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return self._pick([self.first if self.first is not None else self.shows[0]], 0), {}

    def step(self, action):
        self.given.append(action)
        self.n += 1
        return (
            self._pick(self.shows, self.n),
            self.pays[min(self.n, len(self.pays)) - 1],
            False,
            False,
            {},
        )


class ScriptedVector(VectorEnv):
    """Two environments that show and pay what the test tells them to."""

    def __init__(self, num_envs, mode=AutoresetMode.NEXT_STEP, **result):
        self.metadata = {"autoreset_mode": mode}
        self.num_envs, self.result = num_envs, result
        space, actions = result.get("space", LINE), result.get("actions", Discrete(2))
        self.single_observation_space, self.single_action_space = space, actions
        self.observation_space = batch_space(space, num_envs)
        self.action_space = batch_space(actions, num_envs)

    def reset(self, *, seed=None, options=None):
        return self.result.get("first", np.zeros((self.num_envs, 4), np.float32)), {}

    def step(self, actions):
        self.given = actions
        still, no = np.zeros((self.num_envs, 4), np.float32), np.zeros(self.num_envs, bool)
        obs, reward = (
            self.result.get("obs", still),
            self.result.get("reward", np.zeros(self.num_envs)),
        )
        return obs, reward, self.result.get("ended", no), no, self.result.get("infos", {})


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Scripted-v0", entry_point=Scripted, vector_entry_point=ScriptedVector)
    yield
    del gymnasium.registry["Scripted-v0"]


def scripted(n_envs=1, vectorization="sync", **kwargs):
    return make(config("Scripted-v0", vectorization, **kwargs), n_envs, ".")


def zeros(n):
    return np.zeros(n, np.int64)


# What is made


def test_one_cartpole_follows_the_plain_one_step_by_step():
    plain, ours = gymnasium.make("CartPole-v1"), make(config(), 1, ".")
    random = np.random.default_rng(3)
    expected, _ = plain.reset(seed=7)
    obs, ended = ours.reset(seed=7)["obs"], False
    for _ in range(300):
        np.testing.assert_array_equal(obs[0], expected)
        action = random.integers(2, size=1)
        step = ours.step(action)
        obs = step.obs["obs"]
        assert step.valid[0] == (not ended)
        if ended:
            (expected, _), ended = plain.reset(), False
        else:
            expected, reward, terminated, truncated, _ = plain.step(int(action[0]))
            ended = terminated or truncated
            got = (step.reward[0], step.terminated[0], step.truncated[0])
            assert got == (reward, terminated, truncated)


def test_environment_e_gets_seed_plus_e():
    obs = make(config(vectorization="sync"), 3, ".").reset(seed=5)["obs"]
    for e in range(3):
        np.testing.assert_array_equal(obs[e], gymnasium.make("CartPole-v1").reset(seed=5 + e)[0])


def test_auto_takes_the_vector_environment_where_there_is_one_and_it_pays():
    assert isinstance(make(config(), 4, "."), VectorAdapter)
    assert isinstance(make(config(), 1, "."), LoopEnv)
    assert isinstance(make(config("Acrobot-v1"), 4, "."), LoopEnv)


def test_the_spec_says_what_gymnasium_knows():
    for vectorization in ("sync", "vector"):
        spec = make(config(vectorization=vectorization), 2, ".").spec
        assert (spec.n_actions, spec.reward_threshold, spec.max_episode_steps) == (2, 475.0, 500)
        assert (str(spec.observations[0]), spec.n_envs, spec.same_step) == ("float32[4]", 2, False)
    assert scripted().spec.reward_threshold is None


@pytest.mark.parametrize("vectorization", ["sync", "vector"])
def test_max_step_shortens_episodes_and_never_lengthens_them(vectorization):
    env = make(config(vectorization=vectorization), 2, ".", max_step=2)
    env.reset(seed=0)
    env.step(zeros(2))
    step = env.step(zeros(2))
    assert step.truncated.all() and not step.terminated.any() and env.spec.max_episode_steps == 2
    assert (
        make(config(vectorization=vectorization), 2, ".", max_step=900).spec.max_episode_steps
        == 500
    )


def test_continuous_actions_have_bounds():
    env = make(config("Pendulum-v1"), 2, ".")
    assert (str(env.spec.action), env.spec.n_actions) == ("float32[1]", None)
    assert (env.spec.action_low, env.spec.action_high) == ((-2.0,), (2.0,))
    env.reset(seed=0)
    assert env.step(np.ones((2, 1), np.float32)).obs["obs"].shape == (2, 3)


def test_a_discrete_observation_becomes_one_hot():
    env = make(config("FrozenLake-v1", is_slippery=False), 2, ".")
    assert str(env.spec.observations[0]) == "float32[16]"
    assert env.reset(seed=0)["obs"].argmax(axis=1).tolist() == [0, 0]
    obs = env.step(np.array([1, 2])).obs["obs"]
    assert obs.argmax(axis=1).tolist() == [4, 1] and obs.sum() == 2


def test_pictures_stay_bytes():
    env = scripted(space=Box(0, 255, (4,), np.uint8), shows=(np.full(4, 200, np.uint8),))
    assert env.spec.observations[0].dtype == "uint8"
    assert env.reset()["obs"][0].tolist() == [200] * 4


def test_double_precision_is_cast():
    env = scripted(shows=(np.full(4, 0.5),))
    assert env.reset()["obs"].dtype == np.float32
    assert env.step(zeros(1)).obs["obs"].tolist() == [[0.5] * 4]


def test_large_but_finite_numbers_pass():
    env = scripted(shows=(np.full(4, 3e38, np.float32),))
    env.reset()
    assert env.step(zeros(1)).obs["obs"][0, 0] == np.float32(3e38)


def test_discrete_actions_start_where_the_space_does():
    env = scripted(n_envs=2, actions=Discrete(3, start=-1))
    env.reset()
    env.step(np.array([0, 2]))
    assert [single.unwrapped.given for single in env._envs] == [[-1], [1]]
    vector = scripted(2, "vector", actions=Discrete(3, start=-1))
    vector.step(np.array([0, 2]))
    assert vector._env.given.tolist() == [-1, 1]


class Spoiler(Scripted):
    """Works with the array that it is given."""

    def step(self, action):
        action *= 5
        return super().step(action)


@pytest.mark.parametrize("space", [Box(-9, 9, (2,), np.float32), MultiDiscrete([3, 4])])
@pytest.mark.parametrize("how", ["sync", "vector"])
def test_an_environment_that_changes_its_action_changes_nothing_of_the_policy_s(space, how):
    env = scripted(2, how, actions=space)
    if how == "vector":
        env._env.step, step = (lambda a: step(np.multiply(a, 5, out=a))), env._env.step
    else:
        env._envs = [Spoiler(actions=space) for _ in range(2)]
    env.reset()
    action = np.ones((2, 2), space.dtype)
    env.step(action)
    assert (action == 1).all()


def test_a_module_before_the_name_registers_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    line = "gymnasium.register('Late-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')"
    (tmp_path / "own_registry.py").write_text(f"import gymnasium\n{line}\n")
    assert make(config("own_registry:Late-v0"), 1, str(tmp_path)).spec.n_actions == 2
    del gymnasium.registry["Late-v0"]


# What a user can get wrong


def refused(match, *arguments, **kwargs):
    with pytest.raises(TianJiError, match=match) as caught:
        make(config(*arguments, **kwargs), kwargs.pop("n_envs", 1), ".")
    assert len(str(caught.value).splitlines()) <= 3


@pytest.mark.parametrize("name", ["PingNoFrameskip-v4", "ALE/Ping-v5"])  # ale-py registers others
def test_an_atari_game_is_answered_with_the_type_that_plays_it(name):
    refused(f"type='AtariEnv', gym_name='{name}'", name)


def test_an_unknown_name_is_answered_with_the_nearest():
    refused(r"no environment 'CartPol-v1'. Did you mean 'CartPole-v1'", "CartPol-v1")
    refused(r"no environment 'cartpole'. Did you mean 'CartPole-v", "cartpole")
    other = "procgen/Coinrun-v0"
    refused(rf"no environment {other!r}.*\n.*'package:{other}'", other)
    refused(r"no module 'no_such_package'", "no_such_package:Name-v0")


def test_a_missing_package_passes_on_gymnasium_s_hint():
    def entry_point(**kwargs):
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed, run `pip install x`")

    gymnasium.register("Needy-v0", entry_point=entry_point)
    refused(r"Needy-v0 needs a package that is not installed: Box2D .*pip install", "Needy-v0")
    del gymnasium.registry["Needy-v0"]


def test_arguments_that_do_not_fit_are_named():
    refused("CartPole-v1 does not take .*unexpected keyword argument 'gravty'", gravty=3)
    with pytest.raises(TianJiError, match=r"'gravty'.*'sync' may take it"):
        make(config(gravty=3), 4, ".")


def test_a_type_error_inside_a_constructor_stays_what_it_is():
    def entry_point(**kwargs):
        return len(3)

    gymnasium.register("Buggy-v0", entry_point=entry_point)
    with pytest.raises(TypeError, match="has no len"):
        make(config("Buggy-v0"), 1, ".")
    del gymnasium.registry["Buggy-v0"]


def test_modes_that_cannot_be_had_are_refused():
    with pytest.raises(TianJiError, match="'single' is one environment, not 4: use 'sync'"):
        make(config(vectorization="single"), 4, ".")
    refused("Acrobot-v1 has no vector environment", "Acrobot-v1", "vector")
    refused("opens no window", vectorization="vector", render=True)
    with pytest.raises(TianJiError, match="at least one environment, got 0"):
        make(config(), 0, ".")


@pytest.mark.parametrize("space", [Text(3), Dict({"a": Sequence(LINE)})])
def test_other_observation_spaces_are_refused_by_name(space):
    with pytest.raises(TianJiError, match=r"observation space .*want Box, Disc"):
        scripted(space=space)


@pytest.mark.parametrize("space", [Dict({"a": Discrete(2)}), Box(0, 9, (2,), np.int64)])
def test_other_action_spaces_are_refused_by_name(space):
    with pytest.raises(
        TianJiError, match=rf"action space {type(space).__name__}.*want Discrete, Multi"
    ):
        scripted(actions=space)


@pytest.mark.parametrize(
    ("shown", "got"),
    [
        (np.zeros(3), r"float64\[3\]"),
        (np.zeros((1, 4), np.float32), r"float32\[1, 4\]"),
        (np.zeros(4, complex), r"complex128\[4\]"),
        ({"a": 1}, r"\{'a': 1\}"),
        ([1, [2, 3]], r"\[1, \[2, 3\]\]"),
    ],
)
def test_an_observation_that_is_not_what_was_declared_is_refused(shown, got):
    with pytest.raises(
        TianJiError, match=rf"environment 0: field 'obs': want float32\[4\], got {got}"
    ):
        scripted(first=shown).reset()


def test_a_wrong_observation_is_noticed_at_any_step():
    env = scripted(shows=(None, None, np.zeros(1, np.float32)))
    env.reset()
    env.step(zeros(1))
    with pytest.raises(TianJiError, match=r"want float32\[4\], got float32\[1\]"):
        env.step(zeros(1))


def test_floats_for_bytes_are_refused():
    with pytest.raises(TianJiError, match=r"want uint8\[4\], got float64\[4\]"):
        scripted(space=Box(0, 255, (4,), np.uint8), first=np.zeros(4)).reset()


def test_a_discrete_observation_outside_the_space_is_refused():
    for shown in (5, 1.5, np.zeros(2)):
        with pytest.raises(
            TianJiError, match=r"environment 0: field 'obs': want Discrete\(3\), got"
        ):
            scripted(space=Discrete(3), first=shown).reset()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_in_an_observation_name_environment_and_step(bad):
    env = scripted(2, shows=(None, None, np.array([0, bad, 0, 0], np.float32)))
    env.reset()
    env.step(zeros(2))
    with pytest.raises(TianJiError, match=r"environment 0: field 'obs' has NaN or Inf at step 2"):
        env.step(zeros(2))
    with pytest.raises(TianJiError, match=r"field 'obs' has NaN or Inf on reset"):
        scripted(first=np.full(4, bad, np.float32)).reset()


@pytest.mark.parametrize("bad", [np.nan, float("inf"), np.float64("-inf"), 1e39])
def test_nan_and_inf_in_a_reward_name_environment_and_step(bad):
    env = scripted(pays=(1.0, 1.0, bad))
    env.reset()
    env.step(zeros(1))
    env.step(zeros(1))
    with pytest.raises(
        TianJiError, match=r"environment 0: field 'reward' has NaN or Inf at step 3"
    ):
        env.step(zeros(1))


def test_rewards_are_single_numbers_of_any_kind():
    env = scripted(pays=(1, np.float64(2), np.array([3.0]), True, None))
    env.reset()
    assert [env.step(zeros(1)).reward[0] for _ in range(4)] == [1, 2, 3, 1]
    with pytest.raises(TianJiError, match="field 'reward': want one number, got None"):
        env.step(zeros(1))


@pytest.mark.parametrize("vectorization", ["sync", "vector"])
@pytest.mark.parametrize("action", [7, -1])
def test_an_action_outside_the_space_names_its_environment(vectorization, action):
    env = scripted(3, vectorization)
    env.reset()
    with pytest.raises(
        TianJiError, match=rf"action {action} of environment 2 is outside Discrete\(2\)"
    ):
        env.step(np.array([0, 1, action]))


@pytest.mark.parametrize("vectorization", ["sync", "vector"])
def test_actions_of_another_shape_or_type_are_refused(vectorization):
    env = scripted(3, vectorization)
    env.reset()
    with pytest.raises(TianJiError, match=r"field 'action': want int64\[3\], got int64\[2\]"):
        env.step(zeros(2))
    with pytest.raises(TianJiError, match=r"field 'action': want int64\[3\], got float64\[3\]"):
        env.step(np.zeros(3))
    assert env.step(np.zeros(3, np.int32)).valid.all()


def test_an_exception_in_an_environment_is_not_swallowed():
    env = scripted(first=np.zeros(4, np.float32), shows=())
    env.reset()
    with pytest.raises(IndexError):
        env.step(zeros(1))


# What a vector environment can get wrong


def vector_refused(match, **result):
    with pytest.raises(TianJiError, match=match):
        env = scripted(2, "vector", **result)
        env.reset()
        env.step(zeros(2))


def test_wrong_arrays_of_a_vector_environment_are_refused():
    ended = np.array([False, True])
    bad = np.array([[0, 0, 0, 0], [0, 0, 0, np.nan]], np.float32)
    vector_refused(r"field 'obs': want float32\[2, 4\], got float64\[2, 3\]", obs=np.zeros((2, 3)))
    vector_refused(r"environment 1: field 'obs' has NaN or Inf at step 1", obs=bad)
    vector_refused(r"environment 1: field 'obs' has NaN or Inf on reset", first=bad)
    vector_refused(r"environment 1: field 'reward' has NaN", reward=np.array([0, np.inf]))
    vector_refused(r"field 'reward': want shape \[2\], got \[3\]", reward=np.zeros(3))
    vector_refused(r"gives no 'final_obs'", mode=AutoresetMode.SAME_STEP, ended=ended)
    infos = {"final_obs": bad}
    vector_refused(
        r"environment 1: field 'obs' has NaN or Inf at step 1",
        mode=AutoresetMode.SAME_STEP,
        ended=ended,
        infos=infos,
    )


def test_the_step_of_the_episode_is_counted_from_its_reset():
    reward = np.zeros(2)
    env = scripted(2, "vector", ended=np.array([False, True]), reward=reward)
    env.reset()
    for _ in range(4):
        env.step(zeros(2))  # environment 1 ends with every step that it makes
    env._env.result["reward"] = np.array([0, np.nan])
    with pytest.raises(TianJiError, match="environment 1: field 'reward' has NaN or Inf at step 1"):
        for _ in range(2):
            env.step(zeros(2))


@pytest.mark.filterwarnings("ignore:.*autoreset_mode.*")
def test_a_vector_environment_without_autoreset_mode_is_refused():
    vector_refused(r"autoreset_mode None: want NEXT_STEP, SAME_STEP, DISABLED", mode=None)
