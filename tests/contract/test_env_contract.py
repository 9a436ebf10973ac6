"""One contract, every way to run environments: each true step appears once, nothing else does."""

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st
from wrapped import environment

from tianji.core.env import over_of, points_of
from tianji.envs import BaseEnv, make

SPACE = Box(-1e6, 1e6, (3,), np.float64)  # which environment, which episode, which step


class Log:
    """What the environments themselves say they did: (obs, action, reward, next obs, ends)."""

    def __init__(self):
        self.steps, self.n_made = [], 0


LOG = Log()


class Counter(gymnasium.Env):
    """Its observation tells where it is; every second episode is truncated, not terminated."""

    observation_space, action_space = SPACE, Discrete(5)

    def __init__(self, lengths=(3,), render_mode=None):
        self.lengths, self.render_mode = lengths, render_mode
        self.number, self.episode = LOG.n_made, -1
        LOG.n_made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.step_number, self.over = self.episode + 1, 0, False
        return self._observe(), {}

    def _observe(self):
        return np.array([self.number, self.episode, self.step_number], np.float64)

    def step(self, action):
        assert not self.over, "stepped beyond the end of an episode"
        before, self.step_number = self._observe(), self.step_number + 1
        self.over = (
            self.step_number >= self.lengths[(self.episode + self.number) % len(self.lengths)]
        )
        terminated, truncated = (
            self.over and self.episode % 2 == 0,
            self.over and self.episode % 2 == 1,
        )
        reward = float(action) + self.step_number / 8
        after = self._observe()
        LOG.steps.append((*before, action, reward, *after, terminated, truncated))
        return after, reward, terminated, truncated, {}


class CounterVector(VectorEnv):
    """Counters in a vector, with one autoreset mode; its observations are always the same array."""

    def __init__(self, num_envs, mode, plain_final, lengths=(3,)):
        self.metadata = {"autoreset_mode": mode}
        self.mode, self.plain_final, self.num_envs = mode, plain_final, num_envs
        self.envs = [Counter(lengths) for _ in range(num_envs)]
        self.single_observation_space, self.single_action_space = SPACE, Discrete(5)
        self.observation_space = batch_space(SPACE, num_envs)
        self.action_space = batch_space(Discrete(5), num_envs)
        self.obs = np.zeros((num_envs, 3))
        self.ended = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None):
        mask = (options or {}).get("reset_mask", np.ones(self.num_envs, bool))
        for e in np.flatnonzero(mask):
            self.obs[e] = self.envs[e].reset()[0]
        self.ended[mask] = False
        return self.obs, {}

    def step(self, actions):
        reward, terminated, truncated = (
            np.zeros(self.num_envs),
            self.ended & False,
            self.ended & False,
        )
        final = np.full((self.num_envs, 3), np.nan)
        for e, env in enumerate(self.envs):
            if self.mode is AutoresetMode.NEXT_STEP and self.ended[e]:
                self.obs[e] = env.reset()[0]
                continue
            self.obs[e], reward[e], terminated[e], truncated[e], _ = env.step(int(actions[e]))
            if self.mode is AutoresetMode.SAME_STEP and (terminated[e] or truncated[e]):
                final[e], self.obs[e] = self.obs[e], env.reset()[0]
        self.ended = terminated | truncated
        return self.obs, reward, terminated, truncated, self._infos(final)

    def _infos(self, final):
        if self.mode is not AutoresetMode.SAME_STEP or not self.ended.any():
            return {}
        rows = [row if ended else None for row, ended in zip(final, self.ended, strict=True)]
        as_objects = np.empty(self.num_envs, object)
        as_objects[:] = rows
        return {"final_obs": final if self.plain_final else as_objects, "_final_obs": self.ended}


def sync_vector(mode):
    def entry_point(num_envs, lengths=(3,)):
        return SyncVectorEnv([lambda: Counter(lengths)] * num_envs, autoreset_mode=mode)

    return entry_point


def own_vector(mode, plain_final=False):
    def entry_point(num_envs, lengths=(3,)):
        return CounterVector(num_envs, mode, plain_final, lengths)

    return entry_point


class Template(BaseEnv):
    """The counter in the paper's form, with the older result of `step`."""

    def init(self, lengths=(3,)):
        self.counter = Counter(lengths)
        self.observation_space, self.action_space = SPACE, Discrete(5)

    def reset(self):
        return self.counter.reset()[0]

    def step(self, action):
        obs, reward, terminated, truncated, _ = self.counter.step(action)
        return obs, reward, terminated or truncated, {"TimeLimit.truncated": truncated}

    def render(self):
        return None

    def close(self):
        pass


VECTORS = {
    **{f"Own{mode.name}": own_vector(mode) for mode in AutoresetMode},
    "OwnPlainFinal": own_vector(AutoresetMode.SAME_STEP, plain_final=True),
    **{f"Sync{mode.name}": sync_vector(mode) for mode in AutoresetMode},
}
KINDS = ["loop", "template", "class", *VECTORS]


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Counter-v0", entry_point=Counter)
    for name, entry_point in VECTORS.items():
        gymnasium.register(f"{name}-v0", entry_point=Counter, vector_entry_point=entry_point)
    yield
    for name in ["Counter", *VECTORS]:
        del gymnasium.registry[f"{name}-v0"]


