"""Exported graphs of several agents act as their policies do, with masks, memories and teams."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from tianji.algorithms.ippo import IPPO, IPPOHyp
from tianji.algorithms.maddpg import MADDPG, MADDPGHyp
from tianji.algorithms.mappo import MAPPO, MAPPOHyp
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.schema import Field
from tianji.envs.agents import agents_spec

E, A, N = 4, 3, 5
MLP, GRU = ModelConfig(hidden=(8,)), ModelConfig(type="GRU", hidden=(8,), gru=6)
BOUNDS = np.tile([-1.0, 0.0], (A, 1)), np.tile([1.0, 3.0], (A, 1))
SEEN, PICTURES = Field("obs", "float32", (4,)), Field("obs", "uint8", (2, 3))


def env_of(obs=SEEN, **facts):
    options = {"teams": (0,) * A, "reward_per_agent": False, "bounds": None, "n_actions": N}
    names = [f"agent_{i}" for i in range(A)]
    return replace(agents_spec(names, obs, 6, **{**options, **facts}), n_envs=E)


NUMBERS = {"bounds": BOUNDS, "n_actions": None}
CASES = {
    "memories, and teams that mix": (
        IPPO,
        Task(env_of(teams=(0, 1, 0), reward_per_agent=True), GRU, IPPOHyp(central=False)),
    ),
    "pictures, numbers, one network each": (
        MADDPG,
        Task(env_of(PICTURES, **NUMBERS), MLP, MADDPGHyp(shared=False)),
    ),
    "means": (MAPPO, Task(env_of(**NUMBERS), replace(MLP, act="tanh"), MAPPOHyp())),
}


@pytest.mark.parametrize("case", [*list(CASES)[:2], pytest.param("means", marks=pytest.mark.slow)])
def test_the_graph_acts_as_the_policy_does(case):
    algorithm, task = CASES[case]
    env, random = task.env, np.random.default_rng(1)
    n = algorithm.n_weights(task)
    weights = algorithm(task, 0).weights() + random.normal(0, 0.3, n).astype(np.float32)
    policy = algorithm.policy(task, 0, 0)
    policy.load(weights, 0)
    graph = algorithm.exported(task, weights)
    session = onnxruntime.InferenceSession(graph.model)
    memory, acted = np.full((E, A, 6), 9.0, np.float32), []  # which `first` wipes
    for t in range(5):
        scale = 255 if env.inputs[0].dtype == "uint8" else 3
        obs = {
            "obs": (random.random((E, *env.inputs[0].shape)) * scale).astype(env.inputs[0].dtype)
        }
        obs["mask"] = random.random((E, A, N)) < 0.5
        obs["mask"][..., t] = True
        first = np.array([True] * E if t == 0 else [t == 2, False, False, False])
        given = {**obs, "obs": obs["obs"].astype(np.float32), "memory": memory, "first": first}
        action, scores, *after = session.run(None, {name: given[name] for name in graph.inputs})
        np.testing.assert_allclose(
            action, policy.act(obs, first, explore=False)["action"], atol=1e-5
        )
        np.testing.assert_allclose(scores, graph.scores(obs["obs"], first), atol=1e-5)
        memory = after[0] if after else memory
        acted.append(action)
    assert ("memory" in graph.inputs) == (task.model.type == "GRU") == bool(after)
    assert ("mask" in graph.inputs) == (env.n_actions is not None)
    assert np.unique(acted).size > 1
    alone = {name: given[name][:1] for name in graph.inputs}  # any number may be asked about
    assert [len(found) for found in session.run(None, alone)] == [1] * (2 + len(after))
