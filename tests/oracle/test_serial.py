"""Without slack the local and the process engine are Algorithm 1, bit for bit."""

import numpy as np
import pytest
from fields import spec_of, step_of

from tianji import config as configs
from tianji.core.counts import Count
from tianji.core.schema import Field
from tianji.engines.local import LocalEngine
from tianji.job import factory, serial
from tianji.job.job import prepare
from tianji.observe.limits import Limits
from tianji.roles import Buffer
from tianji.runs import launch
from tianji.runs.trained import load

NO_SLACK = "parallel_parameters.buffer_cfg.slack=0"
SMALL = {
    "cartpole_dqn": ("exp.train_steps=700", "hyp.warmup_size=100", "model.hidden=[16, 16]"),
    "cartpole_ppo": (
        "exp.train_steps=2000",
        "parallel_parameters.actor_cfg.envs=4",
        "hyp.minibatch=64",
        "model.hidden=[16, 16]",
    ),
}

NUMBERS = ("exp.train_steps=400", "exp.max_step=20", "hyp.warmup_size=100", "model.hidden=[16]")
CONTINUOUS = {"pendulum_sac": NUMBERS, "pendulum_td3": NUMBERS}
AGENTS = {
    "marl/qmix_two_step": ("exp.train_steps=1500", "hyp.warmup_size=100", "model.hidden=[16]"),
    "two_step_maddpg": ("exp.train_steps=1000",),
    "two_step_mappo": ("exp.train_steps=1600",),
}


@pytest.fixture(scope="session")
def make_job(root):
    def make(name, *overrides):
        given = (*(SMALL | CONTINUOUS | AGENTS)[name], "exp.stop_return=1e9", *overrides)
        folder = "tests/tasks" if name.startswith("two_step") else "configs"
        config = configs.load(root / folder / f"{name}.py", given)
        env = factory.make_env(config)
        env.close()
        return prepare(config, env.spec)

    return make


def run(job):
    engine = LocalEngine(job)
    assert engine.train(Limits(job)) == "finished"
    return engine


def buffer_of(engine):
    return next(role for role in engine.roles if isinstance(role, Buffer))


def same(job):
    """Trains serially and in the local engine; returns both (weights, updates)."""
    outcome = serial.train(job)
    engine = run(job)
    ours = (engine.learner.algorithm.weights().copy(), engine.learner.version)
    return (outcome.algorithm.weights().copy(), outcome.version), ours


@pytest.mark.parametrize("name", SMALL | CONTINUOUS | AGENTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_local_engine_is_serial_training_bit_for_bit(make_job, name, seed):
    job = make_job(name, NO_SLACK, f"exp.seed={seed}")
    (weights, updates), (ours, version) = same(job)
    assert version == updates > 5
    assert (weights == ours).all()


@pytest.mark.parametrize("name", SMALL)
def test_so_is_what_both_measure_of_their_samples_and_episodes(make_job, name):
    job = make_job(name, NO_SLACK, "exp.keep_episodes=True")
    outcome, progress = serial.train(job), run(job).watch.progress
    said = outcome.consumption.report()
    assert progress.staleness.bins.tolist() == said["staleness"].tolist()
    assert progress.age.bins.tolist() == said["age"].tolist()
    assert progress.received == outcome.received
    assert progress.consumed == outcome.counts[Count.CONSUMED] > 0
    assert progress.freshness == pytest.approx(outcome.freshness)
    assert progress.new == pytest.approx(outcome.counts[Count.NEW] / progress.consumed)
    ours = sorted((e.actor_steps, e.version, e.returned, e.length) for e in progress.unwritten)
    theirs = sorted((e.steps, e.version, e.returned, e.length) for e in outcome.episodes)
    within = [each for each in ours if each[0] <= outcome.received]  # an actor may be ahead
    assert within == theirs and len(theirs) > 10


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("cartpole_dqn", "hyp.n_step=3"),
        ("cartpole_dqn", "hyp.double_q=False"),
        ("cartpole_dqn", "hyp.buffer_size=150"),
        ("cartpole_dqn", "parallel_parameters.global_cfg.replay_ratio=3"),
        ("cartpole_dqn", "parallel_parameters.actor_cfg.envs=2"),
        ("cartpole_ppo", "hyp.batch_size=2"),
        ("cartpole_ppo", "environment.vectorization='sync'"),
        ("cartpole_ppo", "exp.max_step=20"),
        ("cartpole_ppo", "environment.seed=3"),
    ],
)
def test_so_it_is_whatever_the_configuration_says(make_job, name, override):
    (weights, updates), (ours, version) = same(make_job(name, NO_SLACK, override))
    assert version == updates > 3
    assert (weights == ours).all()


SEVERAL = "parallel_parameters.actor_cfg.num=3"
ASYNC = ("hyp.mode='async'", "hyp.batch_size=1")
ORDERED = {
    "dqn": ("cartpole_dqn", SEVERAL, NO_SLACK),
    "synchronous ppo": ("cartpole_ppo", SEVERAL),
    "asynchronous ppo": ("cartpole_ppo", SEVERAL, NO_SLACK, *ASYNC),
    "sac": ("pendulum_sac", SEVERAL, NO_SLACK),
    "mappo": ("two_step_mappo", SEVERAL),
}


@pytest.mark.parametrize("name", ORDERED)
def test_so_it_is_with_several_actors_one_after_the_other(make_job, name):
    (weights, updates), (ours, version) = same(make_job(*ORDERED[name]))
    assert version == updates > 2
    assert (weights == ours).all()


