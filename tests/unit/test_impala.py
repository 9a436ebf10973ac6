"""IMPALA: V-trace as its paper defines it, and updates that learners can share."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from fields import act, learned, spec_of
from hypothesis import given
from hypothesis import strategies as st
from made_rollouts import BATCHES, random_batch
from sharing import parts_of, several, together

from tianji.algorithms.base import vtrace
from tianji.algorithms.impala import IMPALA, IMPALAHyp
from tianji.algorithms.ppo import PPOHyp
from tianji.config import bind
from tianji.config.keys import ModelConfig
from tianji.config.reader import parse
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field

DISCRETE = spec_of(Field("obs", "float32", (3,)), Field("action", "int64"), 4, n_envs=2)
CONTINUOUS = spec_of(
    Field("obs", "float32", (3,)),
    Field("action", "float32", (2,)),
    None,
    n_envs=2,
    action_low=(-0.5, -1.0),
    action_high=(0.5, 1.0),
)
ENVS = pytest.mark.parametrize("env", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])


def task(env=DISCRETE, n_actors=1, **hyp):
    model = ModelConfig(hidden=(8,), act="tanh")
    return Task(env, model, IMPALAHyp(**({"step_len": 5} | hyp)), n_actors)


# ------------------------------------------------------------------------------------------ targets


def slow_vtrace(batch, value, final, gamma, ratio, clips):
    """v of the paper's equation 1, a sum over the steps to come, and its policy gradient's q - V.

    One step and environment at a time; the sum ends where the episode does.
    """
    most_rho, most_c, factor = clips
    gains, targets = np.zeros(batch["reward"].shape), np.zeros(batch["reward"].shape)
    n, length, n_envs = batch["reward"].shape

    def after(i, t, e):
        if batch["terminated"][i, t, e]:
            return 0.0
        if batch["truncated"][i, t, e] and final is not None:
            return final[i, t, e]
        return value[i, t + 1, e]

    def v(i, s, e):
        total, product = value[i, s, e], 1.0
        for t in range(s, length):
            if not batch["valid"][i, t, e]:
                break
            error = batch["reward"][i, t, e] + gamma * after(i, t, e) - value[i, t, e]
            total += gamma ** (t - s) * product * min(most_rho, ratio[i, t, e]) * error
            product *= factor * min(most_c, ratio[i, t, e])
            if batch["terminated"][i, t, e] or batch["truncated"][i, t, e]:
                break
        return total

    for i, t, e in np.ndindex(n, length, n_envs):
        ends = batch["terminated"][i, t, e] or batch["truncated"][i, t, e] or t + 1 == length
        following = after(i, t, e) if ends else v(i, t + 1, e)
        rho = min(most_rho, ratio[i, t, e])
        gains[i, t, e] = rho * (batch["reward"][i, t, e] + gamma * following - value[i, t, e])
        targets[i, t, e] = v(i, t, e)
    return gains, targets


CLIPS = st.tuples(
    st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.7, 1.0]), st.sampled_from([0.9, 1.0])
)


@given(BATCHES, st.sampled_from([0.0, 0.9, 1.0]), CLIPS)
def test_v_trace_is_the_sum_of_its_paper(made, gamma, clips):
    batch, value, final, ratio = made
    valid = batch["valid"]
    ours = vtrace(batch, value, final, gamma, ratio, clips)
    theirs = slow_vtrace(batch, value, final, gamma, ratio, clips)
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found[valid], expected[valid], atol=1e-4)


def test_what_the_actor_could_not_have_done_counts_nothing():
    batch, value, final, ratio = random_batch(0, 2, 6, 2)
    gain, target = vtrace(batch, value, final, 0.9, np.zeros_like(ratio))
    assert not gain.any()
    np.testing.assert_array_equal(target, value[:, :-1])


# ------------------------------------------------------------------------------------------- update


def rollouts(job, seed=0, n=2):
    """A batch that the job's own policy has drawn, with rewards and ends at random."""
    random, policy = np.random.default_rng(seed), IMPALA.policy(job, 0, seed)
    learner = IMPALA(job, seed)
    policy.load(learner.weights(), 0)
    length, n_envs = job.hyp.step_len, job.env.n_envs
    batch, _, _, _ = random_batch(seed, n, length, n_envs)
    batch["obs"] = random.standard_normal((n, length + 1, n_envs, 3)).astype(np.float32)
    steps = [[act(policy, batch["obs"][i, t]) for t in range(length)] for i in range(n)]
    for name in steps[0][0]:
        batch[name] = np.stack([np.stack([step[name] for step in row]) for row in steps])
    batch["version"] = np.zeros(n, np.int64)
    return learner, batch


def textbook_gradient(learner, batch):
    """That of the loss of the whole batch, in plain torch on the same networks."""
    hyp, networks, discrete = learner.hyp, learner.networks, "raw" not in batch
    valid, obs = torch.from_numpy(batch["valid"]), torch.from_numpy(batch["obs"])
    out, value = networks(obs.reshape(-1, 3))
    value, out = value.view(obs.shape[:3]), out.view(*obs.shape[:3], -1)[:, :-1][valid]
    if discrete:
        drawn = torch.distributions.Categorical(logits=out)
        logp = drawn.log_prob(torch.from_numpy(batch["action"])[valid])
        entropy = drawn.entropy().sum()
    else:
        drawn = torch.distributions.Normal(out, networks.log_std.exp().expand_as(out))
        logp = drawn.log_prob(torch.from_numpy(batch["raw"])[valid]).sum(1)
        entropy = drawn.entropy().sum()
    ratio = torch.ones(batch["valid"].shape)
    ratio[valid] = (logp.detach() - torch.from_numpy(batch["logp"])[valid]).exp()
    clips = hyp.rho_clip, hyp.c_clip, hyp.vtrace_lambda
    plain = slow_vtrace(batch, value.detach().numpy(), None, hyp.gamma, ratio.numpy(), clips)
    gain, goal = (torch.from_numpy(each)[valid] for each in plain)
    errors = (value[:, :-1][valid] - goal).square()
    loss = -(gain * logp).sum() + hyp.vf_coef * 0.5 * errors.sum() - hyp.ent_coef * entropy
    parameters = networks.parameters()
    found = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = zip(found, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs])


