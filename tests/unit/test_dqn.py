"""DQN: the update of Algorithm 1, and how its actors explore."""

import numpy as np
import pytest
import torch
from fields import act, learned, spec_of

from tianji.algorithms.dqn import DQN, DQNHyp, projected, quantile_loss
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field

LR = 0.01


def task(n_actors=1, hidden=(), n_inputs=1, dueling=False, **hyp):
    env = spec_of(Field("obs", "float32", (n_inputs,)), Field("action", "int64"), 2)
    model = ModelConfig(hidden=hidden, dueling=dueling)
    return Task(env, model, DQNHyp(**({"lr": LR} | hyp)), n_actors)


def linear(**hyp):
    """Q(s, 0) = 0.1 s, Q(s, 1) = 0.3 s + 0.2; a target network that says 0.4 s and 0.2 s."""
    algorithm = DQN(task(**hyp), seed=0)
    algorithm.load(np.array([0.1, 0.3, 0.0, 0.2], np.float32))
    target = algorithm._target_flat.vector
    target.copy_(target.new_tensor([0.4, 0.2, 0.0, 0.0]))
    return algorithm


def batch(obs=1.0, action=0, reward=0.5, discount=0.9, next_obs=1.0):
    return {
        "obs": np.array([[obs]], np.float32),
        "action": np.array([action]),
        "reward": np.array([reward], np.float32),
        "discount": np.array([discount], np.float32),
        "next_obs": np.array([[next_obs]], np.float32),
    }


@pytest.mark.parametrize(
    ("double_q", "discount", "goal"),
    [
        (True, 0.9, 0.5 + 0.9 * 0.2),  # the online network chooses action 1, the target prices it
        (False, 0.9, 0.5 + 0.9 * 0.4),  # the target network's own best
        (True, 0.0, 0.5),  # the task ended
        (False, 0.0, 0.5),
        (True, 0.9**3, 0.5 + 0.9**3 * 0.2),  # three steps of reward
    ],
)
def test_the_goal_is_reward_plus_discounted_value_of_the_successor(double_q, discount, goal):
    scalars = learned(linear(double_q=double_q), batch(discount=discount))
    assert scalars["target_mean"] == pytest.approx(goal)
    assert scalars["loss"] == pytest.approx(0.5 * (goal - 0.1) ** 2)


def test_one_step_moves_the_taken_action_towards_its_goal_and_leaves_the_other():
    algorithm = linear()
    learned(algorithm, batch(obs=2.0))  # q = 0.2 < goal: adam's first step is lr against the sign
    np.testing.assert_allclose(algorithm.weights(), [0.1 + LR, 0.3, LR, 0.2], atol=1e-6)


def test_the_gradient_of_the_td_error_is_the_textbooks():
    algorithm = linear()
    learned(algorithm, batch(obs=2.0))
    error = 0.2 - (0.5 + 0.9 * 0.2)
    np.testing.assert_allclose(
        algorithm._flat.gradient.numpy(), [2 * error, 0, error, 0], atol=1e-6
    )


def test_a_large_error_pulls_no_harder_than_one():
    algorithm = linear()
    scalars = learned(algorithm, batch(reward=100.0, discount=0.0))
    assert scalars["loss"] == pytest.approx(100 - 0.1 - 0.5)
    np.testing.assert_allclose(algorithm._flat.gradient.numpy(), [-1, 0, -1, 0], atol=1e-6)


def test_the_gradient_is_clipped_where_a_limit_was_given():
    algorithm = linear(clip_grad_norm=0.1)
    learned(algorithm, batch(reward=100.0))
    assert float(algorithm._flat.gradient.norm()) == pytest.approx(0.1, rel=1e-4)


def test_the_target_network_follows_every_so_many_updates():
    algorithm = linear(target_replace_iter=3)
    followed = []
    for _ in range(6):
        learned(algorithm, batch())
        followed.append(bool((algorithm._target_flat.vector == algorithm._flat.vector).all()))
    assert followed == [False, False, True, False, False, True]


def test_what_was_sent_can_be_loaded_and_sets_the_target_too():
    one, two = DQN(task(hidden=(8,)), seed=1), DQN(task(hidden=(8,)), seed=2)
    assert (one.weights() != two.weights()).any()
    two.load(one.weights().copy())
    np.testing.assert_array_equal(one.weights(), two.weights())
    np.testing.assert_array_equal(two._target_flat.vector.numpy(), one.weights())


def test_learning_approaches_the_value_of_a_one_state_task():
    algorithm = DQN(task(hidden=(16,), target_replace_iter=5, lr=0.02), seed=0)
    for _ in range(300):
        scalars = learned(algorithm, batch(reward=1.0, discount=0.5))
    assert scalars["q_mean"] == pytest.approx(2.0, abs=0.1)  # 1 / (1 - 0.5)


# ---------------------------------------------------------------------------------------- exploring


def epsilons(policy, n, n_envs=1):
    """Epsilon before each of `n` steps."""
    found = []
    for _ in range(n):
        found.append(policy.epsilon)
        act(policy, np.zeros((n_envs, 1), np.float32))
    return found


