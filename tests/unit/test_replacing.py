"""An actor that is lost at any moment and replaced: nothing twice, nothing waits, counts go on."""

import numpy as np
import pytest
from commands import TASKS

from tianji.config import load
from tianji.core.counts import OF_THIS_PROCESS, Count
from tianji.job import factory
from tianji.job.job import prepare
from tianji.job.wiring import channels_of
from tianji.models.policies import GreedyPolicy
from tianji.roles import role_state
from tianji.roles.role_specs import Kind, RoleSpec, batches_of, role_name, weights_of
from tianji.transports import ring
from tianji.transports.local import LocalTransport

N_ACTORS = 3
LOSSES = 10


class Stage:
    """Actors and their buffer; a learner that only publishes; whoever is lost loses what it had."""

    def __init__(self, task):
        short = ("hyp.step_len=4", "hyp.minibatch=16") if "ppo" in task else ()
        more = (f"actor_cfg.num={N_ACTORS}", "exp.train_steps=10000000", *short)
        config = load(TASKS / task, more)
        self.job = prepare(config, factory.make_env(config).spec)
        self.transport = LocalTransport(channels_of(self.job))
        self.counts = [np.zeros(len(Count)) for _ in range(N_ACTORS)]
        self.lives = [0] * N_ACTORS
        self.actors = [self.make(i) for i in range(N_ACTORS)]
        self.buffer = self.build(Kind.BUFFER, 0, 0)
        self.batches = self.transport.inbox(batches_of(0, 0))
        self.weights = self.transport.outbox(weights_of(0))
        self.version, self.batch_versions, self.shares = 0, [], []
        self.publish()

    def build(self, kind, index, life, counts=None):
        role = RoleSpec(kind, index, role_name(kind, index), life=life)
        return factory.build(role, self.job, self.transport, counts=counts)

    def make(self, i):
        return self.build(Kind.ACTOR, i, self.lives[i], self.counts[i])

    def block(self, i):
        return self.transport._blocks[f"trajectories actor-0.{i}"]

    def lose(self, i):
        self.actors[i] = None
        self.lives[i] += 1
        ring.leave(self.block(i))

    def replace(self, i):
        self.actors[i] = self.make(i)
        for count in OF_THIS_PROCESS:
            self.counts[i][count] = 0
        role_state.take_over(self.actors[i])
        ring.take_over(self.block(i))

    def publish(self):
        weights = np.zeros(self.job.weights.fields[0].shape, np.float32)
        self.weights.push({"weights": weights}, self.version)

    def learn(self):
        message = self.batches.take()
        if message is None:
            return False
        assert message.arrays.get("valid", np.ones(1)).any()
        assert message.version == self.version
        self.batch_versions.append(message.arrays["version"].copy())
        self.version += 1
        self.publish()
        return True

    def turn(self):
        for actor in self.actors:
            if actor is not None:
                actor.step()
        self.buffer.step()
        return self.learn()

    def updates(self, n, turns=3_000):
        """Takes turns until there are `n` more updates."""
        target = self.version + n
        for _ in range(turns):
            if self.version >= target:
                return
            self.turn()
        raise AssertionError(f"no update: waits at {self.version}")

    @property
    def produced(self):
        return sum(int(c[Count.PRODUCED]) for c in self.counts)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 200))]
)
def test_synchronous_training_goes_on_in_step_whoever_is_lost_and_when(seed):
    stage, random = Stage("walk_ppo.py"), np.random.default_rng(seed)
    for _ in range(LOSSES):
        for _ in range(int(random.integers(80))):
            stage.turn()
        before = stage.produced
        lost = [i for i in range(N_ACTORS) if random.random() < 0.5] or [0]
        for i in lost:
            stage.lose(i)
        if len(lost) < N_ACTORS:
            stage.updates(2)  # without them
        for _ in range(int(random.integers(40))):
            stage.turn()
        for i in random.permutation(lost):
            stage.replace(int(i))
            for _ in range(int(random.integers(60))):
                stage.turn()
        stage.updates(2)
        assert stage.produced >= before
    for version, versions in enumerate(stage.batch_versions):
        assert (versions == version).all()  # on-policy: nothing old, and nothing twice
    received = int(stage.buffer.counts[Count.RECEIVED])  # what was refused, too
    inboxes = stage.buffer.trajectories
    assert all(inbox.waiting <= 1 for inbox in inboxes)
    waiting = sum(i.waiting for i in inboxes) * stage.job.length * stage.job.task.env.n_envs
    assert stage.produced == received + waiting


