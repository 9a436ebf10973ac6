"""Learners and buffers that are lost at any moment and replaced, while their actors go on."""

import math

import numpy as np
import pytest
from carrying import carried
from commands import TASKS
from fields import layout_of

from tianji.config import load
from tianji.core.balance import Balance
from tianji.core.channel import ChannelSpec, Message, empty_handed, number_of
from tianji.core.counts import Count
from tianji.core.schema import Field
from tianji.engines.accounts import missing_steps
from tianji.engines.live_counts import counts_channels, live_counts
from tianji.engines.replacement import Replacement
from tianji.engines.worker_loop import ProcessPorts, shared_channels
from tianji.job import factory
from tianji.job.job import prepare
from tianji.roles import lost_learner, role_state
from tianji.roles.buffer import Buffer
from tianji.roles.fusion import Fusion, parameters_schema
from tianji.roles.role_specs import homes_of, roles_of
from tianji.roles.saving import newest_part
from tianji.stores.prioritised import Prioritised
from tianji.stores.rollouts import Rollouts
from tianji.transports import ring
from tianji.transports.local import LocalTransport
from tianji.transports.shm import ShmTransport

SMALL = ("actor_cfg.num=2", "exp.train_steps=10000000")
PPO = ("hyp.step_len=8", "hyp.minibatch=64", "hyp.update_step=1")
ASYNC = (*PPO, "hyp.mode=async")
APART = ("buffer_cfg.cores=1",)


class Stage:
    """All roles of a run, in shared memory; who is lost loses what it had between two steps."""

    def __init__(self, folder, task, *overrides):
        config = load(TASKS / task, (*SMALL, *overrides))
        self.folder, self.job = folder, prepare(config, factory.make_env(config).spec)
        homes = homes_of(config)
        specs = shared_channels(self.job) + counts_channels(self.job)
        self.shared = ShmTransport.create(specs, homes)
        self.homes = {}
        for role in roles_of(config):
            self.homes.setdefault(role.home, []).append(role)
        self.learned, self.sent = [], 0  # the numbers of trajectories
        self.versions, self.seen = [], {}
        self.processes = {home: self.begin(home) for home in self.homes}
        ports = ProcessPorts("launcher", self.job, self.shared)
        self.weights = ports.inbox("weights 0")

    def counts(self, name):
        return live_counts(self.shared, name)

    def begin(self, home, again=False):
        ports = ProcessPorts(home, self.job, self.shared)
        mine, replacement = self.homes[home], Replacement(self.job, self.shared, self.folder)
        if again:
            replacement.make_way(mine)
        roles = [factory.build(r, self.job, ports, counts=self.counts(r.name)) for r in mine]
        if again:
            replacement.take_over(roles)
        for role, outbox in [(role, ports.outbox(f"report {role.name}")) for role in roles]:
            role.reported = outbox
            self.mark(role)
        return roles

    def mark(self, role):
        """Gives each trajectory a number, by which it is known when it is learned from."""
        if role.name.startswith("actor"):
            push = role.trajectory.send

            def numbered():
                self.sent += 1
                role.trajectory._rows["reward"].fill(self.sent)
                return push()

            role.trajectory.send = numbered
        elif role.name.startswith("learner"):
            prepare = role.algorithm.stage

            def noted(batch):
                self.learned.append(np.unique(batch["reward"][batch["reward"] > 0]))
                self.versions.append((role.version, batch["version"].copy()))
                return prepare(batch)

            role.algorithm.stage = noted

    def turn(self):
        for roles in self.processes.values():
            for role in roles:
                role.step()
                role.reported.push(role.report(), 0)
        if (message := self.weights.take()) is not None:
            assert message.version >= self.seen.get("version", 0)  # actors never see it fall
            self.seen["version"] = message.version
        for name in ("received", "consumed", "produced"):
            total = self.total(Count[name.upper()])
            assert total >= self.seen.get(name, 0), name
            self.seen[name] = total

    def total(self, count):
        return sum(self.counts(role.name)[count] for roles in self.homes.values() for role in roles)

    @property
    def version(self):
        return int(self.counts("learner-0.0")[Count.VERSION])

    def updates(self, n, turns=4_000):
        target, before = len(self.learned) + n, self.version
        for _ in range(turns):
            if len(self.learned) >= target:
                assert self.version > before
                return
            self.turn()
        raise AssertionError(f"no update: waits at {self.version}")


