"""PPO: advantages, the update, and its two kinds of policy."""

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
import torch
from fields import act, learned, spec_of
from hypothesis import given
from hypothesis import strategies as st
from made_rollouts import BATCHES, random_batch

from tianji.algorithms.base import advantages
from tianji.algorithms.drift import Drift, KLRate
from tianji.algorithms.ppo import PPO, PPOHyp
from tianji.algorithms.surrogate import Gains, objective
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.core.store import trajectory_schema
from tianji.models.flat import Average, FlatParameters

OBS = Field("obs", "float32", (3,))
DISCRETE = spec_of(OBS, Field("action", "int64"), 4, n_envs=2)
CONTINUOUS = spec_of(
    OBS,
    Field("action", "float32", (2,)),
    None,
    n_envs=2,
    action_low=(-0.5, -1.0),
    action_high=(0.5, 1.0),
)
ENVS = pytest.mark.parametrize("env", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])


def task(env=DISCRETE, n_actors=1, **hyp):
    options = {"step_len": 5, "minibatch": 64, "update_step": 1} | hyp
    return Task(env, ModelConfig(hidden=(8,), act="tanh"), PPOHyp(**options), n_actors)


# --------------------------------------------------------------------------------------- advantages


def slow_advantages(batch, value, final_value, gamma, gae_lambda):
    """The sum of discounted TD errors up to the first boundary, one step at a time."""
    n, length, n_envs = batch["reward"].shape
    found = np.zeros((n, length, n_envs))
    for i, t, e in np.ndindex(n, length, n_envs):
        weight = 1.0
        for k in range(t, length):
            if not batch["valid"][i, k, e]:
                break
            terminated, truncated = batch["terminated"][i, k, e], batch["truncated"][i, k, e]
            after = value[i, k + 1, e]
            if truncated and final_value is not None:
                after = final_value[i, k, e]
            error = batch["reward"][i, k, e] + gamma * after * (not terminated) - value[i, k, e]
            found[i, t, e] += weight * error
            weight *= gamma * gae_lambda
            if terminated or truncated:
                break
    return found


FACTORS = st.tuples(st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.95, 1.0]))


def close(found, expected, valid):
    np.testing.assert_allclose(found[valid], expected[valid], atol=1e-4)


@given(BATCHES, FACTORS)
def test_advantages_are_sums_of_td_errors_up_to_the_first_boundary(made, factors):
    batch, value, final, _ = made
    advantage, target = advantages(batch, value, final, *factors)
    close(advantage, slow_advantages(batch, value, final, *factors), batch["valid"])
    close(target, advantage + value[:, :-1], batch["valid"])


def test_a_sample_without_weight_earns_nothing_after_normalising():
    gains = Gains(torch.tensor([5.0, 6.0, 4.0, 5.0]), torch.tensor([1.0, 2.0, 1.0, 0.0]))
    normalised = gains.normalised(gains.moments())
    plain = Gains(gains.values).normalised(gains.moments())
    assert normalised.tolist() == (plain * gains.weights).tolist()
    assert normalised[3] == 0.0


RATIOS = st.lists(st.floats(0.01, 50), min_size=1, max_size=50)


@given(RATIOS)
def test_the_drift_is_the_effective_sample_size_and_the_divergence(ratios):
    drift, w = Drift(torch.tensor(ratios).log()), np.array(ratios)
    assert drift.ess == pytest.approx(w.sum() ** 2 / (w**2).sum() / len(w), rel=1e-3)
    assert drift.kl == pytest.approx((w - 1 - np.log(w)).mean(), rel=1e-3, abs=1e-4)
    assert 1 / len(w) <= drift.ess + 1e-6 <= 1 + 1e-5


def test_samples_of_the_present_policy_have_not_drifted():
    same = Drift.scalars_of(Drift(torch.zeros(5)))
    assert same == Drift.scalars_of(None) == {"staleness/ess": 1.0, "staleness/kl": 0.0}


