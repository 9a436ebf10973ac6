"""Environments that break: what is lost, what is not, what is said, and when it is enough."""

import numpy as np
import pytest
from fields import spec_of
from gymnasium import spaces
from test_roles import ACTION, LENGTH, OBS, Stage

from tianji.core.counts import Count
from tianji.core.env import BaseEnv, Rendering
from tianji.core.errors import BudgetSpent, TianJiError
from tianji.core.mishaps import Mishaps, NotFinite, said
from tianji.envs.loop import LoopEnv
from tianji.envs.spaces import describe
from tianji.envs.template import TemplateEnv
from tianji.roles.env_restart import EnvRestart


class Counter:
    """Shows how many steps it has made; `script` says what goes wrong, by the step of its life."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, script=()):
        self.script, self.life, self.t, self.seed, self.closed = dict(script), 0, 0, None, False

    def reset(self, *, seed=None):
        self.seed = self.seed if seed is None else seed
        self.t = 0
        if self.script.pop("reset", None):
            raise OSError("no licence")
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.life += 1
        self.t += 1
        obs, reward = np.full(1, self.t, np.float32), 1.0
        match self.script.get(self.life):
            case "raise":
                raise RuntimeError("the simulator lost its marbles")
            case "nan":
                obs = obs * np.nan
            case "inf":
                reward = np.inf
            case "form":
                return obs, reward
        return obs, reward, self.script.get(self.life) == "ends", False, {}

    def close(self):
        self.closed = True


def loop(*scripts, budget=10, later=()):
    """Environments with these scripts, and those that take their places."""
    made, waiting = [], list(later)

    def again(e):
        made.append(Counter(waiting.pop(0) if waiting else ()))
        return made[-1]

    first = [Counter(script) for script in scripts]
    spec = describe("Counter", Counter.observation_space, Counter.action_space, len(first))
    env, counts = LoopEnv("Counter", first, spec, again), np.zeros(len(Count))
    env.mend(Mishaps("actor-0.0", counts, budget))
    env.reset(7)
    return env, counts, first, made


def steps(env, n):
    """Of every step: valid, first, reward and what is seen."""
    rows = []
    for _ in range(n):
        step = env.step(np.zeros(env.spec.n_envs, np.int64))
        assert np.isfinite(step.obs["obs"]).all() and np.isfinite(step.reward).all()
        assert not (step.terminated | step.truncated)[~step.valid].any()
        arrays = step.valid, step.first, step.reward, step.obs["obs"][:, 0]
        rows.append([array.tolist() for array in arrays])
    return rows


@pytest.mark.parametrize(("what", "anew"), [("raise", True), ("nan", False), ("inf", False)])
def test_what_breaks_costs_one_episode_and_its_row_only_begins_the_next(what, anew):
    env, counts, first, made = loop({}, {3: what})
    rows = steps(env, 4)
    assert rows[2] == [[True, False], [False, True], [1.0, 0.0], [3.0, 0.0]]
    assert rows[3] == [[True, True], [False, False], [1.0, 1.0], [4.0, 1.0]]
    assert (counts[Count.ENV_RESTARTS], counts[Count.NOT_FINITE]) == ((1, 0) if anew else (0, 1))
    assert (len(made), first[1].closed) == ((1, True) if anew else (0, False))
    assert not anew or made[0].seed not in (None, first[0].seed, first[1].seed)


def test_an_end_that_was_seen_with_nan_is_no_end():
    env, *_ = loop({2: "nan"})
    env._envs[0].step = lambda action: (np.full(1, np.nan, np.float32), 1.0, True, False, {})
    assert steps(env, 1) == [[[False], [True], [0.0], [0.0]]]
    env._envs[0].step = Counter.step.__get__(env._envs[0])
    assert steps(env, 1)[0][0] == [True]  # it is not reset once more


def test_an_environment_that_cannot_even_begin_is_tried_again():
    env, counts, _, made = loop({1: "raise"}, later=[{"reset": 1}, {"reset": 1}, {}])
    assert steps(env, 1) == [[[False], [True], [0.0], [0.0]]]
    assert (counts[Count.ENV_RESTARTS], len(made)) == (3, 3)


def test_a_reset_that_raises_after_an_end_is_a_mishap_too():
    env, counts, first, made = loop({2: "ends"})
    steps(env, 2)
    first[0].script["reset"] = 1
    assert steps(env, 1) == [[[False], [True], [0.0], [0.0]]]
    assert len(made) == 1


def test_one_too_many_ends_the_run_with_the_first_traceback():
    env, *_ = loop({1: "raise"}, budget=2, later=[{1: "raise"}] * 9)
    steps(env, 2)
    with pytest.raises(BudgetSpent, match=r"global_cfg\.restarts allows 2") as told:
        steps(env, 1)
    assert 'raise RuntimeError("the simulator lost its marbles")' in str(told.value)
    assert "environment 0 of Counter at step 1 of its episode" in str(told.value)


def test_an_hour_later_as_many_may_break_again():
    now = [0.0]
    mishaps = Mishaps("actor-0.0", np.zeros(len(Count)), 1, lambda: now[0])
    for hour in range(3):
        now[0] = hour * 3601.0
        mishaps.add(OSError("gone"), "it")
    with pytest.raises(BudgetSpent):
        mishaps.add(OSError("gone"), "it")


def test_a_mistake_of_the_users_is_none():
    env, counts, *_ = loop({1: "form"})
    with pytest.raises(TianJiError, match="step\\(\\) returned tuple of 2"):
        steps(env, 1)
    assert not counts.any()


def test_without_anybody_to_count_it_everything_is_raised():
    spec = describe("Counter", Counter.observation_space, Counter.action_space, 1)
    env = LoopEnv("Counter", [Counter({1: "raise", 2: "nan"})], spec)
    env.reset(0)
    for error in (RuntimeError, NotFinite):
        with pytest.raises(error):
            steps(env, 1)


def test_the_first_traceback_travels_whole_and_later_ones_as_a_line():
    log, now = [], [0.0]
    mishaps = Mishaps("actor-0.0", np.zeros(len(Count)), 10, lambda: now[0])
    mishaps.log = log.append
    for number in range(2):
        now[0] = 2.0 * number
        try:
            raise OSError(f"é number {number} " + "x" * 5_000 * (number == 0))
        except OSError as error:
            mishaps.add(error, "environment 3")
        assert (f"number {number}" in said(mishaps.words)) == (number == 1)  # the end of the first
    assert said(mishaps.words) == "environment 3 raised OSError: é number 1 ; it was made anew"
    assert all("Traceback (most recent call last)" in text for text in log)


# ------------------------------------------------------------------ all environments of an actor


def broken_once(stage, when):
    """An actor whose environments raise in step `when`; those made later do not."""
    actor, made = stage.actor, []

    def make():
        made.append(type(actor.env)(stage.diary))
        return made[-1]

    actor._restart = EnvRestart(make, actor.seed, actor.mishaps)
    actor.mishaps._budget = 3
    whole, n = actor.env.step, [0]

    def step(action):
        n[0] += 1
        if n[0] == when:
            raise RuntimeError("the simulator lost its marbles")
        return whole(action)

    actor.env.step = step
    return made


@pytest.mark.parametrize("per_version", [None, 1])
def test_an_actor_whose_environments_raise_sends_a_whole_trajectory(per_version):
    stage = Stage(per_version=per_version)
    made, old = broken_once(stage, 3), stage.actor.env
    stage.publish(0)
    stage.run(LENGTH)
    arrays = stage.trajectories.take().arrays
    assert int(arrays["length"]) == LENGTH
    assert arrays["valid"][:, 0].tolist() == [True, True, False, True]
    assert arrays["obs"][:, 0, 0].tolist() == [0, 1, 2, 0, 1]  # what was seen last, a new start
    assert old.closed and stage.actor.env is made[0] and made[0].seed != stage.actor.seed
    assert stage.actor.counts[Count.PRODUCED] == 3
    assert "lost its marbles" in said(stage.actor.report()["mishap"])


def test_an_episode_that_broke_is_in_no_log():
    stage = Stage()
    broken_once(stage, 3)
    stage.publish(0)
    stage.run(2 * LENGTH)
    message = stage.episodes.take()
    assert (int(message.arrays["n"]), int(message.arrays["length"][0])) == (1, 3)
    assert message.arrays["steps"][0] == 2 + 3  # those of the lost one were made, too


def test_an_environment_of_another_kind_is_no_replacement():
    stage = Stage()
    made = broken_once(stage, 1)
    other = spec_of(OBS, ACTION, 11)
    stage.actor._restart._make = lambda: (made.append(1), setattr(e := Kind(), "spec", other), e)[2]
    stage.publish(0)
    with pytest.raises(TianJiError, match="its environment has"):
        stage.run(1)


class Kind:
    def close(self):
        pass


class Template(BaseEnv):
    """The paper's template around a `Counter`."""

    def init(self):
        self.inner = Counter({2: "raise"})
        self.observation_space, self.action_space = Counter.observation_space, Counter.action_space

    def step(self, action):
        return self.inner.step(action)

    def reset(self):
        return self.inner.reset()

    def render(self):
        return None

    def close(self):
        self.inner.close()


def test_an_own_environment_is_made_anew_with_its_arguments():
    one = Template()
    one.init()
    env = TemplateEnv("own", one, None, Rendering.NONE)
    spec = describe("own", env.observation_space, env.action_space, 1)
    loop_ = LoopEnv("own", [env], spec, lambda e: TemplateEnv("own", _made(), None, Rendering.NONE))
    loop_.mend(Mishaps("actor-0.0", np.zeros(len(Count)), 5))
    loop_.reset(0)
    assert [valid for valid, *_ in steps(loop_, 4)] == [[True], [False], [True], [False]]
    assert one.inner.closed


def _made():
    env = Template()
    env.init()
    return env
