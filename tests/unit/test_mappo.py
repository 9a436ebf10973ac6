"""MAPPO and IPPO: who reads what, who counts, teams, memories, and whom they refuse."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from agents_tasks import agents_env, seen, task_of
from fields import learned
from sharing import parts_of, several, together

from tianji.algorithms.base import advantages
from tianji.algorithms.ippo import IPPO, IPPOHyp
from tianji.algorithms.mappo import MAPPO, MAPPOHyp
from tianji.algorithms.surrogate import objective
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.core.store import keep, trajectory_schema

T, E, A, N = 6, 4, 3, 5
TEAM = agents_env(A, n_actions=N, n_envs=E)
RIVALS = agents_env(A, n_actions=N, n_envs=E, teams=(0, 0, 1), reward_per_agent=True)
KINDS = pytest.mark.parametrize("kind", ["MLP", "GRU"])
ENVS = pytest.mark.parametrize("env", [TEAM, RIVALS], ids=["team", "rivals"])
HYPS = {MAPPO: MAPPOHyp, IPPO: IPPOHyp}


def job(env=TEAM, kind="MLP", algorithm=MAPPO, n_actors=1, **hyp):
    hyp = HYPS[algorithm](**{"step_len": T, "minibatch": 10_000, "update_step": 1, **hyp})
    return task_of(env, hyp, n_actors, type=kind, gru=8)


def rollouts(task, seed=0, n=2, algorithm=MAPPO, dies=True):
    """A learner, and what its own policy did; agents die, and episodes end."""
    random, learner = np.random.default_rng(seed), algorithm(task, 0)
    policy = algorithm.policy(task, 0, seed)
    policy.load(learner.weights(), 0)
    schema = trajectory_schema(task.env, algorithm.fields(task), T)
    made = [_rollout(schema.empty(), task.env, policy, random, dies) for _ in range(n)]
    return learner, {name: np.stack([each[name] for each in made]) for name in made[0]}


def _rollout(rows, env, policy, random, dies):
    shown = seen(env, random, T + 1, E)
    shown["alive"][...] = True
    first = random.random((T + 1, E)) < 0.2
    rows["reward"][...] = random.standard_normal(rows["reward"].shape)
    rows["valid"][...] = ~first[1:]
    rows["terminated"][:-1] = first[2:] & ~first[1:-1] & (random.random((T - 1, E)) < 0.5)
    rows["truncated"][:-1] = first[2:] & ~first[1:-1] & ~rows["terminated"][:-1]
    if dies:
        for t in range(1, T + 1):
            stays = shown["alive"][t - 1] & (random.random((E, A)) < [1.0, 0.8, 0.8])
            shown["alive"][t] = np.where(first[t][:, None], True, stays)
    for name, array in shown.items():
        rows[name][...] = array
    if "first" in rows:
        rows["first"][...] = first
    for t in range(T):
        keep(policy.act({name: array[t] for name, array in shown.items()}, first[t]), rows, t)
    return rows


@ENVS
@KINDS
@pytest.mark.parametrize("algorithm", [MAPPO, IPPO])
def test_the_learner_computes_the_probabilities_that_the_actor_did(algorithm, kind, env):
    task = job(env, kind, algorithm, mode="async", correction="none")
    learner, batch = rollouts(task, algorithm=algorithm)
    scalars = learned(learner, batch)
    assert scalars["staleness/kl"] == pytest.approx(0, abs=1e-6)
    assert scalars["staleness/ess"] == pytest.approx(1, abs=1e-5)
    assert scalars["approx_kl"] == pytest.approx(0, abs=1e-6)


def test_an_update_is_the_textbook_s():
    """One team, one reward: its central value, and the clipped surrogate of all that are alive."""
    task = job(ent_coef=0.02, huber=None, normalise_value=False, max_grad_norm=None)
    learner, batch = rollouts(task)
    h, told = learner.hyp, [batch[name] for name in ("obs", "mask", "state")]
    obs, mask, state = map(torch.from_numpy, told)
    actor = learner.networks.actor.networks[0]
    critic = learner.networks.critic.networks[0]
    ids = torch.eye(A).expand(*obs.shape[:4], A)
    inputs = torch.cat([obs, ids], 4)
    out = actor(inputs[:, :-1].flatten(0, 3)[None], None, None)[0]
    out = out.view(*obs[:, :-1].shape[:4], N).masked_fill(~mask[:, :-1], -torch.inf)
    value = critic(state.flatten(0, 2)[None], None, None)[0].view(state.shape[:3])
    gain, goal = advantages(batch, value.detach().numpy(), None, h.gamma, h.gae_lambda)
    acts = torch.from_numpy(batch["valid"][..., None] & batch["alive"][:, :-1])
    distribution = torch.distributions.Categorical(logits=out[acts])
    logp = distribution.log_prob(torch.from_numpy(batch["action"])[acts])
    gain = torch.from_numpy(gain)[..., None].expand(acts.shape)[acts]
    gain = (gain - gain.mean()) / gain.std()
    ratio = (logp - torch.from_numpy(batch["logp"])[acts]).exp()
    loss = -torch.minimum(gain * ratio, gain * ratio.clamp(0.8, 1.2)).mean()
    valid = torch.from_numpy(batch["valid"])
    loss = loss + 0.5 * (value[:, :-1][valid] - torch.from_numpy(goal)[valid]).square().mean()
    loss = loss - 0.02 * distribution.entropy().mean()
    wanted = torch.autograd.grad(loss, [*actor.parameters(), *critic.parameters()])
    learned(learner, batch)
    wanted = torch.cat([each.flatten() for each in wanted])
    np.testing.assert_allclose(learner._flat.gradient, wanted, atol=1e-5)


@KINDS
@pytest.mark.parametrize("env", [TEAM, RIVALS], ids=["team", "rivals"])
def test_what_the_dead_did_changes_nothing(env, kind):
    learner, batch = rollouts(job(env, kind))
    dead = ~batch["alive"][:, :-1] & batch["valid"][..., None]
    assert dead.any()
    other = {name: array.copy() for name, array in batch.items()}
    other["logp"][dead] += 1.0
    other["action"][dead] = 0
    if env.reward_per_agent:
        other["reward"][dead] = 50.0
    same, _ = rollouts(job(env, kind))
    assert learned(learner, batch) == learned(same, other)
    assert (learner.parameters() == same.parameters()).all()


def told(task, batch):
    return MAPPO(task, 0).stage(batch)[1].told


def test_who_has_left_gains_nothing_more_unless_the_reward_is_the_team_s():
    task = job(RIVALS)
    _, batch = rollouts(task)
    left = batch["alive"][:, :-1] & ~batch["alive"][:, 1:] & batch["valid"][..., None]
    assert (told(task, batch)["terminated"][left]).all()
    for env in (TEAM, replace(RIVALS, rewards_of_teams=True)):
        task = job(env)
        _, batch = rollouts(task)
        for name in ("terminated", "truncated", "valid"):
            assert (told(task, batch)[name] == batch[name][..., None]).all()


def values(algorithm, task, batch, name):
    """Whether the values and the policies' outputs depend on a field."""
    learner = algorithm(task, 0)
    inputs = learner.stage(batch)[1]
    outs, value = inputs.through(learner.networks, True)
    changed = batch | {name: batch[name] + 1}
    outs_2, value_2 = learner.stage(changed)[1].through(learner.networks, True)
    return bool((value != value_2).any()), bool((outs != outs_2).any())


