"""One role that acts for all actors of a group: halves, a shared network, a resume, refusals."""

import numpy as np
import pixels
import pytest
from commands import TASKS

from tianji import config as configs
from tianji import envs
from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.engines.local import LocalEngine
from tianji.job import factory, job
from tianji.models import acting
from tianji.observe.limits import Limits
from tianji.roles import role_state
from tianji.roles.env_actor import EnvActor
from tianji.roles.inference import Inference
from tianji.roles.role_specs import roles_of
from tianji.roles.trajectory import TrajectoryWriter
from tianji.runs import start

INFERENCE = "actor_cfg.inference=True"
CNN = ("model.type='CNN'", "model.convs=[[4, 2, 1]]", "model.precision='float32'")


class Halves(pixels.PixelEnv):
    """Moves in two halves."""

    def begin(self, action):
        self.action = action.copy()

    def finish(self):
        return self.step(self.action)


@pytest.fixture
def make_job(monkeypatch):
    def make(task, *overrides, env=pixels.PixelEnv):
        config = configs.load(TASKS / f"{task}.py", ["exp.stop_return=1e9", *overrides])
        n = config.parallel.actor_cfg.envs
        monkeypatch.setattr(factory, "make_env", lambda config, n_envs=n: env(n_envs=n_envs))
        return job.prepare(config, env(n_envs=n).spec)

    return make


def trained(made):
    engine = LocalEngine(made)
    assert engine.train(Limits(made)) == "finished"
    return engine


def of(engine, kind):
    return next(role for role in engine.roles if isinstance(role, kind))