def build(kind, n_envs, lengths, max_step=None):
    LOG.__init__()
    config = SimpleNamespace(
        type="GymEnv",
        gym_name=f"{kind}-v0",
        vectorization="vector",
        kwargs={"lengths": lengths},
        render=False,
    )
    if kind == "loop":
        config.gym_name, config.vectorization = "Counter-v0", "sync"
    elif kind in ("template", "class"):
        name = Template.__name__ if kind == "template" else Counter.__name__
        config.type, config.vectorization = f"{__name__}:{name}", "auto"
    return make(config, n_envs, ".", max_step)


def walk(env, n_steps, seed):
    """Steps the environment with random actions and collects the valid rows as the store would."""
    random, rows, n_invalid = np.random.default_rng(seed), [], 0
    obs = env.reset(seed=seed)["obs"].copy()
    for _ in range(n_steps):
        action = random.integers(5, size=env.spec.n_envs)
        step = env.step(action)
        ended = step.terminated | step.truncated
        for e in range(env.spec.n_envs):
            after = step.final["obs"][e] if env.spec.same_step and ended[e] else step.obs["obs"][e]
            row = (
                *obs[e],
                action[e],
                step.reward[e],
                *after,
                step.terminated[e],
                step.truncated[e],
            )
            if step.valid[e]:
                rows.append(tuple(float(x) for x in row))
            else:
                n_invalid += 1
                assert (step.reward[e], ended[e]) == (0, False)
                assert step.obs["obs"][e][2] == 0, (
                    "a row that only resets shows a first observation"
                )
        obs = step.obs["obs"].copy()
    return rows, n_invalid


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(
    n_envs=st.integers(1, 4),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    n_steps=st.integers(1, 25),
    seed=st.integers(0, 1000),
)
def test_every_step_made_is_a_valid_row_once_and_true(kind, n_envs, lengths, n_steps, seed):
    env = build(kind, n_envs, tuple(lengths))
    rows, n_invalid = walk(env, n_steps, seed)
    env.close()
    made = [tuple(float(x) for x in step) for step in LOG.steps]
    assert sorted(rows) == sorted(made)
    assert len(rows) + n_invalid == n_envs * n_steps
    assert n_invalid == 0 or not env.spec.same_step


@pytest.mark.parametrize("kind", KINDS)
def test_the_arrays_have_the_spec_s_shapes_and_types(kind):
    env = build(kind, 3, (2,))
    assert env.spec.n_envs == 3 and env.spec.n_actions == 5
    assert (str(env.spec.observations[0]), str(env.spec.action)) == ("float32[3]", "int64[]")
    assert env.reset(seed=1)["obs"].dtype == np.float32
    step = env.step(np.zeros(3, np.int64))
    assert (step.obs["obs"].shape, step.obs["obs"].dtype) == ((3, 3), np.float32)
    assert (step.reward.shape, step.reward.dtype) == ((3,), np.float32)
    for flag in (step.terminated, step.truncated, step.valid):
        assert (flag.shape, flag.dtype) == ((3,), np.bool_)
    assert (step.final is not None) == env.spec.same_step


@pytest.mark.parametrize("kind", KINDS)
def test_a_reset_in_the_middle_forgets_the_episode_that_ended(kind):
    env = build(kind, 2, (1,))
    env.reset()
    assert env.step(np.zeros(2, np.int64)).terminated.all()
    assert (env.reset()["obs"][:, 2] == 0).all()
    assert env.step(np.zeros(2, np.int64)).valid.all()


@pytest.mark.parametrize("kind", ["loop", "template", "class"])
def test_max_step_truncates_and_does_not_terminate(kind):
    env = build(kind, 2, (9,), max_step=2)
    assert env.spec.max_episode_steps == 2
    env.reset()
    assert not env.step(np.zeros(2, np.int64)).truncated.any()
    step = env.step(np.zeros(2, np.int64))
    assert step.truncated.all() and not step.terminated.any()
    assert not env.step(np.zeros(2, np.int64)).valid.any()
    assert env.step(np.zeros(2, np.int64)).valid.all()


GAMES = {
    "Pong": "game='Pong', max_frames=120, wrappers=['skip', 'fire', 'warp', 'stack']",
    "Breakout": "game='Breakout', wrappers=['noop', 'skip', 'life', 'fire', 'warp', 'clip']",
    "BreakoutLoop": "game='Breakout', vectorization='sync'",
    "Catch": "type='Catch', kwargs=dict(size=12)",
    "CatchOfTwo": "type='Catch', kwargs=dict(size=12, balls=2, stack=1)",
}


@pytest.mark.parametrize("name", GAMES)
def test_games_of_pixels_keep_the_contract(name):
    """Rows after an episode's end only begin the next one, and games are told from episodes."""
    env = make(environment(GAMES[name]), 3, ".")
    obs, random = env.reset(seed=1), np.random.default_rng(1)
    assert obs["obs"].shape == (3, *env.spec.observations[0].shape) and obs["obs"].dtype == np.uint8
    ended, n_ended = np.zeros(3, bool), 0
    for _ in range(70):
        step = env.step(random.integers(env.spec.n_actions, size=3))
        assert step.obs["obs"].shape == obs["obs"].shape and step.final is None
        for flag in (step.terminated, step.truncated, step.valid, step.first, over_of(step)):
            assert (flag.shape, flag.dtype) == ((3,), np.bool_)
        assert (points_of(step).dtype, step.reward.dtype) == (np.float32, np.float32)
        assert not (step.terminated & step.truncated).any()
        assert (step.valid == ~ended).all() and (step.first == ended).all()
        assert not step.reward[ended].any()
        ended = step.terminated | step.truncated
        assert ended[over_of(step)].all()
        n_ended += int(ended.sum())
    assert n_ended
    env.close()