@ENVS
@KINDS
def test_a_central_value_reads_the_state_and_others_what_their_agent_sees(env, kind):
    for algorithm, reads in ((MAPPO, "state"), (IPPO, "obs")):
        task = job(env, kind, algorithm)
        _, batch = rollouts(task, algorithm=algorithm)
        for name in ("state", "obs"):
            assert values(algorithm, task, batch, name) == (name == reads, name == "obs")


def test_without_a_state_a_central_value_reads_what_all_agents_see():
    env = replace(TEAM, observations=tuple(f for f in TEAM.observations if f.name != "state"))
    task = job(env)
    learner, batch = rollouts(task)
    assert values(MAPPO, task, batch, "obs") == (True, True)
    assert np.isfinite(list(learned(learner, batch).values())).all()


def test_a_team_has_one_value_and_agents_with_rewards_of_their_own_have_each_one():
    for env, n in ((TEAM, 1), (RIVALS, A)):
        learner, batch = rollouts(job(env))
        assert learner.stage(batch)[1].told["reward"].shape[-1] == n
    assert MAPPO.n_weights(job(TEAM)) < MAPPO.n_weights(job(RIVALS))  # a network of each team
    assert MAPPO.n_weights(job(RIVALS)) < MAPPO.n_weights(job(RIVALS, shared=False))