@ENVS
def test_one_update_follows_the_gradient_of_the_textbook(env):
    learner, batch = rollouts(task(env, max_grad_norm=None, vtrace_lambda=0.9))
    batch["logp"] += np.random.default_rng(1).normal(0, 0.5, batch["logp"].shape).astype("f4")
    expected = textbook_gradient(learner, batch)
    learned(learner, batch)
    torch.testing.assert_close(learner._flat.gradient, expected.float(), atol=1e-4, rtol=1e-3)


@ENVS
def test_fresh_samples_have_a_ratio_of_one(env):
    learner, batch = rollouts(task(env))
    scalars = learned(learner, batch)
    assert scalars["ratio_mean"] == pytest.approx(1.0, abs=1e-5)


def test_rows_that_are_not_valid_have_no_influence():
    (learner, batch), (again, _) = rollouts(task()), rollouts(task())
    assert not batch["valid"].all()
    junk = {name: array.copy() for name, array in batch.items()}
    for name in ("reward", "logp"):
        junk[name][~batch["valid"]] = 1e6
    junk["action"][~batch["valid"]] = 3
    assert learned(learner, batch) == learned(again, junk)
    np.testing.assert_array_equal(learner.weights(), again.weights())


def test_final_observations_are_bootstrapped_from():
    job, gradients = task(replace(DISCRETE, same_step=True)), []
    for final in (0.0, 50.0):
        learner, batch = rollouts(job)
        batch["valid"][0, 1, 0] = batch["truncated"][0, 1, 0] = True
        batch["terminated"][0, 1, 0] = False
        batch["final_obs"] = np.zeros((2, 5, 2, 3), np.float32)
        batch["final_obs"][0, 1, 0] = final
        learned(learner, batch)
        gradients.append(learner._flat.gradient.clone())
    assert (gradients[0] != gradients[1]).any()


@pytest.mark.parametrize("n_valid", [0, 1])
def test_a_batch_with_hardly_a_valid_sample_does_no_harm(n_valid):
    learner, batch = rollouts(task())
    batch["valid"][...] = False
    batch["valid"].flat[:n_valid] = True
    assert np.isfinite(list(learned(learner, batch).values())).all()
    assert np.isfinite(learner.weights()).all()


def test_an_action_that_was_all_but_impossible_overflows_nothing():
    learner, batch = rollouts(task())
    batch["logp"][...] = -1e4
    assert np.isfinite(list(learned(learner, batch).values())).all()


@pytest.mark.parametrize("k", [2, 4])
def test_learners_together_learn_what_one_would_have_learned(k):
    alone, many = several(IMPALA, task(lr=3e-3, max_grad_norm=0.5), k)
    for seed in range(4):
        _, batch = rollouts(task(), seed, n=4)
        batch["valid"][0] = False  # parts of different worth
        learned(alone, batch)
        together(many, parts_of(batch, k))
    for one in many:
        np.testing.assert_allclose(one.parameters(), alone.parameters(), atol=1e-4)
        assert one.parameters().tobytes() == many[0].parameters().tobytes()


# ----------------------------------------------------------------------------------------- sampling


def test_rollouts_are_handed_out_once_and_may_be_as_late_as_what_is_in_flight():
    sampling = IMPALA.sampling(task(n_actors=6, batch_size=2))
    assert (sampling.batch, sampling.pool, sampling.steps) == (2, 2, 5 * 2)
    assert (sampling.per_version, sampling.max_lag) == (None, 6 // 2 + 1)
    assert IMPALA.sampling(task(n_actors=3)).batch == 3
    assert not IMPALA.alternates(IMPALAHyp(), 3)


def test_a_bound_that_would_drop_most_of_what_is_made_is_refused():
    with pytest.raises(TianJiError, match=r"hyp.max_lag: 6 actors with 2 rollouts"):
        IMPALA.sampling(task(n_actors=6, batch_size=2, max_lag=3))


@pytest.mark.parametrize(("kind", "instead"), [(PPOHyp, 'hyp.mode="sync", or '), (IMPALAHyp, "")])
def test_a_bound_of_nothing_is_refused_with_what_gives_no_lag(kind, instead):
    section = parse("hyp = dict(max_lag=0)", "a.py").names["hyp"]
    wanted = f"must be at least 1, found 0: for no lag set {instead}buffer_cfg.slack=0 and no hyp."
    with pytest.raises(TianJiError, match=wanted):
        bind(kind, section, "hyp")


@pytest.mark.parametrize(("kind", "eps"), [("adam", 1e-5), ("rmsprop", 0.01)])
def test_either_optimiser_has_its_own_epsilon(kind, eps):
    assert IMPALA(task(optimiser=kind), 0)._optimiser._eps == eps
    assert IMPALA(task(optimiser=kind, optimiser_eps=0.5), 0)._optimiser._eps == 0.5