@pytest.fixture
def stage(tmp_path):
    made = []

    def make(*words):
        made.append(Stage(tmp_path, *words))
        return made[-1]

    yield make
    for each in made:
        each.processes = {}


CASES = [
    ("walk_ppo.py", PPO, ("learner-0.0",)),
    ("walk_ppo.py", ASYNC, ("learner-0.0",)),
    ("walk_dqn.py", (), ("learner-0.0",)),
    ("walk_ppo.py", PPO + APART, ("learner-0.0", "buffer-0.0")),
    ("walk_ppo.py", ASYNC + APART, ("learner-0.0", "buffer-0.0")),
    ("walk_dqn.py", APART, ("learner-0.0", "buffer-0.0")),
]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 15))]
)
@pytest.mark.parametrize(("task", "options", "homes"), CASES)
def test_training_goes_on_whoever_is_lost_and_when(stage, task, options, homes, seed):
    stage, random = stage(task, *options), np.random.default_rng(seed)
    stage.updates(3)
    for _ in range(8):
        for _ in range(int(random.integers(60))):
            stage.turn()
        lost = [home for home in homes if random.random() < 0.7] or [homes[0]]
        for home in lost:
            stage.processes[home] = []
        for _ in range(int(random.integers(30))):
            stage.turn()
        for home in lost:
            stage.processes[home] = stage.begin(home, again=True)
            for _ in range(int(random.integers(30))):
                stage.turn()
        stage.updates(3)
    assert all((versions <= version).all() for version, versions in stage.versions)
    for roles in stage.processes.values():
        for inbox in (i for role in roles if isinstance(role, Buffer) for i in role.trajectories):
            inbox.free()  # as at the end
    assert missing_steps(stage.job, stage.shared) == 0
    ratio = stage.total(Count.CONSUMED) / stage.total(Count.RECEIVED)
    assert ratio <= stage.job.ratio
    if stage.job.sampling.once:
        nothing_twice_and_all_counted(stage)


def nothing_twice_and_all_counted(stage):
    everything = np.concatenate(stage.learned)
    assert len(np.unique(everything)) == len(everything)
    per_version = stage.job.sampling.per_version
    if per_version is not None:
        assert all((versions == version).all() for version, versions in stage.versions)
    steps = stage.job.length * stage.job.task.env.n_envs
    [buffer] = [r for roles in stage.processes.values() for r in roles if isinstance(r, Buffer)]
    pools = buffer.store.size() // steps
    ahead = (buffer.handed - stage.version) * stage.job.sampling.batch
    waiting = sum(inbox.waiting for inbox in buffer.trajectories)
    missing = stage.sent - len(everything) - waiting - pools - ahead
    dropped = int(stage.counts("buffer-0.0")[Count.DROPPED])
    assert 0.6 * missing * steps <= dropped <= missing * steps  # some of their steps were not valid