def test_each_team_has_a_unit_of_returns_of_its_own():
    task = job(RIVALS, gamma=0.0)
    learner, batch = rollouts(task, n=8, dies=False)
    batch["reward"][..., 2] = batch["reward"][..., 2] * 50 + 300
    learned(learner, batch)
    first, second = learner._normalisers
    own = batch["reward"][batch["valid"]]
    assert float(first.mean) == pytest.approx(own[:, :2].mean(), abs=0.01)
    assert float(second.mean) == pytest.approx(own[:, 2].mean(), rel=1e-3)
    assert 1 / float(second.scale) == pytest.approx(own[:, 2].std(), rel=1e-2)


def test_a_rival_s_rewards_change_nothing_of_another_team():
    """Policies, values, units and normalised advantages: all are of one team."""
    task = job(RIVALS, max_grad_norm=None)
    one, batch = rollouts(task, dies=False)
    two, other = MAPPO(task, 0), {name: array.copy() for name, array in batch.items()}
    other["reward"][..., 2] = other["reward"][..., 2] * 50 + 300
    learned(one, batch)
    learned(two, other)
    for networks in ("actor", "critic"):
        first, second = (
            [
                torch.cat([p.flatten() for p in network.parameters()])
                for network in getattr(learner.networks, networks).networks
            ]
            for learner in (one, two)
        )
        assert torch.allclose(first[0], second[0], atol=1e-6)
    assert not torch.allclose(first[1], second[1], atol=1e-6)  # the critic of the rival's own


@KINDS
@pytest.mark.parametrize("k", [2, 4])
@ENVS
def test_learners_of_a_batch_make_the_update_of_one(env, k, kind):
    task = job(env, kind, lr=3e-3, update_step=2)
    alone, many = several(MAPPO, task, k)
    for seed in range(2):
        _, batch = rollouts(task, seed, n=4, dies=False)
        learned(alone, batch)
        together(many, parts_of(batch, k))
    for one in many:
        np.testing.assert_allclose(one.parameters(), alone.parameters(), atol=1e-4)
        assert one.parameters().tobytes() == many[0].parameters().tobytes()


@KINDS
@pytest.mark.parametrize("invalid", [False, True])
def test_learners_exchange_equally_often_whoever_is_dead(kind, invalid):
    task = job(RIVALS, kind, minibatch=12, update_step=2)
    _, many = several(MAPPO, task, 2)
    _, batch = rollouts(task, n=4)
    parts = parts_of(batch, 2)
    if invalid:
        parts[1]["valid"][...] = False
    results, n_exchanges = together(many, parts)
    assert n_exchanges == 3 + 2 * round(4 * T * E / 12)  # moments, sums and squares; gradients
    assert np.isfinite([list(result.values()) for result in results]).all()
    assert many[0].parameters().tobytes() == many[1].parameters().tobytes()


def test_sequences_are_never_torn_apart():
    learner, batch = rollouts(job(kind="GRU", minibatch=1))
    inputs = learner.stage(batch)[1]
    samples, _ = learner._prepare(batch, inputs)
    parts = [*learner._minibatches(samples, samples.gains.values, batch["valid"].size)]
    assert len(parts) == 2 * E  # as many as there are sequences
    assert all(part[1].shape[1] == T for part in parts)


