"""DQN and PPO learned by several learners: the update of one, to rounding."""

import numpy as np
import pytest
from fields import learned, spec_of
from sharing import parts_of, several, together

from tianji.algorithms.dqn import DQN, DQNHyp
from tianji.algorithms.ppo import PPO, PPOHyp
from tianji.algorithms.surrogate import Gains, pooled
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Algorithm, Task
from tianji.core.lazy import torch
from tianji.core.schema import Field

ENV = spec_of(Field("obs", "float32", (3,)), Field("action", "int64"), 4, n_envs=2)
MODEL = ModelConfig(hidden=(16,), act="tanh")


def samples(seed, n=12):
    random = np.random.default_rng(seed)
    return {
        "obs": random.normal(size=(n, 3)).astype(np.float32),
        "next_obs": random.normal(size=(n, 3)).astype(np.float32),
        "action": random.integers(4, size=n),
        "reward": random.normal(size=n).astype(np.float32),
        "discount": np.full(n, 0.9, np.float32),
        "version": np.zeros(n, np.int64),
    }


@pytest.mark.parametrize("k", [2, 3])
def test_dqn_learns_the_same_alone_and_together(k):
    task = Task(ENV, MODEL, DQNHyp(lr=1e-2, target_replace_iter=3, clip_grad_norm=0.05))
    alone, many = several(DQN, task, k)
    for seed in range(8):
        scalars = learned(alone, samples(seed))
        results, _ = together(many, parts_of(samples(seed), k))
        assert scalars["loss"] == pytest.approx(np.mean([r["loss"] for r in results]), rel=1e-3)
    for one in many:
        np.testing.assert_allclose(one.parameters(), alone.parameters(), atol=2e-5)
        assert one.parameters().tobytes() == many[0].parameters().tobytes()


def rollouts(seed, invalid=0.2, n=4, length=6):
    random, shape = np.random.default_rng(seed), (n, length, 2)
    flag = lambda p: random.random(shape) < p  # noqa: E731
    return {
        "obs": random.normal(size=(n, length + 1, 2, 3)).astype(np.float32),
        "action": random.integers(4, size=shape),
        "reward": random.normal(loc=2.0, size=shape).astype(np.float32),
        "logp": np.full(shape, np.log(0.25), np.float32),
        "terminated": flag(0.1),
        "truncated": np.zeros(shape, bool),
        "valid": ~flag(invalid),
        "version": np.zeros(n, np.int64),
    }


PPO_MODES = pytest.mark.parametrize(
    "mode",
    [
        {},
        {"mode": "async"},
        {"mode": "async", "average_decay": 0.0, "weight_cap": 1.0},
        {"mode": "async", "correction": "none"},
        {"normalise_obs": True, "normalise_reward": True, "normalise_value": True},
    ],
    ids=["sync", "ewma", "clipped weights", "no correction", "normalised"],
)


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_inputs_far_from_0_are_scaled_the_same_alone_and_together(far):
    hyp = PPOHyp(minibatch=512, step_len=6, normalise_obs=True)
    alone, many = several(PPO, Task(ENV, MODEL, hyp), 2)
    batch = rollouts(0)
    batch["obs"] = 0.1 * batch["obs"] + np.float32(far)
    learned(alone, batch)
    together(many, parts_of(batch, 2))
    scale = alone._scales.inputs.scale
    assert (scale > 5).all()
    for one in many:
        np.testing.assert_allclose(one._scales.inputs.scale, scale, rtol=1e-2)


@PPO_MODES
@pytest.mark.parametrize("k", [2, 4])
def test_ppo_learns_the_same_alone_and_together_where_a_batch_is_one_minibatch(k, mode):
    hyp = PPOHyp(lr=3e-3, minibatch=512, update_step=3, step_len=6, ent_coef=0.01, **mode)
    alone, many = several(PPO, Task(ENV, MODEL, hyp), k)
    for seed in range(4):
        batch = rollouts(seed)
        batch["valid"][0] = False  # parts of different worth
        learned(alone, batch)
        together(many, parts_of(batch, k))
    for one in many:
        np.testing.assert_allclose(one.parameters(), alone.parameters(), atol=1e-4)
        assert one.parameters().tobytes() == many[0].parameters().tobytes()