def test_epsilon_falls_in_a_line_from_one_to_its_final_value():
    policy = DQN.policy(task(epsilon=0.2, max_decay_step=4), 0, 0)
    assert epsilons(policy, 7) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2])


def test_steps_of_all_environments_and_actors_count_towards_the_decay():
    of_two = DQN.policy(task(n_actors=2, epsilon=0.2, max_decay_step=8), 0, 0)
    assert epsilons(of_two, 5) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    of_two_envs = DQN.policy(task(epsilon=0.2, max_decay_step=8), 0, 0)
    assert epsilons(of_two_envs, 5, n_envs=2) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_no_decay_starts_at_the_final_value():
    assert DQN.policy(task(epsilon=0.3, max_decay_step=0), 0, 0).epsilon == pytest.approx(0.3)


def test_actors_can_be_spread_over_different_amounts_of_exploration():
    job = task(n_actors=3, epsilon=0.4, epsilon_spread=7, max_decay_step=0)
    found = [DQN.policy(job, actor, 0).epsilon for actor in range(3)]
    assert found == pytest.approx([0.4, 0.4**4.5, 0.4**8])


def test_the_warm_up_can_be_fully_random():
    policy = DQN.policy(
        task(epsilon=0.1, max_decay_step=4, warmup_size=6, warmup_full_random=True), 0, 0
    )
    assert epsilons(policy, 8)[:6] == [1.0] * 6
    assert policy.epsilon == pytest.approx(0.1)


def test_an_actor_that_does_not_explore_is_greedy_and_does_not_count():
    policy = DQN.policy(task(max_decay_step=10), 0, 0)
    policy.load(np.array([1.0, -1.0, 0.0, 0.0], np.float32), 1)
    obs = np.array([[1.0], [-1.0]], np.float32)
    for _ in range(5):
        assert act(policy, obs, explore=False)["action"].tolist() == [0, 1]
    assert policy.epsilon == 1.0


def test_random_actions_come_as_often_as_epsilon_says():
    policy = DQN.policy(task(epsilon=0.5, max_decay_step=0), 0, 0)
    policy.load(np.array([0.0, 0.0, 1.0, 0.0], np.float32), 1)
    actions = act(policy, np.zeros((20_000, 1), np.float32))["action"]
    assert actions.mean() == pytest.approx(0.25, abs=0.02)  # half of them, half of those action 1


def test_the_sampling_is_what_the_hyper_parameters_say():
    sampling = DQN.sampling(
        task(batch_size=8, buffer_size=100, warmup_size=20, gamma=0.5, n_step=3, updates_per_step=2)
    )
    assert (sampling.batch, sampling.capacity, sampling.warmup) == (8, 100, 20)
    assert (sampling.gamma, sampling.n_step, sampling.serial_ratio) == (0.5, 3, 16)


def test_actions_that_are_vectors_are_refused_with_advice():
    env = spec_of(Field("obs", "float32", (3,)), Field("action", "float32", (2,)), None)
    said = r"discrete action space.*vectors of 2 numbers.*type='PPO'"
    with pytest.raises(TianJiError, match=said):
        DQN.n_weights(Task(env, ModelConfig(), DQNHyp()))


def test_projected_is_bellemare_s_definition():
    """Equation 7 of "A distributional perspective": atom i gets [1 - |v - z_i| / step] of each."""
    random = np.random.default_rng(0)
    atoms = np.linspace(-2.0, 2.0, 9)
    values = np.concatenate([random.uniform(-3, 3, (5, 6)), [[-2, 2, 0, 0.5, -9, 9]]])
    values[:2] /= 1.5
    probability = random.dirichlet(np.ones(6), 6)
    share = 1 - np.abs(values.clip(-2, 2)[:, None] - atoms[None, :, None]) / 0.5
    expected = (share.clip(0, 1) * probability[:, None]).sum(2)
    # values [B, n] come of n atoms: pad both with values that nobody expects
    pad = ((0, 0), (0, 3))
    given = (np.pad(probability, pad), np.pad(values, pad), atoms)
    found = projected(*(torch.from_numpy(each) for each in given)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1)
    means = found @ atoms, (probability * values).sum(1)
    np.testing.assert_allclose(*(mean[:2] for mean in means), atol=1e-12)  # nothing was cut off


def test_quantile_loss_is_dabney_s_definition():
    """Equation 10 of "Distributional RL with quantile regression", with kappa 1."""
    random = np.random.default_rng(0)
    quantiles, goals = random.normal(0, 2, (3, 4)), random.normal(0, 2, (3, 5))
    expected = []
    for mine, theirs in zip(quantiles, goals, strict=True):
        total = 0.0
        for i, quantile in enumerate(mine):
            for goal in theirs:
                u, tau = goal - quantile, (2 * i + 1) / (2 * len(mine))
                huber = u * u / 2 if abs(u) <= 1 else abs(u) - 0.5
                total += abs(tau - (u < 0)) * huber / len(theirs)
        expected.append(total)
    found = quantile_loss(torch.from_numpy(quantiles), torch.from_numpy(goals))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