def test_truncation_bootstraps_and_termination_does_not():
    made = {name: np.zeros((1, 2, 1), bool) for name in ("terminated", "truncated")}
    made |= {"reward": np.ones((1, 2, 1), np.float32), "valid": np.ones((1, 2, 1), bool)}
    made["terminated"][0, 0], made["truncated"][0, 1] = True, True
    value = np.array([[[10.0], [20.0], [30.0]]], np.float32)
    advantage, _ = advantages(made, value, None, 0.5, 1.0)
    assert advantage.ravel().tolist() == [1 - 10, 1 + 15 - 20]


# ------------------------------------------------------------------------------------------- update


def rollouts(job, seed=0, n=2):
    """A batch that the job's own policy has drawn, with rewards and ends at random."""
    random, policy = np.random.default_rng(seed), PPO.policy(job, 0, seed)
    learner = PPO(job, seed)
    policy.load(learner.weights(), 0)
    length, n_envs = job.hyp.step_len, job.env.n_envs
    batch, _, _, _ = random_batch(seed, n, length, n_envs)
    batch["obs"] = random.standard_normal((n, length + 1, n_envs, 3)).astype(np.float32)
    steps = [[act(policy, batch["obs"][i, t]) for t in range(length)] for i in range(n)]
    for name in steps[0][0]:
        batch[name] = np.stack([np.stack([step[name] for step in row]) for row in steps])
    return learner, batch


def textbook_loss(learner, batch):
    """The loss of the whole batch, computed with plain torch on copies of the weights."""
    hyp, discrete = learner.hyp, "raw" not in batch
    actor = [p.detach().clone().requires_grad_() for p in learner.networks.actor.parameters()]
    spread = learner.networks.log_std.detach().clone().requires_grad_()
    critic = [p.detach().clone().requires_grad_() for p in learner.networks.critic.parameters()]

    def run(w, x):
        linear = torch.nn.functional.linear
        return linear(torch.tanh(linear(x, w[0], w[1])), w[2], w[3])

    valid = torch.from_numpy(batch["valid"])
    obs = torch.from_numpy(batch["obs"])
    value = run(critic, obs)[..., 0]
    gain, goal = advantages(batch, value.detach().numpy(), None, hyp.gamma, hyp.gae_lambda)
    gain, goal = torch.from_numpy(gain)[valid], torch.from_numpy(goal)[valid]
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    out = run(actor, obs[:, :-1][valid])
    if discrete:
        distribution = torch.distributions.Categorical(logits=out)
        logp = distribution.log_prob(torch.from_numpy(batch["action"])[valid])
        entropy = distribution.entropy().mean()
    else:
        distribution = torch.distributions.Normal(out, spread.exp().expand_as(out))
        logp = distribution.log_prob(torch.from_numpy(batch["raw"])[valid]).sum(1)
        entropy = distribution.entropy().sum(1).mean()
    ratio = (logp - torch.from_numpy(batch["logp"])[valid]).exp()
    low, high = 1 - hyp.clip_param, 1 + hyp.clip_param
    policy_loss = -torch.minimum(gain * ratio, gain * ratio.clamp(low, high)).mean()
    value_loss = (value[:, :-1][valid] - goal).square().mean()
    loss = policy_loss + hyp.vf_coef * value_loss - hyp.ent_coef * entropy
    return loss, [*actor, spread, *critic], (policy_loss, value_loss, -entropy)


@ENVS
def test_one_update_follows_the_gradient_of_the_textbook(env):
    learner, batch = rollouts(task(env, ent_coef=0.01, max_grad_norm=None))
    loss, parameters, parts = textbook_loss(learner, batch)
    loss.backward()
    scalars = learned(learner, batch)
    gradient = torch.cat(
        [
            torch.zeros_like(p).reshape(-1) if p.grad is None else p.grad.reshape(-1)
            for p in parameters
        ]
    )
    torch.testing.assert_close(learner._flat.gradient, gradient, atol=1e-5, rtol=1e-3)
    names = ("policy_gradient_loss", "value_loss", "entropy_loss")
    assert [scalars[name] for name in names] == pytest.approx(
        [float(part.detach()) for part in parts], abs=1e-4
    )