@pytest.mark.parametrize("n_actors", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_halves_make_the_trajectories_of_an_actor_in_two_halves(
    make_job, monkeypatch, n_actors
):
    monkeypatch.setattr(envs, "splits", lambda _: True)
    given = ("exp.train_steps=4000", "actor_cfg.envs=4", f"actor_cfg.num={n_actors}")
    ours, theirs = (
        trained(make_job("echo_ppo", *given, *more, env=Halves)) for more in ((INFERENCE,), ())
    )
    assert len(of(ours, EnvActor)._halves) == 2
    assert of(ours, Inference).seats[0].trajectory.sent > 3
    assert ours.learner.version == theirs.learner.version > 3
    assert (ours.learner.algorithm.weights() == theirs.learner.algorithm.weights()).all()


@pytest.mark.parametrize("seed", range(4))
def test_whoever_is_slow_halves_stay_in_step(make_job, monkeypatch, seed):
    monkeypatch.setattr(envs, "splits", lambda _: True)
    given = ("learner_cfg.exit_val.learn_step=3", "actor_cfg.envs=4", INFERENCE)
    made = make_job("echo_ppo", *given, env=Halves)
    in_turns, engine = trained(made), LocalEngine(made)
    random, turns = np.random.default_rng(seed), 0
    while not engine.learner.done and turns < 20_000:
        turns += 1
        role = engine.roles[random.integers(len(engine.roles))]
        engine._step([role] * int(random.integers(1, 6)))
    assert engine.learner.version == 3
    assert (engine.learner.algorithm.weights() == in_turns.learner.algorithm.weights()).all()


def test_policies_of_one_torch_network_load_it_once_and_act_in_one_pass(make_job):
    made = make_job("echo_dqn", *CNN, "actor_cfg.num=3", "actor_cfg.envs=2")
    weights = np.random.default_rng(0).standard_normal(made.algorithm.n_weights(made.task))
    alone, together = ([made.algorithm.policy(made.task, i, i) for i in range(3)] for _ in range(2))
    assert acting.share_network(together)
    assert len({id(policy.outputs.forward) for policy in together}) == 1
    for policy in (*alone, *together):
        policy.load(weights.astype(np.float32), 1)
    calls, forward = [], together[0].outputs.forward

    def counted(inputs):
        calls.append(len(inputs))
        return forward(inputs)

    for policy in together:
        policy.outputs.forward = counted
    random, first = np.random.default_rng(1), np.zeros(2, bool)
    frame = made.task.env.inputs[0]
    for asked in ((0, 1, 2), (1,), (0, 2)):
        obs = [
            {"obs": random.integers(0, 255, (2, *frame.shape)).astype(frame.dtype)} for _ in asked
        ]
        acting.look_ahead([(together[i], o, first) for i, o in zip(asked, obs, strict=True)])
        for i, o in zip(asked, obs, strict=True):
            decided = together[i].act(o, first, explore=False)["action"]
            assert (decided == alone[i].act(o, first, explore=False)["action"]).all()
    assert calls == [6, 2, 4]


def test_policies_that_compute_in_numpy_or_otherwise_act_alone(make_job):
    made = make_job("echo_dqn", "actor_cfg.num=2")
    assert not acting.share_network([made.algorithm.policy(made.task, i, i) for i in range(2)])
    assert not acting.share_network([object(), object()])


def test_actors_of_a_cnn_learn_through_one_network(make_job):
    engine = trained(
        make_job("echo_dqn", *CNN, INFERENCE, "actor_cfg.num=3", "exp.train_steps=900")
    )
    assert of(engine, Inference)._look_ahead is not None
    assert engine.learner.version > 3


def test_an_actor_has_no_policy_and_counts_what_is_made_of_its_steps(make_job):
    engine = trained(make_job("echo_ppo", INFERENCE, "exp.train_steps=4000"))
    actors = [role for role in engine.roles if isinstance(role, EnvActor)]
    inference = of(engine, Inference)
    assert not any(hasattr(actor, "policy") for actor in actors)
    for count in (Count.PRODUCED, Count.PUSHED):
        assert sum(actor.counts[count] for actor in actors) == inference.counts[count] > 0
    assert {actor.counts[Count.VERSION] for actor in actors} == {inference.version}


def test_a_trajectory_is_counted_before_it_is_sent(make_job, monkeypatch):
    counted = []

    def send(writer):
        counted.append(int(of(engine, Inference).counts[Count.PRODUCED]))
        send_it(writer)

    send_it = TrajectoryWriter.send
    monkeypatch.setattr(TrajectoryWriter, "send", send)
    made = make_job("echo_ppo", INFERENCE, "exp.train_steps=1000")
    engine = LocalEngine(made)
    engine.train(Limits(made))
    assert counted[0] > 0 and np.diff(counted).min() > 0


@pytest.mark.parametrize("in_flight", [True, False])
@pytest.mark.parametrize(("task", "steps"), [("echo_ppo", 6_000), ("echo_dqn", 3_000)])
def test_roles_that_are_restored_go_on_with_new_trajectories(make_job, in_flight, task, steps):
    made = make_job(task, INFERENCE, f"exp.train_steps={steps}")
    engine = LocalEngine(made)
    for _ in range(301):
        engine._round()
    saved = {role.name: role_state.state(role) for role in engine.roles}
    channels, version = engine.transport.state(), engine.learner.version
    assert version > 1
    again = LocalEngine(made)
    if in_flight:
        again.transport.restore(channels)
    for role in again.roles:
        role_state.restore(role, saved[role.name])
        if not in_flight:
            role_state.rejoin(role, version)
    assert again.train(Limits(made)) == "finished"
    assert again.learner.version > version
    assert again.watch.progress.received >= steps
    if task == "echo_ppo":
        assert again.watch.progress.staleness.maximum == 0
    assert of(again, EnvActor).stream == 1


def test_a_group_has_one_beside_its_actors(make_job):
    names = [role.name for role in roles_of(make_job("echo_ppo", INFERENCE).config)]
    assert names == ["learner-0.0", "buffer-0.0", "inference-0.0", "actor-0.0", "actor-0.1"]


@pytest.mark.parametrize(
    ("engine", "override", "words"),
    [
        ("mpi", "exp.seed=1", "engine mpi"),
        ("process", "actor_cfg.trigger='my:Own'", "trigger"),
        ("process", "exp.trace_seconds=5", "traced"),
        ("process", "exp.record=True", "recorded"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(engine, override, words, monkeypatch):
    monkeypatch.setattr(start, "chosen_engine", lambda config, name: name)
    with pytest.raises(TianJiError, match=f"actor_cfg.inference: .*{words}"):
        start.refuse(configs.load(TASKS / "echo_ppo.py", [INFERENCE, override]), engine)


def test_who_waits_says_for_what(make_job):
    engine = LocalEngine(make_job("echo_ppo", INFERENCE))
    inference, actor = of(engine, Inference), of(engine, EnvActor)
    assert inference.waits_for() is Count.WAITED_WEIGHTS
    assert actor.waits_for() is Count.WAITED_ACTIONS
    engine._step([engine.learner, inference])
    assert inference.waits_for() is Count.WAITED_STEPS
    actors = [role for role in engine.roles if isinstance(role, EnvActor)]
    for _ in range(500):
        engine._step([inference, *actors])
    assert not inference.step()
    assert inference.waits_for() is Count.WAITED_WEIGHTS  # all that was due has been sent
