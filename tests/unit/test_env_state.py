"""Environments that say what they must remember go on within their episodes; others begin anew."""

import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from carrying import carried
from commands import ROOT, TASKS
from fields import act, learned
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from pages import PYTHON

from tianji import config as configs
from tianji.core.errors import TianJiError
from tianji.core.state import split, state_of
from tianji.envs import make
from tianji.envs.loop import LoopEnv
from tianji.envs.vector import VectorAdapter
from tianji.job import factory
from tianji.job.job import prepare

EXAMPLES = ROOT / "examples"


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


def build(what="walk:Walk", n_envs=3, max_step=None, folder=TASKS, **kwargs):
    own = ":" in what and "-v" not in what
    section = SimpleNamespace(
        type=what if own else "GymEnv",
        gym_name=None if own else what,
        vectorization=kwargs.pop("vectorization", "auto"),
        kwargs=kwargs,
        render=False,
    )
    return make(section, n_envs, str(folder), max_step)


@pytest.fixture
def registered():
    gymnasium.register("GymWalk-v0", entry_point="walk:GymWalk", max_episode_steps=9)
    yield "walk:GymWalk-v0"
    del gymnasium.registry["GymWalk-v0"]


def seen(env, random, n):
    """Everything that `n` steps show, bit by bit."""
    rows, size = [], (env.spec.n_envs, *env.spec.action.shape)
    for _ in range(n):
        step = env.step(random.integers(2, size=size).astype(env.spec.action.dtype))
        arrays = [
            step.obs["obs"],
            step.first,
            step.reward,
            step.terminated,
            step.truncated,
            step.valid,
        ]
        arrays += [] if step.final is None else [step.final["obs"]]
        rows.append([array.tobytes() for array in arrays])
    return rows


def alike(one, two):
    """Whether two states are equal to the last bit."""
    (arrays, facts), (others, other_facts) = split(one), split(two)
    same = {n: a.tobytes() for n, a in arrays.items()} == {
        n: a.tobytes() for n, a in others.items()
    }
    return same and facts == other_facts


def go_on_alike(make_one, moment, n=120):
    """Whether an environment restored after `moment` steps shows what the first shows."""
    one, two = make_one(), make_one()
    one.reset(seed=5)
    seen(one, np.random.default_rng(0), moment)
    two.restore(carried(one.state()))  # never reset, and not to be
    assert alike(one.state(), two.state())
    shown = [seen(env, np.random.default_rng(1), n) for env in (one, two)]
    return shown[0] == shown[1] and alike(one.state(), two.state())


@pytest.mark.parametrize("moment", range(0, 30, 3))
@pytest.mark.parametrize("max_step", [None, 7])
@pytest.mark.parametrize("what", ["walk:Walk", "walk:GymWalk"])
def test_an_environment_goes_on_within_its_episode(what, max_step, moment):
    assert go_on_alike(lambda: build(what, max_step=max_step), moment)


@pytest.mark.parametrize("moment", range(0, 30, 3))
def test_a_registered_environment_goes_on_and_so_does_its_time_limit(registered, moment):
    env = build(registered)
    assert isinstance(env, LoopEnv) and "TimeLimit<OrderEnforcing" in str(env._envs[0])
    assert go_on_alike(lambda: build(registered), moment)


def test_a_used_environment_is_overwritten():
    one, two = build(), build()
    one.reset(seed=1)
    two.reset(seed=2)
    seen(one, np.random.default_rng(0), 11)
    seen(two, np.random.default_rng(3), 17)
    two.restore(carried(one.state()))
    shown = [seen(env, np.random.default_rng(1), 50) for env in (one, two)]
    assert shown[0] == shown[1]


def test_restoring_does_not_reset(monkeypatch):
    one, two = build(), build()
    one.reset(seed=1)
    monkeypatch.setattr(type(two._envs[0]._env), "reset", None)
    two.restore(carried(one.state()))


def test_the_arrays_that_were_handed_out_stay_the_same():
    env = build()
    obs = env.reset(seed=1)
    state = carried(env.state())
    step = env.step(np.ones(3, np.int64))
    env.restore(state)
    assert step.obs is obs and (obs["obs"] == state["step"]["obs"]).all()


def test_what_cannot_be_saved_has_no_state(registered):
    assert state_of(build("CartPole-v1", 1)) is None  # its `state` is an array
    assert state_of(build("CartPole-v1", 2, vectorization="sync")) is None
    assert state_of(build("CartPole-v1", 2, vectorization="vector")) is None
    assert state_of(build("walk:Forgetful")) is None


def test_one_environment_that_cannot_be_saved_is_enough(registered):
    env = build(registered)
    env.reset(seed=0)
    assert state_of(env) is not None
    env._envs[1] = gymnasium.wrappers.ClipReward(env._envs[1], -1, 1)
    assert state_of(env) is None


