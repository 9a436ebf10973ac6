"""One contract, every algorithm: what a learner, a buffer and an actor rely on."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from agents_tasks import agents_env
from carrying import carried
from fields import learned, spec_of

from tianji.algorithms.apex import ApeX, ApeXHyp
from tianji.algorithms.dqn import DQN, DQNHyp
from tianji.algorithms.impala import IMPALA, IMPALAHyp
from tianji.algorithms.ippo import IPPO, IPPOHyp
from tianji.algorithms.iql import IQL, IQLHyp
from tianji.algorithms.maddpg import MADDPG, MADDPGHyp
from tianji.algorithms.mappo import MAPPO, MAPPOHyp
from tianji.algorithms.ppo import PPO, PPOHyp
from tianji.algorithms.pqn import PQN, PQNHyp
from tianji.algorithms.qmix import QMIX, QMIXHyp
from tianji.algorithms.sac import SAC, SACHyp
from tianji.algorithms.td3 import TD3, TD3Hyp
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Algorithm, Task
from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.schema import Field, Schema
from tianji.core.store import keep, trajectory_schema

OBS = Field("obs", "float32", (3,))
DISCRETE = spec_of(OBS, Field("action", "int64"), 4, n_envs=2)
CONTINUOUS = spec_of(
    OBS,
    Field("action", "float32", (2,)),
    None,
    n_envs=2,
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
)
SEVERAL = EnvSpec((OBS,), Field("action", "int64", (2,)), (4, 3), n_envs=2)
SWITCHES = EnvSpec((OBS,), Field("action", "int64", (2, 2)), (2, 2, 2, 2), n_envs=2)
SMALL, DUELING = ModelConfig(hidden=(8, 8)), ModelConfig(hidden=(8,), dueling=True)
ON_POLICY = PPOHyp(step_len=6, minibatch=8)
PICTURES = spec_of(Field("obs", "uint8", (2, 12, 12)), Field("action", "int64"), 4, n_envs=2)
FRAMES = spec_of(Field("obs", "uint8", (12, 12)), Field("action", "int64"), 4, n_envs=2, stack=2)
CNN = ModelConfig(type="CNN", convs=((4, 4, 2),), hidden=(8,), precision="float32")
NORMALISED = replace(ON_POLICY, normalise_obs=True, normalise_reward=True, normalise_value=True)
ADAPTIVE = replace(ON_POLICY, kl_target=0.01, value_clip=0.2)
FEW = DQNHyp(batch_size=8)
APEX = ApeXHyp(batch_size=8, buffer_size=200, warmup_size=32)
LATE, FRESH = IMPALAHyp(step_len=6), PQNHyp(step_len=6, minibatch=8, max_decay_step=100)
DDPG = TD3Hyp(batch_size=8, warmup_size=8, twin=False, delay=1, target_noise=0.0)
SOFT = SACHyp(batch_size=8, warmup_size=8, n_step=3)
TEAM = agents_env(n_envs=2)
RIVALS = agents_env(n_envs=2, teams=(0, 0, 1), reward_per_agent=True)
GIVING = replace(
    RIVALS,
    observations=tuple(field for field in RIVALS.observations if field.name != "mask"),
    action=Field("action", "float32", (3, 2)),
    choices=None,
    action_low=(-1.0,) * 6,
    action_high=(1.0,) * 6,
    own_actions=(2, 1, 2),
)
GRU = ModelConfig(type="GRU", hidden=(8,), gru=8)
MIXED = QMIXHyp(batch_size=4, step_len=6, warmup_size=12, mixing_units=4, hyper_units=8)
DEEP = MADDPGHyp(batch_size=8, warmup_size=8)
TOGETHER = MAPPOHyp(step_len=6, minibatch=8, update_step=2)
ALONE = IPPOHyp(step_len=6, minibatch=8, update_step=2)
AGENTS = {
    "qmix": (QMIX, Task(TEAM, SMALL, MIXED)),
    "qmix gru": (QMIX, Task(TEAM, GRU, MIXED)),
    "iql rivals": (IQL, Task(RIVALS, SMALL, IQLHyp(batch_size=4, step_len=6, warmup_size=12))),
    "maddpg": (MADDPG, Task(TEAM, SMALL, DEEP)),
    "maddpg rivals": (MADDPG, Task(RIVALS, SMALL, replace(DEEP, shared=False))),
    "maddpg numbers": (MADDPG, Task(GIVING, SMALL, DEEP)),
    "mappo": (MAPPO, Task(TEAM, SMALL, TOGETHER)),
    "mappo gru": (MAPPO, Task(TEAM, GRU, TOGETHER)),
    "mappo rivals": (MAPPO, Task(RIVALS, SMALL, TOGETHER)),
    "mappo rivals gru": (MAPPO, Task(RIVALS, GRU, replace(TOGETHER, shared=False))),
    "mappo numbers": (MAPPO, Task(GIVING, SMALL, TOGETHER)),
    "mappo clipped": (MAPPO, Task(TEAM, SMALL, replace(TOGETHER, value_clip=0.2, huber=None))),
    "mappo rewards": (MAPPO, Task(RIVALS, SMALL, replace(TOGETHER, normalise_reward=True))),
    "mappo asynchronous": (MAPPO, Task(TEAM, GRU, replace(TOGETHER, mode="async"))),
    "ippo": (IPPO, Task(TEAM, SMALL, ALONE)),
    "ippo gru": (IPPO, Task(TEAM, GRU, ALONE)),
    "ippo numbers gru": (IPPO, Task(GIVING, GRU, ALONE)),
}
PIXELS = {
    "dqn cnn": (DQN, Task(PICTURES, CNN, FEW)),
    "ppo cnn": (PPO, Task(PICTURES, CNN, ON_POLICY)),
    "ppo cnn normalised": (PPO, Task(PICTURES, CNN, NORMALISED)),
    "impala cnn": (IMPALA, Task(PICTURES, CNN, LATE)),
    "pqn cnn": (PQN, Task(PICTURES, CNN, FRESH)),
    "apex cnn": (ApeX, Task(PICTURES, CNN, APEX)),
    "impala frames": (IMPALA, Task(FRAMES, CNN, LATE)),
    "pqn frames": (PQN, Task(FRAMES, CNN, FRESH)),
    "apex frames": (ApeX, Task(FRAMES, CNN, APEX)),
}
CASES = {
    "dqn": (DQN, Task(DISCRETE, SMALL, DQNHyp(batch_size=8))),
    "dqn dueling": (DQN, Task(DISCRETE, DUELING, DQNHyp(batch_size=8, n_step=3))),
    "ppo discrete": (PPO, Task(DISCRETE, SMALL, ON_POLICY)),
    "ppo continuous": (PPO, Task(CONTINUOUS, SMALL, ON_POLICY)),
    "ppo several choices": (PPO, Task(SEVERAL, SMALL, ON_POLICY)),
    "ppo switches": (PPO, Task(SWITCHES, SMALL, ON_POLICY)),
    "impala several choices": (IMPALA, Task(SEVERAL, SMALL, LATE)),
    "dqn soft target": (DQN, Task(DISCRETE, SMALL, replace(FEW, target_tau=0.1))),
    "dqn prioritised": (DQN, Task(DISCRETE, SMALL, replace(FEW, prioritised=True, beta_steps=9))),
    "dqn c51": (DQN, Task(DISCRETE, DUELING, replace(FEW, distribution="c51", atoms=7))),
    "dqn qr": (DQN, Task(DISCRETE, SMALL, replace(FEW, distribution="qr", atoms=5))),
    "ppo shared": (PPO, Task(DISCRETE, replace(SMALL, shared=True), ON_POLICY)),
    "ppo normalised": (PPO, Task(DISCRETE, SMALL, NORMALISED)),
    "ppo continuous normalised": (PPO, Task(CONTINUOUS, SMALL, NORMALISED)),
    "ppo adaptive": (PPO, Task(DISCRETE, SMALL, ADAPTIVE)),
    "impala": (IMPALA, Task(DISCRETE, SMALL, LATE)),
    "impala continuous": (IMPALA, Task(CONTINUOUS, SMALL, replace(LATE, optimiser="rmsprop"))),
    "pqn": (PQN, Task(DISCRETE, SMALL, FRESH)),
    "pqn dueling": (PQN, Task(DISCRETE, DUELING, FRESH)),
    "apex": (ApeX, Task(DISCRETE, SMALL, APEX)),
    "td3": (TD3, Task(CONTINUOUS, SMALL, TD3Hyp(batch_size=8, warmup_size=8))),
    "ddpg": (TD3, Task(CONTINUOUS, SMALL, replace(DDPG, clip_grad_norm=0.5))),
    "sac": (SAC, Task(CONTINUOUS, SMALL, SOFT)),
    "sac fixed": (SAC, Task(CONTINUOUS, SMALL, replace(SOFT, alpha=0.2))),
    **AGENTS,
}


@pytest.fixture(params=[*CASES, *PIXELS])
def case(request):
    return (CASES | PIXELS)[request.param]


def seen(task, random, *lead):
    """Observations at random, of the environment's shapes and dtypes."""
    shown = {}
    for field in task.env.observations:
        values = random.standard_normal((*lead, *field.shape)) * (
            50 if field.dtype[0] == "u" else 1
        )
        shown[field.name] = values > -1 if field.dtype == "bool" else values.astype(field.dtype)
    if "mask" in shown:
        shown["mask"][..., 0] = True
    return shown


