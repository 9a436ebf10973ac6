"""Every gymnasium space becomes named fields, and actions of every discrete space go back."""

import importlib
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from commands import TASKS
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import tianji
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.envs import make
from tianji.envs.loop import LoopEnv
from tianji.envs.spaces import describe
from tianji.envs.terms import Terms
from tianji.envs.vector import VectorAdapter

NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (2, 2), np.uint8),
        "body": spaces.Tuple((spaces.Box(-1, 1, (3,)), spaces.Discrete(4, start=1))),
        "switches": spaces.MultiBinary(2),
        "dials": spaces.MultiDiscrete([2, 3]),
    }
)
FIELDS = {
    "obs.body.0": "float32[3]",
    "obs.body.1": "float32[4]",
    "obs.camera": "uint8[2, 2]",
    "obs.dials": "float32[5]",
    "obs.switches": "float32[2]",
}


class Drawn(gymnasium.Env):
    """Shows draws from its observation space, and ends after three steps."""

    def __init__(self, observation=NESTED, action=None):
        self.observation_space = observation
        self.action_space = spaces.Discrete(2) if action is None else action
        self.acted = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        self.shown = self.observation_space.sample()
        return self.shown, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.acted.append(action)
        self.t += 1
        self.shown = self.observation_space.sample()
        return self.shown, 1.0, self.t == 3, False, {}


def loop(*envs):
    spec = describe("drawn", envs[0].observation_space, envs[0].action_space, len(envs))
    return LoopEnv("drawn", envs, spec)


def matches(arrays, e, shown):
    assert (arrays["obs.camera"][e] == shown["camera"]).all()
    assert (arrays["obs.body.0"][e] == shown["body"][0]).all()
    assert arrays["obs.body.1"][e].tolist() == np.eye(4)[shown["body"][1] - 1].tolist()
    assert (arrays["obs.switches"][e] == shown["switches"]).all()
    one_hot = [*np.eye(2)[shown["dials"][0]], *np.eye(3)[shown["dials"][1]]]
    assert arrays["obs.dials"][e].tolist() == one_hot


def test_the_parts_of_a_nested_observation_are_fields_of_their_own():
    spec = loop(Drawn()).spec
    assert {field.name: str(field) for field in spec.observations} == FIELDS
    assert spec.n_inputs == 3 + 4 + 4 + 5 + 2


def test_what_is_shown_stands_in_its_fields():
    envs = Drawn(), Drawn()
    env = loop(*envs)
    obs = env.reset(seed=3)
    for _ in range(8):
        for e, each in enumerate(envs):
            matches(obs, e, each.shown)
        obs = env.step(np.zeros(2, np.int64)).obs


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_vector_environment_shows_the_same_fields_and_its_last_observations(mode):
    env = VectorAdapter("drawn", SyncVectorEnv([Drawn, Drawn], autoreset_mode=mode))
    singles = env._env.envs
    env.reset(seed=0)
    for t in range(1, 4):
        last = env.step(np.zeros(2, np.int64))
        if t < 3:
            assert not last.first.any()
    if mode is AutoresetMode.NEXT_STEP:
        matches(last.obs, 1, singles[1].shown)
        assert env.step(np.zeros(2, np.int64)).first.all()
    else:
        assert last.first.all() and last.terminated.all()
        matches(last.obs, 1, singles[1].shown)
        assert (last.final["obs.body.0"] != last.obs["obs.body.0"]).any()


def test_an_observation_that_lacks_a_part_is_refused_by_its_name():
    one = Drawn()
    env = loop(one)
    one.observation_space = spaces.Dict({"camera": NESTED["camera"]})
    with pytest.raises(TianJiError, match=r"'obs\.body\.0': the observation has no 'body'"):
        env.reset()