def test_the_state_of_another_class_or_number_is_refused():
    env = build(max_step=5)
    env.reset(seed=0)
    state = carried(env.state())
    with pytest.raises(TianJiError, match=r"walk:Forgetful has no restore\(\)"):
        build("walk:Forgetful", max_step=5).restore(state)
    with pytest.raises(TianJiError, match=r"field 'obs': want float32\[2, 3\], got"):
        build(n_envs=2).restore(state)
    gym = build("walk:GymWalk", max_step=5)
    gym.reset(seed=0)
    with pytest.raises(TianJiError, match="or other wrappers: resume with the class of that time"):
        build("walk:GymWalk").restore(carried(gym.state()))


# ----------------------------------------------------------------------------- vector environments


class WalkingVector(SyncVectorEnv):
    """A vector environment that defines both methods itself."""

    def __init__(self, num_envs, mode):
        from walk import GymWalk

        single = lambda: gymnasium.wrappers.TimeLimit(GymWalk(), 9)  # noqa: E731
        super().__init__([single] * num_envs, autoreset_mode=mode)

    def state(self):
        counts = [env._elapsed_steps for env in self.envs]
        walks = [env.unwrapped.state() for env in self.envs]
        return {"walks": walks, "counts": counts, "ended": self._autoreset_envs}

    def restore(self, state):
        for env, walk, count in zip(self.envs, state["walks"], state["counts"], strict=True):
            env.unwrapped.restore(walk)
            env._elapsed_steps = count
        self._autoreset_envs[...] = state["ended"]


@pytest.mark.parametrize("moment", range(0, 20, 4))
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_environment_with_both_methods_goes_on(mode, moment):
    build()  # its folder leads the path
    assert go_on_alike(lambda: VectorAdapter("walks", WalkingVector(3, mode)), moment)


def test_a_vector_environment_that_lost_its_methods_is_refused():
    build()
    one = VectorAdapter("walks", WalkingVector(3, AutoresetMode.NEXT_STEP))
    one.reset(seed=0)
    plain = build("CartPole-v1", 3, vectorization="vector")
    assert isinstance(plain._env, VectorEnv)
    with pytest.raises(TianJiError, match="this one has not both"):
        plain.restore(carried(one.state()))


# ------------------------------------------------------------------------- examples and documents


def test_the_example_of_an_environment_goes_on():
    assert go_on_alike(lambda: build("own_environment:Corridor", folder=EXAMPLES, max_step=9), 13)


def _shown(page):
    return [block.text for block in PYTHON if block.page == page]


def documented(page, class_name):
    """The first block of a page, and in one of its classes the methods that are shown apart."""
    first, *others = _shown(page)
    shown = next(block for block in others if "\ndef restore(self" in block)
    imports, methods = shown.split("\n\n\n", 1)
    lines, inside = [*imports.splitlines(), ""], False
    for line in first.splitlines():
        if inside and line and not line.startswith(" "):
            inside = False
            lines += ["    " + method for method in methods.splitlines()]
        inside = inside or line.startswith(f"class {class_name}(") or line == f"class {class_name}:"
        lines.append(line)
    return "\n".join(lines + ["    " + m for m in methods.splitlines()] * inside) + "\n"


def test_the_methods_in_the_environments_page_are_enough(tmp_path):
    (tmp_path / "shown_env.py").write_text(documented("own-environment.md", "Guess"))
    assert go_on_alike(lambda: build("shown_env:Guess", folder=tmp_path), 13)


def job_of(config):
    env = factory.make_env(config)
    env.close()
    return prepare(config, env.spec)


def acts_and_learns_on(job):
    """Whether both halves of an algorithm go on as they would have."""
    random, kept = np.random.default_rng(0), []
    one, two = (job.algorithm(job.task, seed) for seed in (1, 2))
    policy, twin = (job.algorithm.policy(job.task, 0, seed) for seed in (1, 2))
    schema = job.sampling.batch_schema(job.trajectory)

    def batch():
        made = schema.empty()
        for name, array in made.items():
            array[...] = random.integers(2, size=array.shape) if name == "action" else True
        for name in ("obs", "reward"):
            made[name][...] = random.standard_normal(made[name].shape)
        made["terminated"][...] = made["truncated"][...] = False
        return made

    policy.load(one.weights(), 0)
    for _ in range(3):
        learned(one, batch())
        act(policy, batch()["obs"][0, 0])
    two.restore(carried(one.state()))
    twin.restore(carried(policy.state()))
    for _ in range(5):
        made = batch()
        kept.append(learned(one, made) == learned(two, made))
        obs = made["obs"][0, 0]
        kept.append((act(policy, obs)["action"] == act(twin, obs)["action"]).all())
    return all(kept) and (one.weights() == two.weights()).all()


def test_the_example_of_an_algorithm_goes_on(monkeypatch):
    monkeypatch.delitem(sys.modules, "own_algorithm", raising=False)  # of a page's own copy
    assert acts_and_learns_on(job_of(configs.load(EXAMPLES / "own_algorithm_config.py")))


def test_the_methods_in_the_algorithms_page_are_enough(tmp_path):
    page = "own-algorithm.md"
    (tmp_path / "my_algorithm.py").write_text(documented(page, "LinearPolicy"))
    config = _shown(page)[1]
    (tmp_path / "my_config.py").write_text(config)
    assert acts_and_learns_on(job_of(configs.load(tmp_path / "my_config.py")))
