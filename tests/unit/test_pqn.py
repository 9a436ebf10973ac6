"""PQN: targets of Q(lambda), and minibatches that learners can share."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fields import act, learned, spec_of
from hypothesis import given
from hypothesis import strategies as st
from made_rollouts import random_batch
from sharing import parts_of, several, together

from tianji.algorithms.pqn import PQN, PQNHyp, q_network
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field

ENV = spec_of(Field("obs", "float32", (3,)), Field("action", "int64"), 4, n_envs=2)
MODEL = ModelConfig(hidden=(8,))


def task(env=ENV, n_actors=1, model=MODEL, **hyp):
    return Task(env, model, PQNHyp(**({"step_len": 5, "minibatch": 64} | hyp)), n_actors)


def rollouts(seed=0, n=2, length=5, same_step=False):
    """Rollouts with actions, rewards and ends at random."""
    batch, _, _, _ = random_batch(seed, n, length, 2, same_step)
    random = np.random.default_rng(seed)
    batch["obs"] = random.standard_normal((n, length + 1, 2, 3)).astype(np.float32)
    if same_step:
        batch["final_obs"] = random.standard_normal((n, length, 2, 3)).astype(np.float32)
    batch["action"] = random.integers(4, size=batch["valid"].shape)
    batch["version"] = np.zeros(n, np.int64)
    return batch


def slow_goals(batch, best, final, gamma, factor):
    """The mean of the n-step returns up to the first boundary, weighed by powers of lambda."""
    found = np.zeros(batch["reward"].shape)
    length = found.shape[1]
    for i, t, e in np.ndindex(found.shape):
        returns, rewards, discount = [], 0.0, 1.0
        for k in range(t, length):
            if not batch["valid"][i, k, e]:
                break
            rewards += discount * batch["reward"][i, k, e]
            discount *= gamma
            terminated, truncated = batch["terminated"][i, k, e], batch["truncated"][i, k, e]
            after = best[i, k + 1, e]
            if truncated and final is not None:
                after = final[i, k, e]
            returns.append(rewards + discount * after * (not terminated))
            if terminated or truncated:
                break
        weights = [(1 - factor) * factor**k for k in range(len(returns) - 1)]
        weights.append(factor ** len(weights))  # the longest takes what is left
        found[i, t, e] = np.dot(weights[: len(returns)], returns)
    return found


def best_of(learner, obs):
    with torch.no_grad():
        return learner.network(torch.from_numpy(obs.reshape(-1, 3))).amax(1).view(obs.shape[:3])


@given(
    st.integers(0, 2**32),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([0.0, 0.9, 1.0]),
    st.sampled_from([0.0, 0.65, 1.0]),
)
def test_targets_are_means_of_returns_of_all_lengths(seed, length, same_step, gamma, factor):
    env = replace(ENV, same_step=same_step)
    learner = PQN(task(env, gamma=gamma, q_lambda=factor, step_len=length), 0)
    batch = rollouts(seed, 2, length, same_step)
    goals = learner._goals(*learner.stage(batch))
    final = best_of(learner, batch["final_obs"]).numpy() if same_step else None
    expected = slow_goals(batch, best_of(learner, batch["obs"]).numpy(), final, gamma, factor)
    valid = batch["valid"]
    np.testing.assert_allclose(goals[valid], expected[valid], atol=1e-4)


def test_one_step_of_the_optimiser_follows_the_squared_error():
    learner, batch = PQN(task(update_step=1, max_grad_norm=None), 0), rollouts()
    batch["valid"][...] = True
    goals = torch.from_numpy(learner._goals(*learner.stage(batch)))
    q = learner.network(torch.from_numpy(batch["obs"][:, :-1].reshape(-1, 3)))
    q = q.gather(1, torch.from_numpy(batch["action"]).reshape(-1, 1)).squeeze(1)
    loss = 0.5 * (q - goals.flatten()).square().mean()
    found = torch.autograd.grad(loss, list(learner.network.parameters()))
    assert learned(learner, batch)["loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
    expected = torch.cat([each.flatten() for each in found])
    torch.testing.assert_close(learner._flat.gradient, expected, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize(("minibatch", "steps"), [(64, 2), (5, 8)])
def test_every_epoch_takes_so_many_steps(minibatch, steps):
    learner = PQN(task(minibatch=minibatch), 0)
    learned(learner, rollouts())
    assert learner.state()["optimiser"]["count"] == steps
    assert learner.state()["updates"] == 1


def test_rows_that_are_not_valid_have_no_influence():
    learner, again, batch = PQN(task(), 0), PQN(task(), 0), rollouts()
    assert not batch["valid"].all()
    junk = {name: array.copy() for name, array in batch.items()}
    junk["reward"][~batch["valid"]] = 1e6
    junk["action"][~batch["valid"]] = 0
    assert learned(learner, batch) == learned(again, junk)
    np.testing.assert_array_equal(learner.weights(), again.weights())


@pytest.mark.parametrize("n_valid", [0, 1])
def test_a_batch_with_hardly_a_valid_sample_does_no_harm(n_valid):
    learner, batch = PQN(task(minibatch=4), 0), rollouts()
    batch["valid"][...] = False
    batch["valid"].flat[:n_valid] = True
    assert np.isfinite(list(learned(learner, batch).values())).all()
    assert np.isfinite(learner.weights()).all()


@pytest.mark.parametrize("k", [2, 4])
def test_learners_together_learn_what_one_would_have_learned(k):
    alone, many = several(PQN, task(lr=3e-3, minibatch=512, max_grad_norm=0.05), k)
    for seed in range(8):  # RAdam adapts from the sixth step
        batch = rollouts(seed, n=4)
        batch["valid"][0] = False  # parts of different worth
        learned(alone, batch)
        together(many, parts_of(batch, k))
    for one in many:
        np.testing.assert_allclose(one.parameters(), alone.parameters(), atol=1e-4)
        assert one.parameters().tobytes() == many[0].parameters().tobytes()


def test_all_learners_exchange_equally_often_however_few_samples_are_valid():
    _, many = several(PQN, task(minibatch=8), 2)
    parts = parts_of(rollouts(n=2), 2)
    parts[1]["valid"][...] = False
    _, n_exchanges = together(many, parts)
    assert n_exchanges == 2 * round(20 / 8)


def test_layers_are_normalised_unless_the_model_says_otherwise():
    plain = q_network(task(model=replace(MODEL, norm=False))).n_weights
    assert q_network(task()).n_weights == plain + 2 * 8
    assert PQN.n_weights(task()) == plain + 2 * 8


def test_so_is_what_convolutions_give():
    env = spec_of(Field("obs", "uint8", (2, 12, 12)), Field("action", "int64"), 4)
    model = ModelConfig(type="CNN", convs=((4, 4, 2), (6, 3, 1)), hidden=(8,))
    plain = q_network(task(env, model=replace(model, norm=False))).n_weights
    dense = q_network(task(env, model=replace(model, norm=True))).n_weights
    assert dense == plain + 2 * 8
    assert q_network(task(env, model=model)).n_weights == dense + 2 * (4 + 6)


def test_each_actor_sends_its_share_per_version_and_takes_turns_with_the_learner():
    sampling = PQN.sampling(task(n_actors=3, batch_size=6))
    assert (sampling.batch, sampling.pool, sampling.per_version) == (6, 6, 2)
    assert PQN.sampling(task(n_actors=3)).per_version == 1
    assert PQN.alternates(PQNHyp(), 2)


def test_unequal_shares_are_refused():
    with pytest.raises(TianJiError, match=r"hyp.batch_size: 4 .* use a multiple of 3$"):
        PQN.sampling(task(n_actors=3, batch_size=4))


def test_exploration_decays_over_the_steps_of_all_actors():
    policy = PQN.policy(task(n_actors=2, epsilon=0.2, max_decay_step=16), 0, 0)
    found = []
    for _ in range(6):
        found.append(policy.epsilon)
        act(policy, np.zeros((2, 3), np.float32))
    assert found == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2])


def test_actions_that_are_vectors_are_refused_with_advice():
    env = spec_of(Field("obs", "float32", (3,)), Field("action", "float32", (2,)), None)
    with pytest.raises(TianJiError, match=r"^PQN needs a discrete action space.*type='PPO'"):
        PQN.n_weights(task(env))
