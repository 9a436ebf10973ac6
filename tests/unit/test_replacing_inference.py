"""Actors that another role acts for, and that role: lost at any moment and replaced."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from commands import TASKS
from pixels import PixelEnv

from tianji import envs
from tianji.config import load
from tianji.core.counts import Count
from tianji.engines.accounts import missing_steps
from tianji.engines.live_counts import counts_channels, live_counts
from tianji.engines.replacement import Replacement
from tianji.engines.worker_loop import ProcessPorts, shared_channels
from tianji.job import factory
from tianji.job.job import prepare
from tianji.roles.role_specs import homes_of, roles_of
from tianji.roles.trajectory import TrajectoryWriter
from tianji.transports import ring
from tianji.transports.shm import ShmTransport

MORE = ("actor_cfg.inference=True", "actor_cfg.num=3", "actor_cfg.envs=2", "hyp.warmup_size=8")
PPO = ("hyp.step_len=4", "hyp.minibatch=8", "hyp.update_step=1")
ASYNC = (*PPO, "hyp.mode=async")
ACTORS, INFERENCE = ("actor-0.0", "actor-0.1", "actor-0.2"), "inference-0.0"


class Marked(PixelEnv):
    """Every reward says in which of all environments' lives it was earned."""

    lives = itertools.count(1)

    def reset(self, seed=None):
        self.life = next(self.lives)
        return super().reset(seed)

    def step(self, action):
        step = super().step(action)
        return replace(step, reward=np.full_like(step.reward, self.life))

    def begin(self, action):
        self.action = action.copy()

    def finish(self):
        return self.step(self.action)


class Stage:
    """All roles of a run, in shared memory; who is lost loses what it had between two steps."""

    def __init__(self, folder, task, *overrides):
        more = [word for word in MORE if "warmup" not in word or "dqn" in task]
        config = load(TASKS / task, (*more, "exp.train_steps=10000000", *overrides))
        self.folder, self.job = folder, prepare(config, factory.make_env(config).spec)
        specs = shared_channels(self.job) + counts_channels(self.job)
        self.shared = ShmTransport.create(specs, homes_of(config))
        self.roles, self.lives, self.versions = {}, {}, []
        for spec in roles_of(config):
            self.roles.setdefault(spec.home, []).append(spec)
        self.processes = {home: self.begin(home) for home in self.roles}

    def begin(self, home, life=0):
        ports = ProcessPorts(home, self.job, self.shared)
        mine = [replace(role, life=life) for role in self.roles[home]]
        roles = [factory.build(r, self.job, ports, counts=self.counts(r.name)) for r in mine]
        if life:
            Replacement(self.job, self.shared, self.folder).take_over(roles)
        elif home == "learner-0.0":
            learner, stage = roles[0], roles[0].algorithm.stage

            def noted(batch):
                if "version" in batch:
                    self.versions.append((learner.version, batch["version"].copy()))
                return stage(batch)

            learner.algorithm.stage = noted
        return roles

    def counts(self, name):
        return live_counts(self.shared, name)

    def total(self, count, kind):
        names = [role.name for roles in self.roles.values() for role in roles]
        return sum(self.counts(name)[count] for name in names if name.startswith(kind))

    def lose(self, *homes):
        for home in homes:
            self.processes[home] = []
            if home in ACTORS:
                ring.leave(self.shared.block(f"trajectories {home}"))

    def replace(self, *homes):
        for home in homes:
            self.lives[home] = self.lives.get(home, 0) + 1
            self.processes[home] = self.begin(home, self.lives[home])

    def turn(self, random=None):
        """Every role takes a step, or some of them several."""
        homes = list(self.processes)
        if random is not None:
            homes = random.choice(homes, len(homes))
        for role in (role for home in homes for role in self.processes[home]):
            role.step()

    def updates(self, n, turns=4_000):
        target = int(self.counts("learner-0.0")[Count.VERSION]) + n
        for _ in range(turns):
            if self.counts("learner-0.0")[Count.VERSION] >= target:
                return
            self.turn()
        raise AssertionError("no update")

    @property
    def inference(self):
        [role] = self.processes[INFERENCE]
        return role


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """Refuses trajectories of which a part was made in another life than the rest."""
    send = TrajectoryWriter.send

    def checked(writer):
        rewards = writer._rows["reward"][: writer.length]
        assert (rewards == rewards[0]).all()
        send(writer)

    monkeypatch.setattr(TrajectoryWriter, "send", checked)
    made = []

    def make(task, *overrides, halves=False):
        monkeypatch.setattr(envs, "splits", lambda _: halves)
        monkeypatch.setattr(factory, "make_env", lambda config, n=2: Marked(n_envs=n))
        made.append(Stage(tmp_path, task, *overrides))
        return made[-1]

    yield make
    for each in made:
        each.processes = {}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 20))]
)
@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(
    ("task", "options"),
    [("echo_ppo.py", PPO), ("echo_ppo.py", ASYNC), ("echo_dqn.py", ("actor_cfg.send_size=4",))],
)
def test_training_goes_on_whoever_is_lost_and_when(stage, task, options, halves, seed):
    stage, random = stage(task, *options, halves=halves), np.random.default_rng(seed)
    stage.updates(2)
    produced, n_lost = 0, 0
    for _ in range(10):
        for _ in range(int(random.integers(40))):
            stage.turn(random)
        lost = [home for home in (*ACTORS, INFERENCE) if random.random() < 0.4] or [ACTORS[0]]
        n_lost += len(lost)
        stage.lose(*lost)
        if {*lost} < {*ACTORS}:
            stage.updates(2)  # without them
        for home in random.permutation(lost):
            stage.replace(str(home))
            for _ in range(int(random.integers(30))):
                stage.turn(random)
        stage.updates(2)
        assert stage.total(Count.PRODUCED, "actor") >= produced
        produced = stage.total(Count.PRODUCED, "actor")
    assert produced >= stage.total(Count.RECEIVED, "buffer")
    if stage.job.sampling.per_version is not None:
        assert stage.versions and all((made == now).all() for now, made in stage.versions)
    [_, buffer] = stage.processes["learner-0.0"]
    for inbox in buffer.trajectories:
        inbox.free()  # as at the end
    assert missing_steps(stage.job, stage.shared) == 0
    for count in (Count.PRODUCED, Count.PUSHED):
        theirs, ours = (stage.total(count, kind) for kind in ("actor", "inference"))
        assert 0 <= theirs - ours <= n_lost * (1 if count is Count.PUSHED else 8) * len(ACTORS)