@ENVS
def test_the_first_pass_over_fresh_samples_has_nothing_to_clip(env):
    learner, batch = rollouts(task(env))
    scalars = learned(learner, batch)
    assert scalars["clip_fraction"] == 0.0
    assert scalars["approx_kl"] == pytest.approx(0.0, abs=1e-6)


@ENVS
def test_log_probabilities_in_numpy_are_those_in_torch(env):
    learner, batch = rollouts(task(env))
    weights = learner.weights().copy()
    weights += np.random.default_rng(1).standard_normal(weights.shape, np.float32) / 3
    learner.load(weights)
    policy = PPO.policy(task(env), 0, 0)
    policy.load(weights, 1)
    obs = batch["obs"].reshape(-1, 3)
    decision = act(policy, obs)
    action = torch.from_numpy(decision["action" if env is DISCRETE else "raw"])
    with torch.no_grad():
        out, _ = learner.networks(torch.from_numpy(obs))
        expected, _ = learner.networks.log_probability(out, action)
    np.testing.assert_allclose(decision["logp"], expected.numpy(), atol=1e-5)


def test_rows_that_are_not_valid_have_no_influence():
    learner, batch = rollouts(task())
    again, _ = rollouts(task())
    assert not batch["valid"].all()
    junk = {name: array.copy() for name, array in batch.items()}
    for name in ("reward", "logp"):
        junk[name][~batch["valid"]] = 1e6
    junk["action"][~batch["valid"]] = 3
    assert learned(learner, batch) == learned(again, junk)
    np.testing.assert_array_equal(learner.weights(), again.weights())


def test_every_epoch_visits_every_sample_once_in_slices_of_nearly_one_size():
    learner, batch = rollouts(task(minibatch=4))
    samples, _ = learner._prepare(*learner.stage(batch))
    parts = list(learner._minibatches(samples, samples.gains.values, batch["valid"].size))
    sizes = [len(part[0]) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == batch["valid"].sum()
    seen = torch.cat([part[2] for part in parts]).sort().values
    torch.testing.assert_close(seen, samples.logp.sort().values)


@ENVS
@pytest.mark.parametrize("correction", ["none", "ewma"])
def test_asynchronous_updates_of_old_samples_stay_finite(env, correction):
    job = task(env, mode="async", correction=correction, update_step=3, minibatch=5)
    learner, batch = rollouts(job)
    for _ in range(3):
        scalars = learned(learner, batch)
    assert np.isfinite(learner.weights()).all()
    assert np.isfinite(list(scalars.values())).all()


def old_samples(correction, drift, **hyp):
    """A learner, and a batch that a policy drew which was `drift` (in logs) likelier to do so."""
    job = task(mode="async", correction=correction, max_grad_norm=None, **hyp)
    learner, batch = rollouts(job)
    batch["logp"] += np.float32(drift)
    return learner, batch


@pytest.mark.parametrize("drift", [-2.0, -0.3, 0.0, 0.7])
def test_the_correction_clips_from_the_present_policy_and_weighs_by_the_drift(drift):
    """All samples have the same weight: so the gradient of the policy is that of fresh ones."""
    corrected, old = old_samples("ewma", drift, weight_cap=2.0, vf_coef=0.0)
    fresh, new = old_samples("ewma", 0.0, vf_coef=0.0)
    scalars, _ = learned(corrected, old), learned(fresh, new)
    weight = min(2.0, np.exp(-drift))
    expected = weight * fresh._flat.gradient
    torch.testing.assert_close(corrected._flat.gradient, expected, atol=1e-5, rtol=1e-3)
    assert scalars["clip_fraction"] == 0.0
    assert scalars["staleness/ess"] == pytest.approx(1.0, abs=1e-3)
    assert scalars["staleness/kl"] == pytest.approx(np.exp(-drift) - 1 + drift, abs=1e-3)


def averaged(steps, decay):
    """The mean of all of them, each counting `decay` times as much as the next."""
    shares = float(decay) ** np.arange(len(steps))[::-1]
    return (shares @ np.stack(steps) / shares.sum()).astype(np.float32)


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=20), st.sampled_from([0.0, 0.5, 0.89, 1.0]))
def test_in_a_moving_average_each_step_counts_less_than_the_next(values, decay):
    flat = FlatParameters([torch.nn.Parameter(torch.tensor([values[0], 1.0]))])
    average = Average(flat, decay)
    for value in values[1:]:
        flat.vector[0] = value
        average.add()
    expected = averaged([[value, 1.0] for value in values], decay)
    np.testing.assert_allclose(average.vector, expected, atol=1e-4)
    with average.standing_in():
        np.testing.assert_allclose(flat.vector, expected, atol=1e-4)
    assert flat.vector.tolist() == [pytest.approx(values[-1]), 1.0]