def same(task):
    """The same observation in both environments."""
    return {f.name: np.ones((2, *f.shape), f.dtype) for f in task.env.observations}


def act(policy, shown, explore=True):
    """What a policy decides in the middle of episodes."""
    return policy.act(shown, np.zeros(2, bool), explore)


def layout(algorithm, task):
    length = algorithm.rollout_length(task) or 6
    return trajectory_schema(task.env, algorithm.fields(task), length)


def make_batch(algorithm, task, seed=0):
    """What the buffer would hand out after the policy has acted at random observations."""
    random, policy = np.random.default_rng(seed), algorithm.policy(task, 0, seed)
    policy.load(algorithm(task, seed).weights(), 0)
    schema, sampling = layout(algorithm, task), algorithm.sampling(task)
    store, batch = sampling.build(schema, 1, 0, seed), sampling.batch_schema(schema).empty()
    while not store.ready():
        trajectory = schema.empty()
        length = len(trajectory["reward"])
        trajectory["length"][...] = length
        shown = seen(task, random, length + 1, 2)
        for name, array in shown.items():
            trajectory[name][...] = array
        trajectory["reward"][...] = random.standard_normal(trajectory["reward"].shape)
        trajectory["valid"][...] = True
        for t in range(length):
            keep(act(policy, {name: array[t] for name, array in shown.items()}), trajectory, t)
        store.add(0, trajectory, 0)
    store.draw(batch)
    return batch


