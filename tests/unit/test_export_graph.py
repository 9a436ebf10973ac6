"""Exported graphs say what the policies say: convolutions, distributions, normalised inputs."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from fields import act, spec_of

from tianji.algorithms.dqn import DQN, DQNHyp
from tianji.algorithms.ppo import PPO, PPOHyp
from tianji.algorithms.pqn import PQN, PQNHyp
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.env import EnvSpec
from tianji.core.schema import Field

VECTOR = spec_of(Field("obs", "float32", (3,)), Field("action", "int64"), 4)
TURNING = spec_of(
    Field("obs", "float32", (3,)),
    Field("action", "float32", (2,)),
    None,
    action_low=(-1.0, -1.0),
    action_high=(1.0, 1.0),
)
PICTURES = spec_of(Field("obs", "uint8", (2, 12, 12)), Field("action", "int64"), 4)
SEVERAL = EnvSpec((VECTOR.observations[0],), Field("action", "int64", (2,)), (4, 3))
MLP = ModelConfig(hidden=(8,))
CNN = ModelConfig(type="CNN", convs=((4, 4, 2),), hidden=(8,), precision="float32")
CASES = {
    "plain": (DQN, Task(VECTOR, MLP, DQNHyp())),
    "c51": (DQN, Task(VECTOR, replace(MLP, dueling=True), DQNHyp(distribution="c51", atoms=5))),
    "normalised": (PPO, Task(TURNING, MLP, PPOHyp(normalise_obs=True))),
    "shared": (PPO, Task(VECTOR, replace(MLP, shared=True), PPOHyp())),
    "several choices": (PPO, Task(SEVERAL, MLP, PPOHyp())),
    "cnn": (PPO, Task(PICTURES, CNN, PPOHyp())),
    "cnn with norms": (PQN, Task(PICTURES, CNN, PQNHyp())),
    "cnn normalised": (PPO, Task(PICTURES, CNN, PPOHyp(normalise_obs=True))),
}


@pytest.mark.parametrize("case", CASES)
def test_the_graph_acts_as_the_policy_does(case):
    algorithm, task = CASES[case]
    learner = algorithm(task, 0)
    weights = learner.weights() + np.float32(0.01)
    policy = algorithm.policy(task, 0, 0)
    policy.load(weights, 0)
    session = onnxruntime.InferenceSession(algorithm.exported(task, weights).model)
    field = task.env.observations[0]
    obs = (np.random.default_rng(1).random((6, *field.shape)) * 200).astype(field.dtype)
    action, scores = session.run(None, {"obs": obs.astype(np.float32)})
    assert scores.shape == (6, sum(task.env.choices or (2,)))
    np.testing.assert_allclose(action, act(policy, obs, explore=False)["action"], atol=0.02)