class Killed(Exception):
    """In the place of a signal."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_batch_is_counted_twice_whenever_a_learner_is_lost_while_it_counts(stage, moment):
    stage = stage("walk_ppo.py", *ASYNC, *APART)
    stage.updates(3)
    [learner] = stage.processes["learner-0.0"]
    add = learner.consumption.add

    def cut_short(*given):
        if moment == "after":
            add(*given)
        raise Killed

    learner.consumption.add = cut_short
    with pytest.raises(Killed):
        stage.updates(2)
    stage.processes["learner-0.0"] = stage.begin("learner-0.0", again=True)
    stage.updates(3)
    nothing_twice_and_all_counted(stage)
    assert len(stage.learned) == stage.version
    assert 0 < stage.total(Count.CONSUMED) <= stage.total(Count.RECEIVED)


def test_a_learner_goes_on_at_its_version_with_the_weights_that_it_published_last(stage):
    stage = stage("walk_dqn.py")
    stage.updates(40)
    [learner, _] = stage.processes["learner-0.0"]
    weights, version = learner.algorithm.weights().copy(), learner.version
    said = {name: array.copy() for name, array in learner.consumption.report().items()}
    [again, buffer] = stage.begin("learner-0.0", again=True)
    np.testing.assert_array_equal(again.algorithm.weights(), weights)
    assert (again.version, again.algorithm.state()["updates"]) == (version, version)
    assert said["staleness"].any() and said["scalars"].any()
    for name in ("staleness", "scalars"):
        np.testing.assert_array_equal(again.consumption.report()[name], said[name])
    assert buffer.store.size() == 0 and buffer.received > 0
    assert not buffer.balance.may_consume()
    buffer.balance.receive(buffer.balance.warmup)
    assert not buffer.balance.may_consume()  # nothing is owed for what was lost: no burst
    buffer.balance.receive(int(buffer.balance.batch / buffer.balance.ratio) + 1)
    assert buffer.balance.may_consume()


class Algorithm:
    def __init__(self):
        self.vector, self.moments, self.n_updates = np.zeros(2, np.float32), 0.0, 0

    def state(self):
        return {"vector": self.vector, "moments": self.moments, "updates": self.n_updates}

    def restore(self, state):
        self.vector, self.moments = state["vector"].copy(), state["moments"]
        self.n_updates = state["updates"]

    def load(self, weights):
        self.vector = weights.copy()


class Learner:
    """What `take_over` needs of one."""

    def __init__(self, version):
        self.name, self.algorithm = "learner-0.0", Algorithm()
        self.counts = np.zeros(len(Count))
        self.counts[Count.VERSION] = version


def taken_over(version, saved=None, published=None, value=5.0):
    learner = Learner(version)
    if saved is not None:
        state = {"vector": np.full(2, 3, np.float32), "moments": 7.0, "updates": 4 * saved}
        saved = {"version": saved, "algorithm": state}
    if published is not None:
        published = Message({"weights": np.full(2, value, np.float32)}, published, 0)
    lost_learner.take_over(learner, saved, published, None)
    algorithm = learner.algorithm
    return learner.version, float(algorithm.vector[0]), algorithm.moments, algorithm.n_updates


def test_what_is_newer_counts_the_checkpoint_or_the_weights():
    assert taken_over(9) == (9, 0.0, 0.0, 9)
    assert taken_over(9, saved=6) == (9, 3.0, 7.0, 27)
    assert taken_over(9, saved=6, published=8) == (9, 5.0, 7.0, 27)
    assert taken_over(9, saved=8, published=8) == (9, 3.0, 7.0, 33)
    assert taken_over(9, published=8) == (9, 5.0, 0.0, 9)
    assert taken_over(9, saved=6, published=8, value=np.nan) == (9, 3.0, 7.0, 27)


TRAJECTORY = layout_of(Field("obs", "float32", (1,)), Field("action", "int64"), (), 4, 1)


def ends(depth=3):
    transport = LocalTransport([ChannelSpec("t", "a", ("b",), TRAJECTORY, depth=depth)])
    spec = ChannelSpec("t", "a", ("b",), TRAJECTORY, depth=depth)
    return transport, spec, transport._blocks["t"], transport.outbox("t")


def send(outbox, *versions):
    return [outbox.push(TRAJECTORY.empty(), version) for version in versions]


def versions(transport):
    return [message.version for message in iter(transport.inbox("t").take, None)]


def test_what_a_lost_receiver_had_taken_is_not_taken_again():
    transport, _, block, outbox = ends()
    send(outbox, 0, 1, 2)
    inbox = transport.inbox("t")
    inbox.take()
    inbox.take()  # it holds this one
    assert send(outbox, 3, 4) == [True, False]
    assert ring.skip_taken(block) == 2
    assert send(outbox, 4) == [True]
    assert versions(transport) == [2, 3, 4]


def test_a_batch_is_taken_again_unless_it_was_learned_from():
    for learned, left in ((4, [4, 5, empty_handed(6)]), (5, [5, empty_handed(6)]), (7, [])):
        transport, spec, block, outbox = ends()
        send(outbox, 4, 5, empty_handed(6))
        transport.inbox("t").take()
        ring.skip_before(spec, block, learned)
        assert versions(transport) == left


def test_the_last_message_is_known_whether_it_was_read_or_not():
    transport, spec, block, outbox = ends()
    assert ring.last_sent(spec, block) is None
    send(outbox, 4, empty_handed(5))
    assert number_of(ring.last_sent(spec, block).version) == 5
    versions(transport)
    assert ring.last_sent(spec, block).sequence == 1


def test_priorities_of_what_a_lost_buffer_had_are_too_late():
    store = Prioritised(4, 8, 4).build(TRAJECTORY, 1, 0, seed=0)
    buffer = Buffer("b", [], None, store, Balance(1.0, 4))
    buffer.since = 5
    rows = {"row": np.zeros(3, np.int64), "generation": np.zeros(3, np.int64)}
    rows["priority"] = np.ones(3, np.float32)
    messages = [Message(rows, 4, 0)]

    class Feedback:
        def take(self):
            return messages.pop() if messages else None

    buffer._reweigh(Feedback())
    assert buffer.counts[Count.LATE_PRIORITIES] == 3


def test_a_group_waits_for_the_mean_of_what_its_lost_learner_sent():
    layout = parameters_schema(2)
    specs = [ChannelSpec("p", "l", ("r",), layout, depth=1)]
    specs.append(ChannelSpec("m", "r", ("l",), layout, delivery=ring.Delivery.LATEST))
    transport = LocalTransport(specs)

    def fusion():
        return Fusion(transport.outbox("p"), transport.inbox("m"), 2, interval=5)

    def again(n):
        made = fusion()
        made.take_over(ring.last_sent(specs[0], transport._blocks["p"]), n)
        return made

    assert again(0).state()["waiting"] is False  # nothing was sent
    fusion().offer(lambda: np.full(2, 3.0, np.float32), 5)
    waits = again(0)
    assert waits.state()["waiting"] and waits.state()["due"] == 10
    transport.inbox("p").take()
    transport.outbox("m").push({"parameters": np.full(2, 4.0, np.float32)}, 1)
    assert waits.correction().tolist() == [1.0, 1.0]
    later = again(1)  # it cannot know whether the lost one has taken that
    assert (later.correction(), later.n_fusions) == (None, 1)


def test_a_buffer_begins_with_the_samples_of_its_checkpoint_and_owes_nothing(stage):
    stage = stage("walk_dqn.py")
    stage.updates(40)
    [_, buffer] = stage.processes["learner-0.0"]
    saved, size = carried(role_state.state(buffer)), buffer.store.size()
    stage.updates(10)
    missed = int(stage.counts("buffer-0.0")[Count.RECEIVED]) - saved["received"]
    stage.processes["learner-0.0"] = stage.begin("learner-0.0", again=True)
    [learner, again] = stage.processes["learner-0.0"]
    lost_learner.take_over_buffer(again, learner.version, stage.job.sampling, saved)
    assert again.store.size() == size
    batch = stage.job.sampling.batch_schema(stage.job.trajectory).empty()
    again.store.draw(batch)
    assert batch["age"].min() >= missed > 0
    balance = again.balance
    assert not balance.may_consume()
    balance.receive(math.ceil(balance.batch / balance.ratio))
    assert balance.may_consume()
    balance.consume()
    assert not balance.may_consume()
    again.step()


def test_nothing_is_restored_of_a_run_that_had_saved_nothing(tmp_path):
    assert newest_part(tmp_path, "learner-0.0") is None


def test_a_pool_that_is_lost_counts_as_dropped():
    sampling = Rollouts(batch=1, pool=3, steps=4)
    store = sampling.build(TRAJECTORY, 1, 0, seed=0)
    buffer = Buffer("b", [], None, store, Balance(1.0, 4, sampling.warmup))
    buffer.counts[Count.UNITS_RECEIVED] = buffer.counts[Count.RECEIVED] = 40
    for _ in range(4):  # whoever is lost before anything has come loses nothing more
        lost_learner.take_over_buffer(buffer, 7, sampling)
        assert buffer.counts[Count.DROPPED] == 40 - 7 * 4
        assert buffer.counts[Count.UNITS_RECEIVED] == 7 * 4
    assert (buffer.handed, buffer.received, buffer.balance.consumed) == (7, 40, 28)
    assert buffer.given_up is None
