"""Ape-X: DQN with other defaults, and a constant epsilon for every environment."""

from dataclasses import replace

import numpy as np
import pytest
from fields import act, spec_of

from tianji.algorithms.apex import ApeX, ApeXHyp
from tianji.algorithms.dqn import DQN, DQNHyp, q_network
from tianji.config import Section, bind
from tianji.config.keys import ModelConfig
from tianji.config.section import Place
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.stores.prioritised import Prioritised


def task(n_actors=1, n_envs=1, **hyp):
    env = spec_of(Field("obs", "float32", (1,)), Field("action", "int64"), 2, n_envs=n_envs)
    return Task(env, ModelConfig(hidden=(8,)), ApeXHyp(**hyp), n_actors)


def epsilons(job):
    return np.concatenate([ApeX.policy(job, i, 0).epsilon for i in range(job.n_actors)])


@pytest.mark.parametrize(("n_actors", "n_envs"), [(8, 1), (2, 4), (1, 8)])
def test_environments_are_spread_over_all_actors(n_actors, n_envs):
    expected = [0.4 ** (1 + 7 * i / 7) for i in range(8)]
    assert epsilons(task(n_actors, n_envs)) == pytest.approx(expected)


def test_a_lone_environment_explores_as_the_first_of_many():
    assert epsilons(task()) == pytest.approx([0.4])


def test_each_environment_explores_at_its_own_rate_for_ever():
    policy = ApeX.policy(task(n_envs=2, epsilon=0.5, epsilon_spread=2.0), 0, 0)
    actions = np.stack([act(policy, np.zeros((2, 1), "f4"))["action"] for _ in range(8_000)])
    best = act(policy, np.zeros((2, 1), "f4"), explore=False)["action"]
    assert (actions != best).mean(0) == pytest.approx([0.25, 0.5**3 / 2], abs=0.02)


def test_its_samples_are_prioritised_and_of_three_steps():
    sampling = ApeX.sampling(task())
    assert isinstance(sampling, Prioritised)
    assert (sampling.alpha, sampling.beta, sampling.n_step) == (0.6, 0.4, 3)


def test_it_has_two_streams_unless_the_model_says_otherwise():
    job = task()
    one = q_network(replace(job, model=replace(job.model, dueling=False)))
    assert q_network(job).n_weights == one.n_weights + 9
    assert q_network(replace(job, hyp=DQNHyp())).n_weights == one.n_weights


def test_every_key_of_dqn_keeps_its_bounds():
    section = Section.of({"batch_size": 0}, Place("a.py"))
    with pytest.raises(TianJiError, match=r"hyp.batch_size must be at least 1"):
        bind(ApeXHyp, section, "hyp")


def test_actions_that_are_vectors_are_refused_by_its_own_name():
    env = spec_of(Field("obs", "float32", (3,)), Field("action", "float32", (2,)), None)
    with pytest.raises(TianJiError, match=r"^ApeX needs a discrete action space"):
        ApeX.n_weights(replace(task(), env=env))


def test_plain_dqn_explores_alike_everywhere():
    policy = DQN.policy(replace(task(n_envs=4), hyp=DQNHyp(max_decay_step=0)), 0, 0)
    assert policy.epsilon == DQNHyp().epsilon