def test_what_the_policy_is_shown_first_of_another_actor_begins_episodes(stage):
    stage = stage("echo_dqn.py")
    stage.updates(3)
    stage.lose(ACTORS[1])
    seat = stage.inference.seats[1]
    assert seat.trajectory.is_open and stage.counts(ACTORS[1])[Count.PUSHED]
    before = stage.counts(ACTORS[1]).copy()
    stage.replace(ACTORS[1])
    [actor] = stage.processes[ACTORS[1]]
    actor.step()
    while seat.receive():
        pass
    assert not seat.trajectory.is_open
    [(_, _, first)] = [(half.policy, *half.seen) for half in seat._halves]
    assert first.all()
    assert actor.counts[Count.PUSHED] == before[Count.PUSHED]
    assert actor.seed != stage.begin(ACTORS[1], life=2)[0].seed


def test_who_acts_instead_explores_as_far_as_the_lost_one(stage):
    stage = stage("echo_dqn.py")
    stage.updates(30)
    before = stage.total(Count.PUSHED, "inference")
    stage.lose(INFERENCE)
    stage.replace(INFERENCE)
    for name, seat in zip(ACTORS, stage.inference.seats, strict=True):
        [policy] = seat.policies
        assert policy._steps == stage.counts(name)[Count.PRODUCED] > 0
    stage.updates(60)
    assert stage.total(Count.PUSHED, "inference") > before
    assert {actor.stream for home in ACTORS for actor in stage.processes[home]} == {1}


def test_who_acts_instead_before_anybody_has_begun_calls_nobody(stage):
    stage = stage("echo_ppo.py", *PPO)
    stage.lose(INFERENCE)
    stage.replace(INFERENCE)
    stage.updates(2)
    assert {actor.stream for home in ACTORS for actor in stage.processes[home]} == {0}


def test_an_actor_that_is_called_to_the_stream_that_it_is_in_goes_on(stage):
    stage = stage("echo_ppo.py", *PPO)
    stage.updates(2)
    stage.lose(ACTORS[0], INFERENCE)
    stage.replace(ACTORS[0], INFERENCE)
    [actor] = stage.processes[ACTORS[0]]
    life = actor.env.life
    actor.step()  # shows
    for _ in range(3):
        stage.inference.step()  # calls it, since it had not shown anything yet, and acts
    assert actor.actions.waiting == 2
    actor.step()
    assert (actor._n_rows, actor.actions.waiting) == (0, 1)
    actor.step()
    assert (actor._n_rows, actor.stream, actor.env.life) == (1, 1, life)


def test_a_synchronous_actor_that_is_back_makes_no_more_than_its_share(stage):
    stage = stage("echo_ppo.py", *PPO)
    stage.updates(2)
    stage.lose(ACTORS[2])
    stage.updates(20)
    stage.replace(ACTORS[2])
    stage.updates(20)
    assert not stage.counts("buffer-0.0")[Count.DROPPED]