@pytest.mark.parametrize("invalid", [0.0, 0.5, 0.95, 1.0])
def test_all_learners_exchange_equally_often_however_few_samples_are_valid(invalid):
    hyp = PPOHyp(minibatch=8, update_step=2, step_len=6)
    _, many = several(PPO, Task(ENV, MODEL, hyp), 2)
    parts = parts_of(rollouts(0, invalid), 2)
    parts[1]["valid"][...] = False  # one of them has nothing at all
    before = many[0].parameters().copy()
    results, n_exchanges = together(many, parts)
    assert n_exchanges == (1 if invalid == 1.0 else 1 + 2 * round(48 / 8))
    assert np.isfinite([list(result.values()) for result in results]).all()
    assert many[0].parameters().tobytes() == many[1].parameters().tobytes()
    assert (many[0].parameters() == before).all() == (invalid == 1.0)


def test_nothing_has_changed_before_the_first_gradient():
    for algorithm, hyp, batch in ((DQN, DQNHyp(), samples(0)), (PPO, PPOHyp(), rollouts(0))):
        _, (one, _) = several(algorithm, Task(ENV, MODEL, hyp), 2)
        before, state = one.parameters().copy(), one.state()
        update = one.updates(one.stage(batch))
        next(update)
        update.close()
        after = one.state()
        assert (one.parameters() == before).all()
        assert after["updates"] == state["updates"]
        assert after["optimiser"]["count"] == state["optimiser"]["count"]


@pytest.mark.parametrize("n", [1, 2, 50])
def test_pooled_moments_are_those_of_all_samples_in_one_place(n):
    values = torch.from_numpy(np.random.default_rng(n).normal(3, 2, (4, n)).astype(np.float32))
    whole = Gains(values.ravel())
    sums = np.mean([Gains(each).sums() for each in values], axis=0)
    (moments,), (expected,) = pooled(sums.tolist(), 4), whole.moments()
    assert moments.n == n
    for name in ("mean", "spread"):
        assert getattr(moments, name) == pytest.approx(float(getattr(expected, name)), rel=1e-4)


def test_each_team_has_moments_of_its_own():
    values = torch.tensor([1.0, 100.0, 3.0, 300.0])
    first = torch.tensor([True, False, True, False])
    gains = Gains(values, teams=(first, ~first))
    alone = Gains(values[first]), Gains(values[~first])
    assert gains.sums() == alone[0].sums() + alone[1].sums()
    for moments in (gains.moments(), pooled(gains.sums(), 1)):
        normal = gains.normalised(moments)
        for own, each in zip((first, ~first), alone, strict=True):
            np.testing.assert_allclose(normal[own], each.normalised(each.moments()), rtol=1e-5)


def test_what_learners_exchange_has_a_number_for_each_parameter():
    """The learner's channels have that many; statistics of inputs and returns are among them."""
    hyp = PPOHyp(normalise_obs=True, normalise_value=True, step_len=6)
    _, (one, _) = several(PPO, Task(ENV, MODEL, hyp), 2)
    update = one.updates(one.stage(rollouts(0)))
    assert next(update).shape == (PPO.n_parameters(one.task),)
    update.close()


def test_dqn_moves_its_online_network_and_leaves_its_target_alone():
    one = DQN(Task(ENV, MODEL, DQNHyp()), 0)
    before, target = one.parameters().copy(), one.state()["target"].copy()
    delta = np.linspace(-1, 1, before.size, dtype=np.float32)
    one.shift(delta)
    np.testing.assert_allclose(one.parameters(), before + delta, atol=1e-6)
    np.testing.assert_array_equal(one.state()["target"], target)


def test_ppo_has_its_value_network_among_its_parameters():
    task = Task(ENV, MODEL, PPOHyp())
    one = PPO(task, 0)
    assert one.parameters().shape == (PPO.n_parameters(task),)
    assert PPO.n_parameters(task) > PPO.n_weights(task)
    before = one.state()["parameters"].copy()
    one.shift(np.ones(PPO.n_parameters(task), np.float32))
    np.testing.assert_allclose(one.state()["parameters"], before + 1, atol=1e-6)


class Simple(Algorithm):
    """An algorithm of a user's that knows nothing of groups."""

    def __init__(self):
        self.vector = np.arange(3, dtype=np.float32)

    policy = sampling = learn = None

    @classmethod
    def n_weights(cls, task):
        return 3

    def weights(self):
        return self.vector

    def load(self, weights):
        self.vector = weights


def test_a_users_algorithm_can_be_fused_as_it_is():
    one = Simple()
    one.shift(np.ones(3, np.float32))
    assert one.parameters().tolist() == [1, 2, 3]
    assert Simple.n_parameters(None) == 3
    assert not Simple.shares_updates()