def test_networks_read_all_fields_side_by_side_in_the_order_of_the_spec():
    env = loop(Drawn())
    obs = env.reset(seed=1)
    flat = np.concatenate([obs[name].reshape(1, -1) for name in FIELDS], 1)
    assert (env.spec.gather(obs) == flat).all() and env.spec.input_shape == (18,)
    stacked = {f"next_{name}": np.stack([array, array]) for name, array in obs.items()}
    assert env.spec.gather(stacked, "next_").shape == (2, 1, 18)


@pytest.mark.parametrize(
    "space, choices, shape",
    [
        (spaces.Discrete(5, start=2), (5,), ()),
        (spaces.MultiDiscrete([3, 4]), (3, 4), (2,)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), (2, 3, 4, 5), (2, 2)),
        (spaces.MultiDiscrete([3, 4], start=[1, -1]), (3, 4), (2,)),
        (spaces.MultiBinary(3), (2, 2, 2), (3,)),
    ],
)
def test_actions_count_from_zero_and_reach_the_space(space, choices, shape):
    one = Drawn(action=space)
    env = loop(one)
    assert env.spec.choices == choices and env.spec.action.shape == shape
    env.reset()
    env.step(np.zeros((1, *shape), np.int64))
    highest = np.array(choices).reshape(1, *shape) - 1
    env.step(highest)
    assert len(one.acted) == 2
    with pytest.raises(TianJiError, match="environment 0 is outside"):
        env.step(highest + 1)
    with pytest.raises(TianJiError, match="environment 0 is outside"):
        env.step(np.full((1, *shape), -1))


@pytest.mark.parametrize("name, size", [("Taxi-v4", 500), ("FrozenLake-v1", 16)])
def test_toy_text_states_are_one_hot(name, size):
    env = make(SimpleNamespace(**SECTION | {"gym_name": name}), 2, ".")
    obs = env.reset(seed=0)["obs"]
    assert obs.shape == (2, size) and (obs.sum(1) == 1).all()
    assert env.step(np.zeros(2, np.int64)).obs["obs"].shape == (2, size)


def test_a_hand_of_blackjack_is_three_fields():
    env = make(SimpleNamespace(**SECTION | {"gym_name": "Blackjack-v1"}), 3, ".")
    assert [f.name for f in env.spec.inputs] == ["obs.0", "obs.1", "obs.2"]
    assert env.spec.gather(env.reset(seed=0)).shape == (3, 32 + 11 + 2)


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("Taxi-v4", "cartpole_dqn.py"),
        ("FrozenLake-v1", "cartpole_ppo.py"),
        ("Blackjack-v1", "cartpole_ppo.py"),
    ],
)
def test_toy_text_is_learned_from(name, task, tmp_path):
    given = ["exp.train_steps=256", "actor_cfg.envs=8", f"environment.gym_name='{name}'"]
    given += ["hyp.step_len=16"] if "ppo" in task else ["hyp.warmup_size=64"]
    report = tianji.train(TASKS / task, *given, engine="local", run_dir=tmp_path / "run")
    assert report.error is None
    assert report.summary["updates"] >= 2
    policy, env = tianji.load(tmp_path / "run"), gymnasium.make(name)
    obs, _ = env.reset(seed=0)  # as gymnasium shows it: a number, or a tuple of three
    assert env.action_space.contains(policy.act(obs))
    env.step(policy.act(obs))
    several = gymnasium.make_vec(name, num_envs=3, vectorization_mode="sync")
    obs, _ = several.reset(seed=0)
    assert several.action_space.contains(policy.act(obs))


@pytest.fixture(scope="module")
def dials(tmp_path_factory):
    """A run with a Dict of observations, stopped half-way and resumed to its target."""
    folder = tmp_path_factory.mktemp("dials") / "run"
    task = TASKS / "dials_dqn.py"
    tianji.train(task, "exp.train_steps=500", engine="local", run_dir=folder)
    return tianji.resume(folder, exp=dict(train_steps=20_000))


