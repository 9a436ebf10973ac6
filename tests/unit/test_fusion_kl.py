"""How far a fusion moves a policy: by the actions of a batch, where these have probabilities."""

import numpy as np
import pytest
from agents_tasks import agents_env, seen, task_of
from fields import spec_of
from learners import GroupOfLearners, N

from tianji.algorithms.base import MEASURED
from tianji.algorithms.dqn import DQN
from tianji.algorithms.impala import IMPALA, IMPALAHyp
from tianji.algorithms.mappo import MAPPO, MAPPOHyp
from tianji.algorithms.ppo import PPO, PPOHyp
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.counts import Count
from tianji.core.env import EnvSpec
from tianji.core.schema import Field
from tianji.core.store import keep, trajectory_schema
from tianji.roles.fusion import adopt

OBS = Field("obs", "float32", (3,))
BOUNDS = {"action_low": (-0.5, -1.0), "action_high": (0.5, 1.0)}
DISCRETE = spec_of(OBS, Field("action", "int64"), 4, n_envs=2)
CONTINUOUS = spec_of(OBS, Field("action", "float32", (2,)), None, n_envs=2, **BOUNDS)
MASKED = EnvSpec((OBS, Field("mask", "bool", (4,))), Field("action", "int64"), (4,), n_envs=2)
MODEL = ModelConfig(hidden=(8,), act="tanh")
TEAM = agents_env()

JOBS = {
    "ppo": (PPO, Task(DISCRETE, MODEL, PPOHyp(step_len=5))),
    "ppo-continuous": (PPO, Task(CONTINUOUS, MODEL, PPOHyp(step_len=5))),
    "ppo-long": (PPO, Task(DISCRETE, MODEL, PPOHyp(step_len=200))),
    "ppo-masked": (PPO, Task(MASKED, MODEL, PPOHyp(step_len=5))),
    "impala": (IMPALA, Task(DISCRETE, MODEL, IMPALAHyp(step_len=5))),
    "mappo": (MAPPO, task_of(TEAM, MAPPOHyp(step_len=5), type="MLP")),
    "mappo-gru": (MAPPO, task_of(TEAM, MAPPOHyp(step_len=5), type="GRU", gru=8)),
}


def learner_and_batch(algorithm, task, n=2):
    """A learner, and rollouts of its own policy in which nothing ever ends."""
    random, learner = np.random.default_rng(0), algorithm(task, 0)
    policy = algorithm.policy(task, 0, 0)
    policy.load(learner.weights(), 0)
    schema = trajectory_schema(task.env, algorithm.fields(task), task.hyp.step_len)
    return learner, _stacked([_rollout(schema.empty(), task, policy, random) for _ in range(n)])


def _rollout(rows, task, policy, random):
    length, n_envs = task.hyp.step_len, task.env.n_envs
    if task.env.agents or task.env.masked:
        shown = seen(task.env, random, length + 1, n_envs)
    else:
        shown = {"obs": random.standard_normal((length + 1, n_envs, 3)).astype(np.float32)}
    for name, array in shown.items():
        rows[name][...] = array
    rows["valid"][...] = True
    rows["valid"][0, 0] = False
    for t in range(length):
        obs = {name: array[t] for name, array in shown.items()}
        keep(policy.act(obs, np.zeros(n_envs, bool)), rows, t)
    return rows


def _stacked(rows):
    return {name: np.stack([each[name] for each in rows]) for name in rows[0]}


@pytest.mark.parametrize("job", JOBS)
def test_the_probabilities_are_those_of_the_policy_that_acted(job):
    learner, batch = learner_and_batch(*JOBS[job])
    found = learner.log_probabilities(batch)
    takes_part = batch["valid"]
    if "alive" in batch:
        takes_part = takes_part[..., None] & batch["alive"][:, :-1]
    said = batch["logp"][takes_part]
    assert 1 <= len(found) <= MEASURED
    if job == "ppo-long":
        assert len(found) > MEASURED / 2
    else:
        assert len(found) == len(said)
        np.testing.assert_allclose(np.sort(found), np.sort(said), atol=1e-5)


@pytest.mark.parametrize("job", JOBS)
def test_the_further_a_fusion_moves_the_parameters_the_more_the_policy_diverges(job):
    divergences = []
    for size in (0.0, 0.03, 0.3):
        learner, batch = learner_and_batch(*JOBS[job])
        random = np.random.default_rng(1)
        correction = random.standard_normal(len(learner.parameters())).astype(np.float32)
        before = learner.parameters().copy()
        divergences.append(adopt(learner, size * correction, batch))
        np.testing.assert_allclose(learner.parameters(), before + size * correction, atol=1e-6)
    none, some, much = divergences
    assert none == pytest.approx(0, abs=1e-9)
    assert 1e-6 < some < much


@pytest.mark.parametrize("job", JOBS)
def test_an_empty_batch_moves_the_parameters_and_tells_no_divergence(job):
    learner, batch = learner_and_batch(*JOBS[job])
    batch["valid"][...] = False
    before = learner.parameters().copy()
    assert adopt(learner, np.ones_like(before), batch) == 0.0
    np.testing.assert_allclose(learner.parameters(), before + 1, atol=1e-6)


def test_what_is_measured_is_the_divergence():
    """Of every single choice, drawn as often as its probability says."""
    learner, batch = learner_and_batch(PPO, Task(DISCRETE, MODEL, PPOHyp(step_len=400)), n=10)
    before = np.exp(_all_choices(learner, batch))
    random = np.random.default_rng(1)
    correction = random.standard_normal(len(learner.parameters())).astype(np.float32)
    found = adopt(learner, 0.2 * correction, batch)
    after = np.exp(_all_choices(learner, batch))
    expected = np.mean((before * np.log(before / after)).sum(0))
    assert found == pytest.approx(expected, rel=0.3)


def _all_choices(learner, batch):
    each = [batch | {"action": np.full_like(batch["action"], a)} for a in range(4)]
    return np.stack([learner.log_probabilities(one) for one in each])


def test_a_learner_of_values_has_no_probabilities():
    task = Task(DISCRETE, MODEL, DQN.Hyp())
    assert DQN(task, 0).log_probabilities({}) is None


@pytest.mark.parametrize("k", [1, 2])
def test_a_learner_counts_by_how_much_the_mean_has_moved_its_policy(k, monkeypatch):
    group = GroupOfLearners(k, interval=1)
    first = group.learners[0]

    def log_probabilities(batch):
        assert len(batch["x"]) == group.rows // k
        return first.algorithm.vector.copy()

    monkeypatch.setattr(first.algorithm, "log_probabilities", log_probabilities)
    group.push()
    group.run()
    sent = group.parameters.take().arrays["parameters"].copy()
    assert first.counts[Count.FUSION_KL] == 0.0
    group.mean.push({"parameters": sent + np.float32(0.5)}, 1)
    group.push()
    group.run()
    assert first.counts[Count.FUSIONS] == 1 and len(first.algorithm.vector) == N
    assert first.counts[Count.FUSION_KL] == pytest.approx(np.exp(0.5) - 1.5, rel=1e-5)