def test_all_come_back_in_a_batch_of_which_everyone_has_a_share():
    stage = Stage("walk_ppo.py")
    stage.updates(2)
    for i in range(N_ACTORS):
        stage.lose(i)
    assert not any(stage.turn() for _ in range(50))
    stage.replace(0)
    stage.updates(2)
    stage.replace(1)
    stage.replace(2)
    stage.updates(3)
    made = []
    for _ in range(2):
        before = [int(c[Count.PUSHED]) for c in stage.counts]
        stage.updates(1)
        made.append([int(c[Count.PUSHED]) - b for c, b in zip(stage.counts, before, strict=True)])
    assert np.sum(made, 0).tolist() == [2, 2, 2]


def test_one_that_is_lost_in_its_first_rollout_after_a_resume_owes_what_the_resumed_one_owed():
    stage = Stage("walk_ppo.py")
    stage.updates(2)
    stage.counts[0][Count.PUSHED] = stage.version + 1  # by its checkpoint, a share ahead
    role_state.rejoin(stage.actors[0], stage.version)
    assert stage.counts[0][Count.PUSHED] == stage.actors[0].trajectory.sent == stage.version
    stage.lose(0)
    stage.replace(0)
    assert stage.actors[0].trajectory.sent == stage.version


@pytest.mark.parametrize("seed", range(4))
def test_an_actor_that_others_need_not_wait_for_goes_on_where_it_was(seed):
    stage, random = Stage("walk_dqn.py"), np.random.default_rng(seed)
    for _ in range(10):
        i = int(random.integers(N_ACTORS))
        for _ in range(int(random.integers(100))):
            stage.turn()
        before = stage.counts[i].copy()
        stage.lose(i)
        stage.replace(i)
        policy = stage.actors[i].policy
        assert isinstance(policy, GreedyPolicy)
        assert policy._steps == before[Count.PRODUCED]
        stage.updates(5)
        assert stage.counts[i][Count.PRODUCED] >= before[Count.PRODUCED]
    episodes = [stage.transport.inbox(f"episodes actor-0.{i}") for i in range(N_ACTORS)]
    steps = [m.arrays["steps"][: int(m.arrays["n"])] for e in episodes for m in iter(e.take, None)]
    assert all((np.diff(each) >= 0).all() for each in steps)


def test_every_life_has_seeds_of_its_own():
    job = Stage("walk_ppo.py").job
    lives = [(i, life) for i in range(N_ACTORS) for life in range(50)]
    assert len({job.seed(Kind.ACTOR, i, 0, life) for i, life in lives}) == len(lives)
    assert len({job.env_seed(i, 0, life) for i, life in lives}) == len(lives)


def test_what_was_half_written_is_never_seen_and_the_rest_arrives_once():
    stage, random = Stage("walk_ppo.py"), np.random.default_rng(0)
    name = "trajectories actor-0.0"
    inbox, sent, came = stage.transport.inbox(name), 0, []
    for _ in range(300):
        outbox = stage.transport.outbox(name)  # of a new life
        for _ in range(int(random.integers(4))):
            if (slot := outbox.slot()) is not None:
                slot["reward"].fill(sent)
                outbox.commit(sent)
                sent += 1
        if (slot := outbox.slot()) is not None:
            slot["reward"].fill(-1)  # and here it dies
        for _ in range(int(random.integers(4))):
            if (message := inbox.take()) is not None:
                came.append((message.version, message.arrays["reward"].ravel()[0]))
                inbox.free()
    came += [(m.version, m.arrays["reward"].ravel()[0]) for m in iter(inbox.take, None)]
    assert came == [(n, n) for n in range(sent)]