def test_a_dict_of_observations_is_learned_from_and_played_in_its_own_terms(dials, monkeypatch):
    assert dials.status == "solved"
    monkeypatch.syspath_prepend(TASKS)
    game, policy = importlib.import_module("dials").Dials(), dials.policy()
    obs, _ = game.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        action = policy.act(obs)
        assert game.action_space.contains(action)
        obs, reward, ended, _, _ = game.step(action)
        total += reward
    assert total == 8


def test_a_policy_is_asked_by_field_too_and_then_counts_from_zero(dials):
    policy = dials.policy()
    env = policy.environment()
    obs = env.reset(seed=0)
    assert set(obs) == {"obs.dial", "obs.noise"}
    action = policy.act(obs)
    assert action.tolist() == obs["obs.dial"].argmax(1).tolist()
    assert env.step(action).reward.tolist() == [1.0] * len(action)


def test_an_observation_that_is_none_of_the_space_is_refused_by_its_field(dials):
    policy = dials.policy()
    noise = np.zeros(2, np.float32)
    for wrong, words in [
        ({"dial": 4, "noise": noise}, "field 'obs.dial'"),
        ({"dial": 1, "noise": noise[:1]}, "field 'obs.noise'"),
        ({"dial": 1}, "has no 'noise'"),
        ([1, noise], "has no 'dial'"),
    ]:
        with pytest.raises(TianJiError, match=words):
            policy.act(wrong)


def test_what_a_space_describes_is_told_from_what_a_field_holds():
    tuples = Terms(spaces.Tuple((spaces.Discrete(3), spaces.Discrete(4))), spaces.Discrete(2))
    arrays, single = tuples.observed((2, 1))
    assert single and arrays["obs.0"].tolist() == [[0, 0, 1]]
    with pytest.raises(TianJiError, match="want a tuple of 2 parts"):
        tuples.observed([(2, 1), (0, 3)])  # two observations, or one of two parts?
    states = Terms(spaces.Discrete(5), spaces.Discrete(2))
    assert states.observed(np.eye(5, dtype=np.float32)[2]) is None  # as its field has it
    arrays, single = states.observed(np.array([4, 0]))
    assert not single and arrays["obs"].argmax(1).tolist() == [4, 0]
    assert Terms(spaces.Box(0, 255, (2,), np.uint8), spaces.Discrete(2)).observed([1, 2]) is None


def test_a_policy_with_a_dict_of_observations_is_exported(dials):
    pytest.importorskip("onnxruntime")
    exported = tianji.export(dials.folder)
    assert exported.parity.equal == 1.0
    assert exported.inputs == ("obs float32 [batch, 5]",)


def test_a_space_with_nothing_in_it_or_two_parts_of_one_name_is_refused():
    with pytest.raises(TianJiError, match=r"drawn: .*nothing in it"):
        describe("drawn", spaces.Dict({}), spaces.Discrete(2), 1)
    box = spaces.Box(-1, 1, (1,))
    alike = spaces.Dict({"a.b": box, "a": spaces.Dict({"b": box})})
    with pytest.raises(TianJiError, match=r"drawn: .*'obs.a.b'"):
        describe("drawn", alike, spaces.Discrete(2), 1)


SECTION = {"type": "GymEnv", "vectorization": "sync", "kwargs": {}, "render": False}


def test_a_spec_survives_its_description():
    spec = describe("drawn", NESTED, spaces.MultiDiscrete([3, 4]), 2, same_step=True)
    assert EnvSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("shape", [(1,), (6,), (2, 3)])
def test_actions_of_any_number_of_numbers_reach_the_environment(shape):
    game = Drawn(action=spaces.Box(-1, 1, shape))
    env = loop(game)
    env.reset(seed=0)
    action = np.linspace(-1, 1, np.prod(shape), dtype=np.float32).reshape(1, *shape)
    env.step(action)
    np.testing.assert_array_equal(game.acted[0], action[0])
