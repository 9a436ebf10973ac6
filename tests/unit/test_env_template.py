"""Environments of one's own: the paper's template, gymnasium classes, and the example."""

from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from tianji.core.errors import TianJiError
from tianji.envs import BaseEnv, make

EXAMPLES = Path(__file__).parents[2] / "examples"


class Small(BaseEnv):
    """The least one can write; `results` and `firsts` say what `step` and `reset` return."""

    firsts, results = [0.0, 0.0], ([0.0, 1.0], 1.0, False, False, {})

    def init(self, size=2):
        self.observation_space, self.action_space = Box(-9, 9, (size,)), Discrete(2)
        self.calls = []

    def reset(self):
        self.calls.append("reset")
        return self.firsts

    def step(self, action):
        return self.results

    def render(self):
        self.calls.append("render")

    def close(self):
        self.calls.append("close")


class Seeded(Small):
    def seed(self, seed):
        self.calls.append(seed)


class Unfinished(Small):
    reset = BaseEnv.reset
    close = BaseEnv.close


class Spaceless(Small):
    def init(self):
        self.observation_space = Box(-9, 9, (2,))


class Wordy(Small):
    def init(self):
        super().init()
        self.action_space = "left or right"


class Demanding(Small):
    def __init__(self, size):
        self.size = size


class Failing(Small):
    def step(self, action):
        raise KeyError("my own mistake")


class Plain(gymnasium.Env):
    """A gymnasium class that nobody registered."""

    def __init__(self, size=2):
        self.observation_space, self.action_space = Box(-9, 9, (size,)), Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32)  # without info: wrong

    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}


class Halfway(gymnasium.Env):
    """A gymnasium class that forgot its spaces."""


class Nothing:
    pass


def build(name, n_envs=1, folder=".", vectorization="auto", max_step=None, render=False, **kwargs):
    environment = SimpleNamespace(
        type=name if ":" in name else f"{__name__}:{name}",
        gym_name=None,
        vectorization=vectorization,
        kwargs=kwargs,
        render=render,
    )
    return make(environment, n_envs, str(folder), max_step)


def act(env):
    return env.step(np.zeros(env.spec.n_envs, np.int64))


def returning(monkeypatch, **values):
    for name, value in values.items():
        monkeypatch.setattr(Small, name, value)
    return build("Small")


def test_arguments_go_from_the_config_to_init():
    assert build("Small", size=3).spec.observations[0].shape == (3,)
    with pytest.raises(
        TianJiError, match=r"Small.init\(size=2\): .*'sise' \(got \['sise'\]; they come"
    ):
        build("Small", sise=3)


def test_seed_is_called_where_it_exists_and_only_once():
    env = build("Seeded", 2)
    env.reset(seed=4)
    env.reset()
    assert [single._env.calls for single in env._envs] == [
        [4, "reset", "reset"],
        [5, "reset", "reset"],
    ]
    assert build("Small").reset(seed=4)["obs"].tolist() == [[0, 0]]


def test_only_the_first_is_rendered_and_all_are_closed():
    env = build("Small", 2, render=True)
    env.reset()
    act(env)
    env.close()
    calls = [single._env.calls for single in env._envs]
    assert calls == [["reset", "render", "render", "close"], ["reset", "close"]]


@pytest.mark.parametrize("first", [[1, 2], (1.0, 2.0), np.array([1, 2]), ([1, 2], {"map": 3})])
def test_reset_may_return_an_observation_with_or_without_info(monkeypatch, first):
    assert returning(monkeypatch, firsts=first).reset()["obs"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    ("result", "terminated", "truncated"),
    [
        (([1, 2], 1, True, {}), True, False),
        (([1, 2], 1, True, {"TimeLimit.truncated": True}), False, True),
        (([1, 2], 1, np.True_, False, {}), True, False),
        ([[1, 2], 1, 0, 1, {}], False, True),
    ],
)
def test_step_may_have_four_or_five_parts(monkeypatch, result, terminated, truncated):
    env = returning(monkeypatch, results=result)
    env.reset()
    step = act(env)
    assert (step.terminated[0], step.truncated[0], step.reward[0]) == (terminated, truncated, 1)


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (None, "NoneType None"),
        (([1, 2], 1.0, True), r"tuple of 3: \(list, float, bool\)"),
        (([1, 2], 1.0, {}, False), r"tuple of 4: \(list, float, dict, bool\)"),
    ],
)
def test_other_results_of_step_are_shown(monkeypatch, result, got):
    env = returning(monkeypatch, results=result)
    env.reset()
    with pytest.raises(
        TianJiError, match=rf"step\(\) returned {got}\nWant \(observation, reward, term"
    ):
        act(env)


def test_other_results_of_reset_are_shown(monkeypatch):
    with pytest.raises(TianJiError, match=r"reset\(\) returned NoneType None\nWant an observation"):
        returning(monkeypatch, firsts=None).reset()
    with pytest.raises(
        TianJiError, match=r"reset\(\) returned ndarray .*\nWant \(observation, info\)"
    ):
        build("Plain").reset()


def test_max_step_counts_from_each_reset():
    env = build("Small", max_step=2)
    env.reset()
    assert [bool(act(env).truncated[0]) for _ in range(6)] == [False, True, False] * 2
    assert [bool(act(env).valid[0]) for _ in range(6)] == [True, True, False] * 2


def test_missing_methods_are_named():
    with pytest.raises(TianJiError, match=r"Unfinished lacks close\(\), reset\(\): define them"):
        build("Unfinished")


def test_missing_spaces_say_what_to_write():
    with pytest.raises(
        TianJiError, match=r"action_space is not set: in init\(\) write self.action_space ="
    ):
        build("Spaceless")
    with pytest.raises(TianJiError, match="action_space is 'left or right', no gymnasium space"):
        build("Wordy")
    with pytest.raises(TianJiError, match=r"observation_space is not set: in __init__\(\) write"):
        build("Halfway")


def test_a_template_class_is_made_without_arguments():
    with pytest.raises(TianJiError, match=r"Demanding\(size\): missing .*put them into init\(\)"):
        build("Demanding")


def test_a_gymnasium_class_takes_its_arguments_in_the_constructor():
    with pytest.raises(TianJiError, match=r"Plain\(size=2\): .*'sise'"):
        build("Plain", sise=3)


def test_what_is_no_environment_is_refused():
    with pytest.raises(TianJiError, match=r"Nothing is no environment: want a tianji\.BaseEnv"):
        build("Nothing")


def test_an_exception_in_own_code_is_not_swallowed():
    env = build("Failing")
    env.reset()
    with pytest.raises(KeyError, match="my own mistake"):
        act(env)


def test_own_classes_have_no_vector_environment():
    with pytest.raises(TianJiError, match="leave vectorization out"):
        build("Small", 2, vectorization="vector")
    with pytest.raises(TianJiError, match="'single' is one environment, not 2"):
        build("Small", 2, vectorization="single")


def test_whoever_follows_the_sign_solves_the_example():
    env = build("own_environment:Corridor", 3, EXAMPLES, max_step=50, length=9)
    obs, returns = env.reset(seed=0)["obs"], np.zeros(3)
    for _ in range(4):
        step = env.step((obs[:, 0] > 0).astype(np.int64))
        returns, obs = returns + step.reward, step.obs["obs"]
    assert step.terminated.all() and np.allclose(returns, 0.96)