def test_an_update_with_nan_changes_nothing_that_is_learned_and_the_next_one_learns(case):
    algorithm, task = case
    learner, batch = algorithm(task, 0), make_batch(algorithm, task)
    learned(learner, batch)
    before = carried(learner.state())
    rewards = batch["reward"].copy()
    batch["reward"][...] = np.nan
    learned(learner, batch)
    assert learner.n_left_out() > 0
    after = learner.state()
    np.testing.assert_array_equal(after["parameters"], before["parameters"])
    for name in [name for name in before if "optimiser" in name]:
        np.testing.assert_equal(after[name], before[name])
    batch["reward"][...] = rewards
    learned(learner, batch)
    assert np.isfinite(learner.parameters()).all()
    assert (learner.state()["parameters"] != before["parameters"]).any()


def test_as_many_weights_are_sent_as_were_announced(case):
    algorithm, task = case
    weights = algorithm(task, 0).weights()
    assert (weights.shape, weights.dtype) == ((algorithm.n_weights(task),), np.float32)


def test_a_policy_takes_the_weights_and_returns_the_declared_fields(case):
    algorithm, task = case
    policy = algorithm.policy(task, 0, 0)
    policy.load(algorithm(task, 0).weights(), 0)
    declared = Schema((task.env.action, *algorithm.fields(task))).stacked(task.env.n_envs)
    for explore in (True, False):
        decision = act(policy, same(task), explore)
        declared.check({name: np.asarray(array) for name, array in decision.items()})


def test_a_policy_copies_what_it_loads(case):
    algorithm, task = case
    policies = [algorithm.policy(task, 0, 0) for _ in range(2)]
    weights = algorithm(task, 0).weights().copy()
    for policy in policies:
        policy.load(weights, 0)
    before = act(policies[0], same(task))
    weights[...] = np.nan
    after = act(policies[1], same(task))
    assert all((before[name] == after[name]).all() for name in before)


def test_actions_depend_on_the_seed_alone(case):
    algorithm, task = case
    weights = algorithm(task, 0).weights()

    def actions(seed):
        policy = algorithm.policy(task, 0, seed)
        policy.load(weights, 0)
        return np.stack([act(policy, same(task))["action"] for _ in range(30)])

    assert (actions(1) == actions(1)).all()
    assert (actions(1) != actions(2)).any()


def test_learning_returns_exactly_the_announced_scalars(case):
    algorithm, task = case
    scalars = learned(algorithm(task, 0), make_batch(algorithm, task))
    if algorithm.sampling(task).reweighs:
        assert scalars.pop("priorities").shape == (task.hyp.batch_size,)
    assert tuple(scalars) == algorithm.scalars
    assert all(type(value) is float and np.isfinite(value) for value in scalars.values())


def test_learning_moves_the_weights(case):
    algorithm, task = case
    learner = algorithm(task, 0)
    before = learner.weights().copy()
    learned(learner, make_batch(algorithm, task))
    assert (before != learner.weights()).any()
    assert np.isfinite(learner.weights()).all()