@ENVS
@pytest.mark.parametrize("decay", [0.0, 0.5, 0.89, 1.0])
def test_the_clip_starts_from_the_average_of_the_last_policies(env, decay):
    """So an update is that of plain PPO, on samples that this average would have drawn."""
    hyp = {"mode": "async", "lr": 0.03, "clip_param": 0.02}
    learner, batch = rollouts(task(env, average_decay=decay, **hyp))
    steps = [learner.parameters().copy()]
    for _ in range(5):
        learned(learner, batch)
        steps.append(learner.parameters().copy())
    other = PPO(learner.task, 0)
    other._flat.vector.copy_(torch.from_numpy(averaged(steps, decay)))
    with torch.no_grad():
        out, _ = other.networks(torch.from_numpy(batch["obs"][:, :-1]).flatten(0, 2))
        drawn = torch.from_numpy(batch["action" if env is DISCRETE else "raw"]).flatten(0, 2)
        logp, _ = other.networks.log_probability(out, drawn)
    batch["logp"] = logp.numpy().reshape(batch["logp"].shape)
    plain = PPO(task(env, correction="none", **hyp), 0)
    plain.restore(learner.state())
    scalars = learned(learner, batch)
    assert scalars == pytest.approx(learned(plain, batch), abs=1e-4)
    assert (scalars["clip_fraction"] > 0) is (decay > 0)
    np.testing.assert_allclose(learner.parameters(), plain.parameters(), atol=1e-4)


def test_without_it_the_clip_starts_from_the_policy_that_acted():
    learner, batch = old_samples("none", 1.0)
    assert learned(learner, batch)["clip_fraction"] == 1.0


def test_synchronous_samples_are_never_corrected_and_have_not_drifted():
    learner, batch = rollouts(task(mode="sync", correction="ewma"))
    again, _ = rollouts(task(mode="sync", correction="none"))
    scalars = learned(learner, batch)
    assert scalars == learned(again, batch)
    assert (scalars["staleness/ess"], scalars["staleness/kl"]) == (1.0, 0.0)
    np.testing.assert_array_equal(learner.weights(), again.weights())


def test_final_observations_are_bootstrapped_from():
    learner, batch = rollouts(task(replace(DISCRETE, same_step=True)))
    batch["valid"][0, 1, 0] = batch["truncated"][0, 1, 0] = True
    batch["terminated"][0, 1, 0] = False
    batch["final_obs"] = np.zeros((2, 5, 2, 3), np.float32)
    near = learner._prepare(*learner.stage(batch))[0].target
    batch["final_obs"][0, 1, 0] = 50.0
    far = learner._prepare(*learner.stage(batch))[0].target
    assert (near != far).any()


