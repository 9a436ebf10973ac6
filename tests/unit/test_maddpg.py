"""MADDPG: who sees what, whose gradient goes where, masks, teams, and whom it refuses."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from carrying import carried
from fields import learned, spec_of

from tianji.algorithms.maddpg import MADDPG, MADDPGHyp, critics_of
from tianji.config.keys import ModelConfig
from tianji.core.algorithm import Task
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.core.store import trajectory_schema
from tianji.envs.agents import agents_spec

B, A, N_OBS, N, N_STATE = 32, 3, 4, 5, 6
NAMES = [f"agent_{i}" for i in range(A)]
OBS = Field("obs", "float32", (N_OBS,))
PAIR = (0, 0, 1)
SHARED = pytest.mark.parametrize("shared", [True, False])


def env_of(n_envs=2, bounds=None, **facts):
    facts = {"teams": (0,) * A, "reward_per_agent": True, **facts}
    spec = agents_spec(NAMES, OBS, N_STATE, n_actions=N, bounds=bounds, **facts)
    return replace(spec, n_envs=n_envs)


def numbers(**facts):
    low = np.full((A, 2), -1.0)
    low[:, 1] = 0.0
    return env_of(bounds=(low, np.ones((A, 2))), **facts)


def task_of(env=None, **hyp):
    facts = {"batch_size": B, "warmup_size": 0, **hyp}
    return Task(env or env_of(), ModelConfig(hidden=(16,)), MADDPGHyp(**facts))


def batch_of(task, seed=0):
    random, env = np.random.default_rng(seed), task.env
    batch = {
        "reward": random.standard_normal((B, A) if env.reward_per_agent else B).astype("f4"),
        "discount": np.full(B, 0.9, "f4"),
    }
    for prefix in ("", "next_"):
        batch[prefix + "obs"] = random.standard_normal((B, A, N_OBS)).astype("f4")
        batch[prefix + "state"] = random.standard_normal((B, N_STATE)).astype("f4")
        batch[prefix + "alive"] = np.ones((B, A), bool)
    if env.n_actions is None:
        batch["action"] = random.uniform((-1, 0), 1, (B, A, 2)).astype("f4")
        return batch
    for prefix in ("", "next_"):
        batch[prefix + "mask"] = random.random((B, A, N)) < 0.7
        batch[prefix + "mask"][..., 0] = True
    batch["action"] = np.where(batch["mask"], 1, 0).argmax(-1)
    return batch


def act(policy, env, explore=True, mask=None, seed=0):
    obs = np.random.default_rng(seed).standard_normal((env.n_envs, A, N_OBS)).astype("f4")
    shown = {"obs": obs, "state": np.zeros((env.n_envs, N_STATE), "f4")}
    shown["alive"] = np.ones((env.n_envs, A), bool)
    if env.n_actions is not None:
        shown["mask"] = np.ones((env.n_envs, A, N), bool) if mask is None else mask
    return policy.act(shown, np.zeros(env.n_envs, bool), explore)["action"]


def policy_of(task, scale=1.0):
    policy = MADDPG.policy(task, 0, 0)
    policy.load(MADDPG(task, 0).weights() * np.float32(scale), 0)
    return policy


@SHARED
@pytest.mark.parametrize("env", [env_of(teams=PAIR), numbers(teams=PAIR)], ids=["choice", "number"])
def test_actors_act_in_numpy_as_the_learner_s_would(env, shared):
    task = task_of(env, shared=shared)
    policy, learner = policy_of(task), MADDPG(task, 0)
    obs = np.random.default_rng(0).standard_normal((2, A, N_OBS)).astype("f4")
    with torch.no_grad():
        out = learner._outputs(learner.actors, {"obs": torch.from_numpy(obs)}, "").numpy()
    action = act(policy, env, explore=False)
    if env.n_actions is not None:
        assert (action == out.argmax(-1)).all()
    else:
        wanted = np.stack([np.tanh(out[..., 0]), (np.tanh(out[..., 1]) + 1) / 2], -1)
        np.testing.assert_allclose(action, wanted, atol=1e-5)


@pytest.mark.parametrize("random_steps", [0, 10**9])
def test_masks_are_respected_and_all_else_is_explored(random_steps):
    env = env_of(n_envs=4)
    mask = np.random.default_rng(1).random((4, A, N)) < 0.5
    mask[..., 2] = True
    policy = policy_of(task_of(env, warmup_size=random_steps))
    drawn = np.stack([act(policy, env, mask=mask) for _ in range(400)])
    seen = np.stack([(drawn == option).any(0) for option in range(N)], -1)
    assert (seen == mask).all()
    best = act(policy, env, explore=False, mask=mask)
    assert np.take_along_axis(mask, best[..., None], -1).all()


def test_options_are_drawn_with_the_probability_of_the_softmax():
    env, task = env_of(n_envs=1), task_of()
    policy, learner = policy_of(replace(task, env=env), 3.0), MADDPG(task, 0)
    with torch.no_grad():
        learner._flat.vector *= 3.0
    obs = np.random.default_rng(0).standard_normal((1, A, N_OBS)).astype("f4")
    with torch.no_grad():
        out = learner._outputs(learner.actors, {"obs": torch.from_numpy(obs)}, "")
    drawn = np.stack([act(policy, env)[0] for _ in range(4_000)])
    share = np.stack([(drawn == option).mean(0) for option in range(N)], -1)
    np.testing.assert_allclose(share, out[0].softmax(1).numpy(), atol=0.03)


@SHARED
def test_the_critics_read_the_state_and_everybody_s_actions(shared):
    task = task_of(shared=shared)
    learner = MADDPG(task, 0)
    assert critics_of(task).network.n_inputs == N_STATE + A * N
    base = learner.stage(batch_of(task))
    q = learner._q(learner.critics, base, "", base["action"][:, None])
    assert q.shape == (1, B, A)
    for name, change in (("state", base["state"] + 1), ("action", base["action"].roll(1, 2))):
        other = base | {name: change}
        assert (learner._q(learner.critics, other, "", other["action"][:, None]) != q).all()
    other = base | {"obs": base["obs"] + 1}
    assert (learner._q(learner.critics, other, "", other["action"][:, None]) == q).all()


def test_without_a_state_they_read_what_all_agents_see():
    env = env_of()
    bare = replace(env, observations=tuple(f for f in env.observations if f.name != "state"))
    task = task_of(bare)
    batch = {name: a for name, a in batch_of(task).items() if "state" not in name}
    assert critics_of(task).network.n_inputs == A * N_OBS + A * N
    assert all(np.isfinite(value) for value in learned(MADDPG(task, 0), batch).values())


def test_critics_read_bytes_from_0_to_1():
    learner = MADDPG(task_of(), 0)
    base = learner.stage(batch_of(task_of()))
    pixels = torch.arange(B * N_STATE).view(B, N_STATE).to(torch.uint8)
    values = [
        learner._q(learner.critics, base | {"state": state}, "", base["action"][:, None])
        for state in (pixels, pixels / 255)
    ]
    torch.testing.assert_close(*values)


def test_an_agent_s_gradient_is_that_of_its_own_critic_alone():
    """With critics of their own, a critic that is flat teaches its agent nothing."""
    task = task_of(shared=False, logits_penalty=0.0)
    learner = MADDPG(task, 0)
    n = len(learner._parts[0].vector) // A
    with torch.no_grad():
        for parameter in learner.critics[0].networks[1].parameters():
            parameter.zero_()
    staged = learner.stage(batch_of(task))
    loss, _ = learner._actor_loss(staged)
    learner._flat.backward(loss)
    taught = [bool(learner._parts[0].gradient[i * n : (i + 1) * n].any()) for i in range(A)]
    assert taught == [True, False, True]


def test_the_dead_teach_their_actors_nothing():
    task = task_of(shared=False, logits_penalty=0.0)
    learner, batch = MADDPG(task, 0), batch_of(task)
    batch["alive"][:, 0] = False
    n = len(learner._parts[0].vector) // A
    loss, _ = learner._actor_loss(learner.stage(batch))
    learner._flat.backward(loss)
    taught = [bool(learner._parts[0].gradient[i * n : (i + 1) * n].any()) for i in range(A)]
    assert taught == [False, True, True]


def test_targets_take_the_best_possible_action_and_end_with_the_task():
    task = task_of(gamma=0.5)
    learner, batch = MADDPG(task, 0), batch_of(task)
    best = learner._best(learner.stage(batch))
    assert (best.sum(2) == 1).all()
    assert batch["next_mask"][best.bool().numpy()].all()
    batch["discount"][...] = 0.0
    goal = learned(learner, batch)["target_mean"]
    assert goal == pytest.approx(batch["reward"].mean(), abs=1e-6)


def test_who_has_left_gains_nothing_more_unless_it_is_the_team_s():
    goals = []
    for of_teams in (False, True):
        task = task_of(env_of(rewards_of_teams=of_teams))
        learner, batch = MADDPG(task, 0), batch_of(task)
        batch["next_alive"][...] = False
        goals.append(learned(learner, batch)["target_mean"])
        if not of_teams:
            assert goals[0] == pytest.approx(batch["reward"].mean(), abs=1e-6)
    assert goals[1] != pytest.approx(goals[0], abs=1e-4)


def test_one_reward_for_all_is_everybody_s():
    task = task_of(env_of(reward_per_agent=False))
    batch = batch_of(task)
    batch["discount"][...] = 0.0
    assert learned(MADDPG(task, 0), batch)["target_mean"] == pytest.approx(batch["reward"].mean())


def test_the_draw_is_one_hot_and_has_the_gradient_of_the_softmax():
    learner = MADDPG(task_of(), 0)
    logits = torch.zeros(B, A, N, requires_grad=True)
    drawn = learner._drawn(logits)
    assert set(drawn.detach().round(decimals=5).unique().tolist()) == {0.0, 1.0}
    assert float(drawn.detach().mean(0)[0].max()) < 0.6  # all options are drawn
    drawn[..., 0].sum().backward()
    assert (logits.grad[..., 0] > 0).all() and (logits.grad[..., 1:] < 0).all()


def test_numbers_that_are_padding_count_for_nothing():
    env = numbers(own_actions=(2, 1, 2))
    task = task_of(env)
    one, other = batch_of(task), batch_of(task)
    other["action"][:, 1, 1] += 0.25
    assert learned(MADDPG(task, 0), one) == learned(MADDPG(task, 0), other)
    other["action"][:, 1, 0] += 0.25
    assert learned(MADDPG(task, 0), one) != learned(MADDPG(task, 0), other)


@pytest.mark.parametrize("env", [env_of(), numbers()], ids=["choice", "number"])
def test_twin_critics_a_delay_and_noise_make_it_matd3(env):
    task = task_of(env, twin=True, delay=2, target_noise=0.2)
    learner = MADDPG(task, 0)
    assert len(learner.parameters()) == MADDPG.n_parameters(task)
    moved = []
    for i in range(4):
        before = learner.weights().copy()
        learned(learner, batch_of(task, i))
        moved.append(bool((learner.weights() != before).any()))
    assert moved == [True, False, True, False]


def test_a_team_shares_its_weights_unless_it_is_told_not_to():
    three, two, one = (
        MADDPG.n_weights(task_of(env_of(teams=teams), shared=shared))
        for teams, shared in (((0, 0, 0), False), (PAIR, True), ((0, 0, 0), True))
    )
    assert one < two < three


def test_it_learns_which_option_pays():
    """Agent i earns by option i, whatever the others do."""
    task = task_of(lr=1e-2, tau=0.05)
    learner = MADDPG(task, 0)
    for i in range(150):
        batch = batch_of(task, i)
        for prefix in ("", "next_"):
            batch[prefix + "mask"][...] = True
        batch["action"] = np.random.default_rng(i).integers(N, size=(B, A))
        batch["reward"] = (batch["action"] == np.arange(A)).astype("f4")
        learned(learner, batch)
    policy = MADDPG.policy(task, 0, 0)
    policy.load(learner.weights(), 0)
    assert (act(policy, task.env, explore=False) == np.arange(A)).all()


@pytest.mark.parametrize("kind", ["float32", "int64"])
def test_one_agent_is_told_what_to_use_instead(kind):
    choices = None if kind == "float32" else 4
    env = spec_of(OBS, Field("action", kind, (2,) if choices is None else ()), choices)
    with pytest.raises(TianJiError, match="'TD3' or 'SAC'" if choices is None else "'DQN'"):
        MADDPG.n_weights(task_of(env))


@pytest.mark.parametrize("kind", ["CNN", "GRU"])
def test_networks_that_it_cannot_have_are_refused(kind):
    task = replace(task_of(), model=ModelConfig(type=kind))
    with pytest.raises(TianJiError, match=r"model.type.*'MLP'"):
        MADDPG.n_weights(task)


def test_a_replay_hands_out_what_every_agent_saw_and_earned():
    env = env_of()
    task = task_of(env, n_step=2)
    schema = trajectory_schema(env, MADDPG.fields(task), 5)
    names = {field.name for field in MADDPG.sampling(task).batch_schema(schema).fields}
    wanted = {"obs", "mask", "alive", "state"}
    assert wanted | {f"next_{name}" for name in wanted} <= names
    shapes = {f.name: f.shape for f in MADDPG.sampling(task).batch_schema(schema).fields}
    assert shapes["reward"] == (B, A) and shapes["next_mask"] == (B, A, N)


def test_a_restored_learner_and_policy_go_on_as_the_first_would_have():
    task = task_of(twin=True, delay=2, warmup_size=40)
    one, two = MADDPG(task, 1), MADDPG(task, 2)
    policies = MADDPG.policy(task, 0, 1), MADDPG.policy(task, 0, 2)
    for i in range(5):
        learned(one, batch_of(task, i))
        act(policies[0], task.env, seed=i)
    two.restore(carried(one.state()))
    policies[1].restore(carried(policies[0].state()))
    for i in range(5, 30):
        batch = batch_of(task, i)
        assert learned(one, batch) == learned(two, batch)
        decided = [act(policy, task.env, seed=i) for policy in policies]
        assert (decided[0] == decided[1]).all()
    assert (one.parameters() == two.parameters()).all()


def test_learners_that_share_an_update_stay_alike():
    task = replace(task_of(), n_learners=2)
    parts = [MADDPG(task, 0) for _ in range(2)]
    for i in range(3):
        updates = [a.updates(a.stage(batch_of(task, 2 * i + j))) for j, a in enumerate(parts)]
        vectors = [next(update) for update in updates]
        mean = (vectors[0] + vectors[1]) / 2
        for update, vector in zip(updates, vectors, strict=True):
            vector[...] = mean
            with pytest.raises(StopIteration):
                next(update)
    assert (parts[0].parameters() == parts[1].parameters()).all()
