"""TD3 and SAC: bounds, noise, targets, the temperature, and whom they refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fields import act, learned, spec_of

from tianji.algorithms.dqn import DQN, DQNHyp
from tianji.algorithms.sac import SAC, SACHyp
from tianji.algorithms.td3 import TD3, TD3Hyp
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field

N = 16  # samples of a batch
LOW, HIGH = (-1.0, 2.0), (3.0, 8.0)
OBS = Field("obs", "float32", (3,))
BOTH = pytest.mark.parametrize("algorithm", [TD3, SAC])


def env_of(low=LOW, high=HIGH):
    action = Field("action", "float32", (2,))
    return spec_of(OBS, action, None, n_envs=4, action_low=low, action_high=high)


def task_of(algorithm, env=None, n_learners=1, **hyp):
    facts = {"batch_size": N, "warmup_size": 0, **hyp}
    model = ModelConfig(hidden=(8,))
    return Task(env or env_of(), model, algorithm.Hyp(**facts), n_learners=n_learners)


def batch_of(n=N, seed=0, discount=0.9):
    random = np.random.default_rng(seed)
    return {
        "obs": random.standard_normal((n, 3)).astype("f4"),
        "next_obs": random.standard_normal((n, 3)).astype("f4"),
        "action": random.uniform(LOW, HIGH, (n, 2)).astype("f4"),
        "reward": random.standard_normal(n).astype("f4"),
        "discount": np.full(n, discount, "f4"),
    }


def policy_of(task, algorithm, scale=1.0, **more):
    policy = algorithm.policy(task, 0, 0, **more)
    policy.load(algorithm(task, 0).weights() * np.float32(scale), 0)
    return policy


@BOTH
@pytest.mark.parametrize("explore", [True, False])
def test_actions_lie_within_bounds_that_are_not_symmetric(algorithm, explore):
    policy = policy_of(task_of(algorithm), algorithm, scale=30.0)
    obs = np.random.default_rng(0).standard_normal((4, 3)).astype("f4")
    actions = np.concatenate([act(policy, obs, explore)["action"] for _ in range(100)])
    assert (actions >= LOW).all() and (actions <= HIGH).all()
    assert (actions.min(0) < np.add(LOW, 0.3)).all() or (actions.max(0) > np.add(HIGH, -0.3)).all()


@BOTH
def test_a_policy_s_mean_action_is_what_the_learner_s_actor_says(algorithm):
    task = task_of(algorithm)
    learner, obs = algorithm(task, 3), batch_of(4)["obs"]
    policy = algorithm.policy(task, 0, 0)
    policy.load(learner.weights(), 0)
    with torch.no_grad():
        out = learner.actors[0](torch.from_numpy(obs))[:, :2]
    middle, half = np.add(LOW, HIGH) / 2, np.subtract(HIGH, LOW) / 2
    wanted = middle + half * np.tanh(out.numpy())
    np.testing.assert_allclose(act(policy, obs, explore=False)["action"], wanted, rtol=1e-4)


@BOTH
def test_actors_begin_at_random_and_share_these_steps(algorithm):
    task = replace(task_of(algorithm, warmup_size=4_000), n_actors=2)
    policy = policy_of(task, algorithm, scale=0.0)  # whose own actions are in the middle
    obs = np.zeros((4, 3), "f4")
    drawn = np.concatenate([act(policy, obs)["action"] for _ in range(500)])
    np.testing.assert_allclose(drawn.mean(0), [1.0, 5.0], atol=0.2)
    np.testing.assert_allclose(drawn.std(0), np.subtract(HIGH, LOW) / 12**0.5, rtol=0.05)
    after = np.concatenate([act(policy, obs)["action"] for _ in range(500)])
    assert (after.std(0) < 0.9 * drawn.std(0)).all()
    plain = policy_of(replace(task, hyp=replace(task.hyp, warmup_full_random=False)), algorithm, 0)
    assert not (act(plain, obs)["action"] == drawn[:4]).any()


def test_td3_explores_with_noise_in_units_of_its_bounds():
    policy = policy_of(task_of(TD3, noise=0.1), TD3, scale=0.0)
    drawn = np.concatenate([act(policy, np.zeros((4, 3), "f4"))["action"] for _ in range(2_000)])
    np.testing.assert_allclose(drawn.std(0), [0.2, 0.3], rtol=0.05)


def test_noise_that_is_kept_is_as_large_and_lasts():
    task, still = task_of(TD3, noise=0.1, noise_kept=0.8), np.zeros((4, 3), "f4")
    policy = policy_of(task, TD3, scale=0.0)
    drawn = np.stack([act(policy, still)["action"] for _ in range(4_000)])
    np.testing.assert_allclose(drawn.std((0, 1)), [0.2, 0.3], rtol=0.1)
    around = drawn - drawn.mean((0, 1))
    np.testing.assert_allclose((around[1:] * around[:-1]).mean() / around.var(), 0.8, atol=0.05)
    other = policy_of(task, TD3, scale=0.0)
    other.restore(policy.state())
    assert (act(other, still)["action"] == act(policy, still)["action"]).all()


@BOTH
def test_critics_read_actions_between_minus_one_and_one(algorithm):
    batch = batch_of(4)
    batch["action"][:2] = LOW, HIGH
    staged = algorithm(task_of(algorithm), 0).stage(batch)
    np.testing.assert_allclose(staged["action"][:2], [[-1, -1], [1, 1]], atol=1e-6)


def test_the_target_is_the_smaller_of_both_critics_and_ends_with_the_task():
    learner = TD3(task_of(TD3, target_noise=0.0), 0)
    values = [float(value) for value in (3.0, 5.0)]
    for critic, value in zip(learner.target_critics, values, strict=True):
        for parameter in critic.parameters():
            parameter.zero_()
        [*critic.parameters()][-1].fill_(value)
    batch = batch_of()
    batch["reward"][...], batch["discount"][: N // 2] = 1.0, 0.0
    assert learned(learner, batch)["target_mean"] == pytest.approx(1 + 0.9 * 3 / 2)


def test_the_actor_waits_for_the_critics():
    learner, moved = TD3(task_of(TD3, delay=3), 0), []
    for i in range(6):
        before, target = learner.weights().copy(), learner._slow_critics.vector.clone()
        learned(learner, batch_of(seed=i))
        moved.append((learner.weights() != before).any())
        assert (target != learner._slow_critics.vector).any() == moved[-1]
    assert moved == [True, False, False, True, False, False]


@BOTH
def test_the_loss_of_the_actor_leaves_the_critics_alone(algorithm):
    learner = algorithm(task_of(algorithm), 0)
    staged = learner.stage(batch_of())
    loss, _, _ = learner._critic_loss(staged)
    learner._flat.backward(loss)
    alone = learner._parts[1].gradient.clone()
    assert not learner._parts[0].gradient.any()
    learner = algorithm(task_of(algorithm), 0)
    learned(learner, batch_of())
    assert (learner._parts[1].gradient == alone).all()
    assert learner._parts[0].gradient.any()


@BOTH
def test_targets_follow_slowly(algorithm):
    learner = algorithm(task_of(algorithm, tau=0.25), 0)
    before = learner._slow_critics.vector.clone()
    learned(learner, batch_of())
    wanted = before.lerp(learner._parts[1].vector, 0.25)
    torch.testing.assert_close(learner._slow_critics.vector, wanted)


def test_the_temperature_rises_while_the_entropy_is_too_low():
    for target, falls in ((-50.0, True), (50.0, False)):
        learner = SAC(task_of(SAC, target_entropy=target), 0)
        alphas = [learned(learner, batch_of(seed=i))["alpha"] for i in range(4)]
        assert alphas[0] == pytest.approx(1.0)
        assert sorted(alphas, reverse=falls) == alphas and alphas[-1] != alphas[0]


def test_a_given_temperature_stays():
    learner = SAC(task_of(SAC, alpha=0.2), 0)
    alphas = {learned(learner, batch_of(seed=i))["alpha"] for i in range(3)}
    assert list(alphas) == [pytest.approx(0.2)]
    n = SAC.n_parameters(task_of(SAC))
    assert len(learner.parameters()) == SAC.n_parameters(task_of(SAC, alpha=0.2)) == n - 1


def test_the_density_is_that_of_the_squashed_draws():
    """The mean of 1 / density over the draws in a square is its area over their share."""
    learner = SAC(task_of(SAC), 0)
    obs = torch.zeros(20_000, 3)
    with torch.no_grad():
        action, logp = learner._drawn(obs, 0)
        inside = ((action[:, 0] - 0.1).abs() < 0.15) & ((action[:, 1] + 0.1).abs() < 0.15)
    share, rarity = inside.float().mean(), (-logp[inside]).exp().mean()
    assert float(rarity) == pytest.approx(0.3**2 / float(share), rel=0.1)


@BOTH
def test_learners_that_share_an_update_make_the_one_that_one_would(algorithm):
    hyp = {"target_noise": 0.0} if algorithm is TD3 else {"alpha": 1e-9}
    together = algorithm(task_of(algorithm, **hyp), 0)
    parts = [algorithm(task_of(algorithm, n_learners=2, **hyp), 0) for _ in range(2)]
    for i in range(3):
        whole = batch_of(seed=i)
        learned(together, whole)
        halves = [{k: v[j::2] for k, v in whole.items()} for j in range(2)]
        updates = [a.updates(a.stage(b)) for a, b in zip(parts, halves, strict=True)]
        vectors = [next(update) for update in updates]
        mean = (vectors[0] + vectors[1]) / 2
        for update, vector in zip(updates, vectors, strict=True):
            assert vector.shape == (algorithm.n_parameters(together.task),)
            vector[...] = mean
            with pytest.raises(StopIteration):
                next(update)
    assert (parts[0].parameters() == parts[1].parameters()).all()
    if algorithm is TD3:
        np.testing.assert_allclose(parts[0].parameters(), together.parameters(), atol=1e-5)


@BOTH
def test_what_groups_average_holds_all_and_targets_begin_anew_with_it(algorithm):
    learner = algorithm(task_of(algorithm), 0)
    before = learner.parameters().copy()
    learner.shift(np.full_like(before, 0.5))
    np.testing.assert_allclose(learner.parameters(), before + 0.5)
    learner.load(learner.weights().copy())
    assert (learner._slow_critics.vector == learner._parts[1].vector).all()


@BOTH
def test_choices_are_refused_with_what_takes_them(algorithm):
    env = spec_of(OBS, Field("action", "int64"), 4)
    with pytest.raises(TianJiError, match=f"^{algorithm.__name__} needs.*type='PPO'.*'DQN'"):
        algorithm.n_weights(task_of(algorithm, env))


@BOTH
def test_actions_without_bounds_are_refused(algorithm):
    with pytest.raises(TianJiError, match=r"no bounds.*type='PPO'"):
        algorithm.n_weights(task_of(algorithm, env_of(low=(-np.inf, 0.0))))


@BOTH
def test_pictures_are_refused(algorithm):
    task = replace(task_of(algorithm), model=ModelConfig(type="CNN"))
    with pytest.raises(TianJiError, match=r"model.type.*use type='MLP'"):
        algorithm.n_weights(task)


def test_a_choice_that_never_matters_is_no_division_by_zero():
    env = env_of(low=(-1.0, 2.0), high=(1.0, 2.0))
    learner = TD3(task_of(TD3, env), 0)
    batch = batch_of()
    batch["action"][:, 1] = 2.0
    assert all(np.isfinite(value) for value in learned(learner, batch).values())


def test_dqn_names_them_where_actions_are_vectors():
    task = Task(env_of(), ModelConfig(), DQNHyp())
    with pytest.raises(TianJiError, match=r"'PPO'.*'SAC' or 'TD3'"):
        DQN.n_weights(task)


def test_hyper_parameters_keep_their_defaults():
    assert (TD3Hyp().tau, TD3Hyp().delay, SACHyp().alpha) == (0.005, 2, None)


@pytest.mark.parametrize(
    ("action", "choices", "said"),
    [
        (Field("action", "int64"), (3,), "are one of 3 choices: use .*, or type='DQN'"),
        (Field("action", "int64", (2,)), (3, 4), "are vectors of 2 choices: use .*'PPO', ...\\)$"),
    ],
)
def test_choices_are_called_as_an_environment_would_call_them(action, choices, said):
    env = replace(env_of(), action=action, choices=choices)
    with pytest.raises(TianJiError, match=said):
        SAC.n_weights(task_of(SAC, env))