@pytest.mark.parametrize("correction", ["none", "ewma"])
@pytest.mark.parametrize("n_valid", [0, 1])
def test_a_batch_with_hardly_a_valid_sample_does_no_harm(n_valid, correction):
    learner, batch = rollouts(task(mode="async", correction=correction))
    batch["valid"][...] = False
    batch["valid"].flat[:n_valid] = True
    learned(learner, batch)
    assert np.isfinite(learner.weights()).all()


# ----------------------------------------------------------------------------------------- policies


def test_actions_are_drawn_as_often_as_their_probabilities_say():
    job = task()
    policy, learner = PPO.policy(job, 0, 0), PPO(job, 0)
    weights = np.zeros_like(learner.weights())
    weights[-4:] = np.log([0.1, 0.2, 0.3, 0.4])  # the last layer's biases
    policy.load(weights, 0)
    decision = act(policy, np.zeros((50_000, 3), np.float32))
    share = np.bincount(decision["action"]) / 50_000
    np.testing.assert_allclose(share, [0.1, 0.2, 0.3, 0.4], atol=0.01)
    np.testing.assert_allclose(np.exp(decision["logp"]), share[decision["action"]], atol=0.01)


def test_a_policy_that_does_not_explore_takes_the_likeliest_action():
    policy = PPO.policy(task(), 0, 0)
    weights = np.zeros(PPO.n_weights(task()), np.float32)
    weights[-2] = 1.0
    policy.load(weights, 0)
    assert act(policy, np.zeros((5, 3), np.float32), explore=False)["action"].tolist() == [2] * 5


def test_actions_stay_within_bounds_and_the_draw_is_kept():
    policy = PPO.policy(task(CONTINUOUS), 0, 0)
    policy.load(np.zeros(PPO.n_weights(task(CONTINUOUS)), np.float32), 0)
    decision = act(policy, np.zeros((5_000, 3), np.float32))
    assert (np.abs(decision["action"]) <= [0.5, 1.0]).all()
    np.testing.assert_array_equal(
        decision["action"], np.clip(decision["raw"], [-0.5, -1.0], [0.5, 1.0])
    )
    assert decision["raw"].std() == pytest.approx(1.0, abs=0.05)


# ----------------------------------------------------------------------------------------- sampling


def test_a_batch_is_one_rollout_of_each_actor_and_each_sends_one_per_version():
    sampling = PPO.sampling(task(n_actors=3))
    assert (sampling.batch, sampling.pool, sampling.steps) == (3, 3, 5 * 2)
    assert (sampling.per_version, sampling.max_lag) == (1, None)
    assert PPO.sampling(task(n_actors=3, batch_size=6)).per_version == 2


def test_a_synchronous_batch_must_come_in_equal_shares():
    with pytest.raises(TianJiError, match="4 rollouts per update cannot come in equal shares"):
        PPO.sampling(task(n_actors=3, batch_size=4))


def test_a_larger_pool_is_the_papers_lag():
    sampling = PPO.sampling(task(n_actors=2, buffer_size=6))
    assert (sampling.batch, sampling.pool, sampling.per_version) == (2, 6, None)


def test_the_asynchronous_mode_bounds_the_lag_instead():
    sampling = PPO.sampling(task(n_actors=3, batch_size=2, mode="async", max_lag=4))
    assert (sampling.per_version, sampling.max_lag) == (None, 4)


@pytest.mark.parametrize(
    ("hyp", "name"),
    [
        ({}, None),
        ({"buffer_size": 6}, None),  # Lag-k, as in Figure 12a
        ({"mode": "async"}, "PPO-EWMA"),
        ({"mode": "async", "buffer_size": 6}, "PPO-EWMA"),
        ({"mode": "async", "average_decay": 0.0}, "decoupled PPO"),
        ({"mode": "async", "correction": "none"}, None),
    ],
)
def test_it_says_by_what_old_samples_are_corrected_and_does_it(hyp, name):
    job = task(n_actors=2, **hyp)
    assert PPO.correction(job) == name
    assert (PPO(job, 0)._average is not None) is (name is not None)