INFERENCE = "actor_cfg.inference=True"


@pytest.mark.parametrize("name", [*SMALL, "pendulum_sac", "marl/qmix_two_step"])
@pytest.mark.parametrize("n_actors", [1, 3])
def test_so_it_is_where_one_role_acts_for_all_actors(make_job, name, n_actors):
    actors = f"parallel_parameters.actor_cfg.num={n_actors}"
    (weights, updates), (ours, version) = same(make_job(name, NO_SLACK, actors, INFERENCE))
    assert version == updates > 3
    assert (weights == ours).all()


ONE_THREAD = ("learner_cfg.cores=1", "global_cfg.rebalance=False")
PROCESSES = {
    "dqn": ("cartpole_dqn", NO_SLACK),
    "synchronous ppo": ("cartpole_ppo",),
    "asynchronous ppo": ("cartpole_ppo", NO_SLACK, "hyp.mode='async'"),
    **{f"{name}, three actors": ORDERED[name] for name in ORDERED},
    "dqn, actors without a policy": ("cartpole_dqn", SEVERAL, NO_SLACK, INFERENCE),
    "dqn, a buffer of its own": ("cartpole_dqn", SEVERAL, NO_SLACK, "buffer_cfg.cores=1"),
}
EVERY_DAY = ("dqn, three actors", "synchronous ppo, three actors")


@pytest.mark.process
@pytest.mark.parametrize(
    "name",
    [
        name if name in EVERY_DAY else pytest.param(name, marks=pytest.mark.slow)
        for name in PROCESSES
    ],
)
def test_without_slack_processes_are_serial_training_bit_for_bit(make_job, tmp_path, name):
    job = make_job(*PROCESSES[name], *ONE_THREAD)
    outcome = serial.train(job)
    report = launch.train(job.config, launch.TrainRequest("process", tmp_path / "run", quiet=True))
    assert report.summary["status"] == "finished", report.error
    assert report.summary["updates"] == outcome.version > 2
    np.testing.assert_array_equal(load(report.folder).weights, outcome.algorithm.weights())


class SameStepEnv:
    """Two environments that are cut off every seven steps and reset within that very step."""

    def __init__(self):
        obs = Field("obs", "float32", (4,))
        self.spec = spec_of(obs, Field("action", "int64"), 2, n_envs=2, same_step=True)

    def reset(self, seed=None):
        self.random, self.now = np.random.default_rng(seed), 0
        return {"obs": self.observe()}

    def observe(self):
        return self.random.standard_normal((2, 4)).astype(np.float32)

    def step(self, action):
        self.now += 1
        cut, no, yes = np.full(2, self.now % 7 == 0), np.zeros(2, bool), np.ones(2, bool)
        final = 10 + self.observe()
        reward = (action == (final[:, 0] > 10)).astype(np.float32)
        return step_of(self.observe() if cut[0] else final, reward, no, cut, yes, final)

    def close(self):
        pass


@pytest.mark.parametrize("name", SMALL)
def test_so_it_is_where_environments_reset_within_the_step_that_ended(make_job, monkeypatch, name):
    for module in (serial, factory):
        monkeypatch.setattr(module, "make_env", lambda config: SameStepEnv())
    (weights, updates), (ours, version) = same(make_job(name, NO_SLACK))
    assert version == updates > 3
    assert (weights == ours).all()


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(make_job, name):
    actors = "parallel_parameters.actor_cfg.num=2"
    weights = [
        run(make_job(name, actors, f"exp.seed={seed}")).learner.algorithm.weights().copy()
        for seed in (1, 1, 2)
    ]
    assert (weights[0] == weights[1]).all()
    assert (weights[0] != weights[2]).any()


@pytest.mark.parametrize("n_actors", [1, 3])
@pytest.mark.parametrize("ratio", ["'serial'", "'balanced'", 4])
def test_updates_follow_the_balance_within_one_batch(make_job, n_actors, ratio):
    job = make_job(
        "cartpole_dqn",
        f"parallel_parameters.actor_cfg.num={n_actors}",
        f"parallel_parameters.global_cfg.replay_ratio={ratio}",
    )
    engine = run(job)
    received = buffer_of(engine).counts[Count.RECEIVED]
    assert received >= 700
    batch, warmup = job.sampling.batch, job.sampling.warmup
    assert engine.learner.version == pytest.approx((received - warmup) * job.ratio / batch, abs=1)


@pytest.mark.parametrize("n_actors", [1, 3])
def test_synchronous_training_consumes_every_sample_once_at_its_own_version(make_job, n_actors):
    engine = run(make_job("cartpole_ppo", f"parallel_parameters.actor_cfg.num={n_actors}"))
    progress = engine.watch.progress
    assert progress.staleness.maximum == 0
    assert progress.freshness == pytest.approx(1.0)
    assert progress.received - progress.consumed < n_actors * 64 * 4


def test_an_asynchronous_run_keeps_within_its_lag(make_job):
    job = make_job(
        "cartpole_ppo",
        "hyp.mode='async'",
        "hyp.max_lag=2",
        "hyp.batch_size=3",
        "parallel_parameters.actor_cfg.num=3",
    )
    progress = run(job).watch.progress
    assert progress.updates > 3
    assert progress.staleness.maximum <= 1


def test_weights_stay_finite(make_job):
    for name in SMALL:
        assert np.isfinite(run(make_job(name)).learner.algorithm.weights()).all()