def test_learning_leaves_the_batch_as_it_was(case):
    algorithm, task = case
    batch = make_batch(algorithm, task)
    before = {name: array.copy() for name, array in batch.items()}
    learned(algorithm(task, 0), batch)
    for name, array in batch.items():
        np.testing.assert_array_equal(array, before[name])


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(case):
    algorithm, task = case

    def trained(seed):
        learner = algorithm(task, seed)
        for i in range(3):
            learned(learner, make_batch(algorithm, task, i))
        return learner.weights().copy()

    assert (trained(1) == trained(1)).all()
    assert (trained(1) != trained(2)).any()


def test_loading_is_the_inverse_of_sending(case):
    algorithm, task = case
    one, two = algorithm(task, 1), algorithm(task, 2)
    assert (one.weights() != two.weights()).any()
    two.load(one.weights().copy())
    np.testing.assert_array_equal(two.weights(), one.weights())


def test_a_restored_learner_learns_on_as_the_first_would_have(case):
    algorithm, task = case
    one, two = algorithm(task, 1), algorithm(task, 2)
    for i in range(7):
        learned(one, make_batch(algorithm, task, i))
    learned(two, make_batch(algorithm, task, 50))
    two.restore(carried(one.state()))
    assert (two.weights() == one.weights()).all()
    for i in range(7, 14):
        batch = make_batch(algorithm, task, i)
        np.testing.assert_equal(learned(one, batch), learned(two, batch))
    assert (two.weights() == one.weights()).all()


def test_a_restored_policy_acts_on_as_the_first_would_have(case):
    algorithm, task = case
    random = np.random.default_rng(0)
    one, two = algorithm.policy(task, 0, 1), algorithm.policy(task, 0, 2)
    one.load(algorithm(task, 0).weights() + np.float32(0.1), 0)
    for _ in range(30):
        act(one, seen(task, random, 2))
    two.restore(carried(one.state()))
    for _ in range(100):
        obs = seen(task, random, 2)
        decision, other = act(one, obs), act(two, obs)
        assert all((decision[name] == other[name]).all() for name in decision)


def test_a_learner_s_state_is_float32_and_no_other_model_takes_it(case):
    algorithm, task = case
    state = carried(algorithm(task, 1).state())
    assert state["parameters"].dtype == state["optimiser"]["mean"].dtype == np.float32
    other = replace(task, model=ModelConfig(hidden=(9, 8)))
    with pytest.raises(TianJiError, match=r"saved parameters: want shape .*got.*another model"):
        algorithm(other, 1).restore(state)


def test_the_learning_rate_falls_in_a_line_and_goes_on_after_a_stop(case):
    algorithm, task = case
    task = replace(task, hyp=replace(task.hyp, lr=0.01, lr_decay=4, lr_final=0.002))
    learner, rates = algorithm(task, 1), []
    if getattr(task.hyp, "kl_target", None) is not None:
        pytest.skip("it moves the learning rate besides")
    for i in range(7):
        if i == 2:
            saved, learner = carried(learner.state()), algorithm(task, 1)
            learner.restore(saved)
        learned(learner, make_batch(algorithm, task, i))
        rates.append(learner._optimiser.lr)
    assert rates == pytest.approx([0.01, 0.008, 0.006, 0.004, 0.002, 0.002, 0.002])


def test_without_a_decay_the_learning_rate_stays(case):
    algorithm, task = case
    learner = algorithm(task, 1)
    if getattr(task.hyp, "kl_target", None) is not None:
        pytest.skip("it moves the learning rate")
    for i in range(3):
        learned(learner, make_batch(algorithm, task, i))
        assert learner._optimiser.lr == task.hyp.lr


class Forgets(DQN):
    """An algorithm that says nothing of its own about its state."""

    state, restore = Algorithm.state, Algorithm.restore


def test_an_algorithm_that_says_nothing_keeps_its_weights():
    _, task = CASES["dqn"]
    one, two = Forgets(task, 1), Forgets(task, 2)
    state = one.state()
    assert not np.shares_memory(state["weights"], one.weights())
    two.restore(carried(state))
    assert (two.weights() == one.weights()).all()


WITHOUT_TORCH = """
import sys
import numpy as np
sys.path[:0] = ["tests", "tests/contract"]
import test_algorithm_contract as contract
for algorithm, task in contract.CASES.values():
    policy = algorithm.policy(task, 0, 0)
    policy.load(np.zeros(algorithm.n_weights(task), np.float32), 0)
    contract.act(policy, contract.same(task))
    algorithm.sampling(task).batch_schema(contract.layout(algorithm, task))
assert "torch._C" not in sys.modules, "torch was loaded"
assert "gymnasium" not in sys.modules, "gymnasium was loaded"
"""


def test_an_actor_needs_no_torch(root, child_env):
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], cwd=root, env=child_env, check=True)