def test_a_bound_of_the_lag_that_a_pool_would_ignore_is_refused():
    with pytest.raises(TianJiError, match=r"hyp.max_lag: with a pool of 6 rollouts"):
        PPO.sampling(task(n_actors=2, mode="async", buffer_size=6, max_lag=3))


def test_only_the_synchronous_mode_takes_turns():
    assert PPO.alternates(PPOHyp(), 2)
    assert not PPO.alternates(dataclasses.replace(PPOHyp(), mode="async"), 2)
    assert not PPO.alternates(dataclasses.replace(PPOHyp(), buffer_size=4), 2)  # Lag-2


def test_a_warm_up_longer_than_the_pool_is_refused():
    job = dataclasses.replace(task(), hyp=dataclasses.replace(PPOHyp(), warmup_size=3))
    with pytest.raises(TianJiError, match="warmup_size"):
        PPO.sampling(job)


# ----------------------------------------------------------------------------------------- pictures


PICTURES = spec_of(Field("obs", "uint8", (2, 8, 8)), Field("action", "int64"), 4, n_envs=2)
CNN = ModelConfig(type="CNN", convs=((4, 4, 2),), hidden=(8,), precision="float32")


@pytest.mark.parametrize(("buffer_size", "anew"), [(None, True), (4, False)])
def test_only_samples_of_the_present_policy_have_its_probabilities(buffer_size, anew):
    hyp = PPOHyp(step_len=5, buffer_size=buffer_size)
    job = Task(PICTURES, CNN, hyp)
    learner = PPO(job, 0)
    batch = random_batch(0, 1, 5, 2)[0]
    batch["obs"] = np.zeros((1, 6, 2, 2, 8, 8), np.uint8)
    batch["action"] = np.zeros((1, 5, 2), np.int64)
    batch["logp"] = np.full((1, 5, 2), -9.0, np.float32)  # of a policy that was another
    samples, _ = learner._prepare(*learner.stage(batch))
    assert bool((samples.logp > -2).all()) == anew
    assert bool((samples.logp == -9).all()) != anew


def test_several_choices_are_each_drawn_from_their_own_logits():
    several = replace(DISCRETE, choices=(2, 3), action=Field("action", "int64", (2,)))
    learner = PPO(task(several), 0)
    out = torch.tensor([[0.0, 1.0, 2.0, 0.0, 1.0]])
    logp, entropy = learner.networks.log_probability(out, torch.tensor([[1, 2]]))
    one, other = torch.log_softmax(out[:, :2], 1), torch.log_softmax(out[:, 2:], 1)
    assert logp.item() == pytest.approx((one[0, 1] + other[0, 2]).item())
    each = [-(part.exp() * part).sum().item() for part in (one, other)]
    assert entropy.item() == pytest.approx(sum(each))


def test_a_policy_of_several_choices_says_the_probabilities_that_the_learner_finds():
    several = replace(DISCRETE, choices=(2, 3), action=Field("action", "int64", (2,)))
    learner, policy = PPO(task(several), 0), PPO.policy(task(several), 0, 0)
    policy.load(learner.weights(), 0)
    obs = np.random.default_rng(0).random((6, *DISCRETE.observations[0].shape), np.float32)
    made = act(policy, obs)
    assert made["action"].shape == (6, 2) and made["action"].max(0).tolist() <= [1, 2]
    out, _ = learner.networks(torch.from_numpy(obs))
    found, _ = learner.networks.log_probability(out, torch.from_numpy(made["action"]))
    np.testing.assert_allclose(made["logp"], found.detach().numpy(), rtol=1e-5)