def test_only_what_is_possible_is_drawn_and_everything_of_it():
    env = agents_env(A, n_actions=N, n_envs=1)
    policy, random = MAPPO.policy(job(env), 0, 0), np.random.default_rng(1)
    policy.load(MAPPO(job(env), 0).weights(), 0)
    shown = seen(env, random, 1)
    draws = [policy.act(shown, np.zeros(1, bool)) for _ in range(300)]
    mask = shown["mask"][0]
    found = np.stack([(np.stack([d["action"][0] for d in draws]) == i).any(0) for i in range(N)], 1)
    assert (found == mask).all()
    share = np.exp(np.mean([d["logp"][0] for d in draws], 0))
    np.testing.assert_allclose(share, 1 / mask.sum(1), rtol=0.1)  # at first equally likely
    best = policy.act(shown, np.zeros(1, bool), explore=False)["action"]
    assert np.take_along_axis(shown["mask"], best[..., None], -1).all()


def test_an_option_without_weight_is_never_drawn_whatever_the_numbers():
    from tianji.models.policies import chosen

    class Extreme:
        def __init__(self, number):
            self.number = np.float32(number)

        def random(self, shape, dtype):
            return np.full(shape, self.number)

    logits = np.array([[-1e9, 3.0, -1e9, 1.1, -1e9]], np.float32)
    drawn = [
        int(chosen(logits, Extreme(x))[0][0]) for x in (0, 0.5, np.nextafter(np.float32(1), 0))
    ]
    assert drawn == [1, 1, 3]


def test_numbers_that_are_padding_count_for_nothing():
    env = numbers(own_actions=(2, 1, 2))
    task = job(env)
    one, batch = rollouts_of_numbers(task)
    assert (batch["action"] >= -1).all() and (batch["action"] <= 1).all()
    two, other = MAPPO(task, 0), {name: array.copy() for name, array in batch.items()}
    other["raw"][..., 1, 1] += 0.5
    assert learned(one, batch) == learned(two, other)
    other["raw"][..., 1, 0] += 0.5
    assert learned(MAPPO(task, 0), batch) != learned(MAPPO(task, 0), other)


def numbers(**facts):
    observations = tuple(field for field in RIVALS.observations if field.name != "mask")
    return replace(
        RIVALS,
        observations=observations,
        action=Field("action", "float32", (A, 2)),
        choices=None,
        action_low=(-1.0,) * 2 * A,
        action_high=(1.0,) * 2 * A,
        **facts,
    )


def rollouts_of_numbers(task):
    random, learner = np.random.default_rng(0), MAPPO(task, 0)
    policy = MAPPO.policy(task, 0, 0)
    policy.load(learner.weights(), 0)
    rows = trajectory_schema(task.env, MAPPO.fields(task), T).empty()
    rows["valid"][...] = rows["alive"][...] = True
    for name in ("obs", "state"):
        rows[name][...] = random.standard_normal(rows[name].shape)
    rows["reward"][...] = random.standard_normal(rows["reward"].shape)
    for t in range(T):
        keep(policy.act({"obs": rows["obs"][t]}, np.zeros(E, bool)), rows, t)
    return learner, {name: array[None] for name, array in rows.items()}


def test_errors_count_in_a_line_beyond_huber():
    learner, _ = rollouts(job(huber=1.0))
    value, zeros = torch.tensor([0.5, -3.0]), torch.zeros(2)
    hyp = learner.hyp
    _, parts = objective(hyp, zeros, zeros.sum(), value, zeros, zeros, zeros, zeros)
    assert float(parts[1]) == (0.25 + 5.0) / 2  # 0.5^2, and 2 (3 - 1/2)


@pytest.mark.parametrize(
    ("env", "kind", "words"),
    [
        (replace(TEAM, agents=(), teams=()), "MLP", "MAPPO is for several agents"),
        (TEAM, "CNN", "model.type: MAPPO has networks of type 'GRU' or 'MLP', not 'CNN'"),
        (
            replace(TEAM, action=Field("action", "int64", (A, 2)), choices=(2, 2)),
            "MLP",
            "one Discrete space for each agent",
        ),
    ],
)
def test_what_it_cannot_learn_is_refused(env, kind, words):
    with pytest.raises(TianJiError, match=words):
        MAPPO.n_weights(job(env, kind))