# ----------------------------------------------------------------------------------------- pictures

FRAMES = spec_of(Field("obs", "uint8", (12, 12)), Field("action", "int64"), 4, n_envs=2, stack=3)


def picture_batch(algorithm, seed=0):
    """A rollout with ends in it."""
    random = np.random.default_rng(seed)
    schema = trajectory_schema(FRAMES, algorithm.fields(algorithm.task), 9)
    batch = algorithm.sampling(algorithm.task).batch_schema(schema).empty()
    for array in batch.values():
        array[...] = random.integers(0, 255, array.shape) if array.dtype == np.uint8 else 0
    shape = batch["valid"].shape
    batch["valid"][...] = random.random(shape) > 0.1
    batch["first"][:, 1:] = ~batch["valid"]
    batch["reward"][...] = random.standard_normal(shape)
    batch["action"][...] = random.integers(0, 4, shape)
    return batch


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_stacks_that_are_kept_for_all_epochs_are_those_put_together_for_each(
    monkeypatch, precision
):
    hyp = PPOHyp(step_len=9, minibatch=5, update_step=2, normalise_obs=True, ent_coef=0.01)
    model = ModelConfig(type="CNN", convs=((4, 4, 2),), hidden=(8,), precision=precision)
    found = []
    for most in (2**20, 0):
        monkeypatch.setattr("tianji.models.inputs.KEPT_BYTES", most)
        algorithm = PPO(Task(FRAMES, model, hyp, 1), 0)
        for seed in range(3):
            arrays, inputs = algorithm.stage(picture_batch(algorithm, seed))
            algorithm.learn((arrays, inputs))
            assert (inputs._kept is None) == (most == 0)
        found.append(algorithm.parameters().copy())
    assert (found[0] == found[1]).all()
    assert not (found[0] == PPO(Task(FRAMES, model, hyp, 1), 0).parameters()).all()


def test_the_learning_rate_follows_the_divergence_that_is_wanted():
    hyp = PPOHyp(lr=1e-3, kl_target=0.01)
    rate = KLRate(hyp)
    assert rate.next(0.0, 0) == 1e-3  # nothing was learned yet
    assert rate.next(0.021, 1) == pytest.approx(1e-3 / 1.5)  # more than twice as far
    assert rate.next(0.01, 2) == pytest.approx(1e-3 / 1.5)
    assert rate.next(0.004, 3) == pytest.approx(1e-3)  # less than half as far
    rate.measured(float("nan"))  # an update that broke went too far
    assert rate.next(rate.kl, 3) == pytest.approx(1e-3 / 1.5)
    rate.next(0.0, 3)
    other = KLRate(hyp)
    other.restore(rate.state())
    assert other.next(0.004, 4) == rate.next(0.004, 4) == pytest.approx(1.5e-3)
    for _ in range(40):
        least = rate.next(1.0, 5)
        most = other.next(0.0, 5)
    assert (least, most) == (1e-6, 1e-2)
    assert rate.next(0.0, 6) == pytest.approx(1.5e-6)  # it comes back from a bound at once


def test_a_value_that_moves_beyond_its_clip_gains_nothing():
    def loss_and_slope(moved, target, **hyp):
        logp = torch.zeros(1)
        value = torch.tensor([moved], requires_grad=True)
        before, wanted = torch.zeros(1), torch.tensor([target])
        loss, _ = objective(
            PPOHyp(vf_coef=1.0, **hyp), logp, torch.zeros(()), value, logp, before, logp, wanted
        )
        loss.backward()
        return float(loss.detach()), float(value.grad[0])

    assert loss_and_slope(0.5, 1.0) == pytest.approx((0.25, -1.0))
    assert loss_and_slope(0.5, 1.0, value_clip=0.2) == pytest.approx((0.64, 0.0))
    assert loss_and_slope(0.1, 1.0, value_clip=0.2) == pytest.approx((0.81, -1.8))
