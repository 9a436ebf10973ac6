"""Every part says all that it must remember: a restored one goes on as the first would have."""

import numpy as np
import pytest
from carrying import carried
from commands import TASKS
from fields import act, layout_of, step_of
from hypothesis import given
from hypothesis import strategies as st

from tianji import config as configs
from tianji.core.balance import Balance
from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.core.state import (
    copied,
    n_bytes,
    random_state,
    restore_random,
    restore_to,
    split,
    state_of,
)
from tianji.job import factory
from tianji.job.job import prepare
from tianji.roles.episodes import EPISODE_SCHEMA, EpisodeLog
from tianji.roles.role_specs import Kind
from tianji.roles.sample_stats import SampleStats
from tianji.stores.replay import Replay
from tianji.stores.rollouts import Rollouts

T, E, SOURCES = 5, 2, 3
LAYOUT = layout_of(
    Field("obs", "float32", (2,)), Field("action", "int64"), (Field("logp", "float32"),), T, E
)


# ------------------------------------------------------------------------------------- plain data


def test_a_state_comes_back_as_it_was_split():
    random = np.random.default_rng(3)
    state = {
        "arrays": [np.arange(6).reshape(2, 3), {"empty": np.zeros((0, 4), np.float32)}],
        "facts": {"n": 3, "x": 0.1, "text": "a/b", "nothing": None, "yes": True},
        "random": random_state(random),
    }
    back = carried(state)
    assert back["facts"] == state["facts"]
    assert back["random"] == state["random"]
    np.testing.assert_array_equal(back["arrays"][0], state["arrays"][0])
    assert back["arrays"][1]["empty"].shape == (0, 4)
    assert n_bytes(state) == state["arrays"][0].nbytes


def test_a_copy_has_memory_of_its_own():
    state = {"array": np.zeros(3)}
    copy = copied(state)
    state["array"] += 1
    assert not copy["array"].any()


def test_what_is_no_plain_data_is_named():
    with pytest.raises(TianJiError, match="state 'env/random': Generator is no plain data"):
        split({"env": {"random": np.random.default_rng()}})


@given(st.integers(0, 2**32), st.integers(0, 50))
def test_a_stream_of_random_numbers_goes_on(seed, n):
    one, two = np.random.default_rng(seed), np.random.default_rng(0)
    one.random(n, np.float32)  # an odd number leaves half a draw behind
    restore_random(two, carried({"random": random_state(one)})["random"])
    assert one.integers(1 << 60, size=9).tolist() == two.integers(1 << 60, size=9).tolist()
    assert one.random(5, np.float32).tolist() == two.random(5, np.float32).tolist()


class Whole:
    """Made of a part that cannot be saved."""

    restored = None

    def state(self):
        return None

    def restore(self, state):
        self.restored = state


class WithAnAttribute:
    """Its `state` is no method, as in gymnasium's classic environments."""

    state = (1, 2)

    def restore(self, state):
        raise AssertionError("never called")


def test_what_cannot_be_saved_is_skipped():
    assert state_of(object()) is None
    assert state_of(Whole()) is None
    assert state_of(WithAnAttribute()) is None
    whole = Whole()
    assert not restore_to(whole, None) and whole.restored is None
    assert not restore_to(object(), {"a": 1})
    assert restore_to(whole, {"a": 1}) and whole.restored == {"a": 1}


# ----------------------------------------------------------------------------------------- stores


def trajectory(random):
    """Any trajectory, whole or in part."""
    made = LAYOUT.empty()
    for array in made.values():
        array[...] = random.integers(0, 2 if array.dtype == bool else 1000, array.shape)
    made["length"][...] = random.integers(1, T + 1)
    made["valid"][0] = True
    return made


class Driver:
    """Adds to a store and draws from it, as its own stream of random numbers says."""

    def __init__(self, sampling, store, seed):
        self.store, self.version = store, 0
        self.random = np.random.default_rng(seed)
        self.batch = sampling.batch_schema(LAYOUT).empty()

    def go(self, n):
        """What the store answered in `n` rounds."""
        answers = []
        for _ in range(n):
            if self.store.ready():
                answers.append(self.drawn())
            self.version += 1
            source, made = int(self.random.integers(SOURCES)), trajectory(self.random)
            answers.append(self.store.add(source, made, self.version))
            answers.append(self.store.expire(self.version + 1))
            answers += [self.store.size(), self.store.ready()]
            while self.store.ready() and len(answers) % 97:
                answers.append(self.drawn())
                if len(answers) % 5 == 0 and "next_obs" in self.batch:
                    break
        return answers

    def drawn(self):
        self.store.draw(self.batch)
        return {name: array.copy() for name, array in self.batch.items()}

    def follow(self, other):
        """Goes to the place where another driver is."""
        self.version = other.version
        restore_random(self.random, random_state(other.random))
        return self


def same(one, two):
    """Whether two lists of answers are equal to the last bit."""
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        if isinstance(a, dict):
            assert a.keys() == b.keys()
            assert all(np.asarray(a[n]).tobytes() == np.asarray(b[n]).tobytes() for n in a)
        else:
            assert a == b
    return True


SAMPLINGS = {
    "replay": Replay(8, 60, 0, 0.9),
    "replay of n steps": Replay(8, 200, 0, 0.9, n_step=3),
    "rollouts": Rollouts(2, 2, T * E),
    "a pool of rollouts": Rollouts(2, 6, T * E),
    "rollouts that expire": Rollouts(3, 3, T * E, max_lag=2),
}


def store_of(sampling, seed):
    return sampling.build(LAYOUT, SOURCES, 2 * T * E, seed)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("rounds", [0, 1, 7, 60])
def test_a_restored_store_draws_what_the_first_would_have(sampling, rounds):
    store, other = store_of(sampling, 1), store_of(sampling, 2)
    driver = Driver(sampling, store, 3)
    driver.go(rounds)
    twin = Driver(sampling, other, 4)
    twin.go(25)  # what it held before must not shine through
    other.restore(carried(store.state()))
    twin.follow(driver)
    assert same(driver.go(80), twin.go(80))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_cleared_store_says_what_it_dropped_and_begins_again(sampling):
    store = store_of(sampling, 1)
    driver = Driver(sampling, store, 3)
    driver.go(20)
    store.add(0, trajectory(driver.random), driver.version)
    size = store.size()
    dropped = store.clear()
    assert dropped.units == size > 0 and 0 < dropped.steps <= size
    assert (store.size(), store.ready(), store.clear()) == (0, False, (0, 0))
    for answer in driver.go(40):
        assert not isinstance(answer, dict) or (answer["version"] > 20).all(), "drawn from before"


def test_the_samples_in_a_state_are_views_of_what_was_written_so_far():
    store = store_of(Replay(8, 6000, 0), 1)
    Driver(Replay(8, 6000, 0), store, 3).go(3)
    rows = store.state()["rows"]
    assert all(np.shares_memory(rows[name], store._by_time[name]) for name in rows)
    assert n_bytes(store.state()) < Replay(8, 6000, 0).n_bytes(LAYOUT, SOURCES, 0) / 20


def test_a_store_of_another_size_is_refused():
    saved = carried(store_of(Replay(8, 60, 0), 1).state())
    with pytest.raises(TianJiError, match="10 steps per actor were saved, and this store keeps 20"):
        store_of(Replay(8, 120, 0), 1).restore(saved)
    with pytest.raises(TianJiError, match=r"field 'obs': want .*got .*\(saved replay\)"):
        Replay(8, 40, 0).build(LAYOUT, 2, 0, 1).restore(saved)
    pool = store_of(Rollouts(6, 6, T * E), 1)
    for _ in range(6):
        pool.add(0, trajectory(np.random.default_rng(0)), 0)
    with pytest.raises(TianJiError, match="6 were saved, and this pool has room for 4"):
        store_of(Rollouts(1, 1, T * E), 1).restore(carried(pool.state()))
    wider = layout_of(Field("obs", "float32", (3,)), Field("action", "int64"), (), T, E)
    with pytest.raises(TianJiError, match=r"field 'obs': .*saved rollouts"):
        Rollouts(6, 6, T * E).build(wider, 1, 0, 1).restore(carried(pool.state()))


# --------------------------------------------------------------------------- balance and counting


def test_a_balance_owes_what_it_owed():
    one, two = Balance(2.0, 8, 4, 16), Balance(2.0, 8, 4, 16)
    one.receive(30)
    one.consume()
    one.forget(3)
    two.restore(carried(one.state()))
    for n in range(20):
        assert (one.may_consume(), one.may_produce(n)) == (two.may_consume(), two.may_produce(n))
        for balance in (one, two):
            balance.consume() if balance.may_consume() else balance.receive(n)
    assert (one.received, one.consumed) == (two.received, two.consumed)


class Wire:
    """An outbox that keeps what was sent, or refuses."""

    def __init__(self):
        self.sent, self.full = [], False

    def slot(self):
        if self.full:
            return None
        self.arrays = EPISODE_SCHEMA.empty()
        return self.arrays

    def commit(self, version):
        n = int(self.arrays["n"])
        fields = ("returned", "length", "ended_at", "steps", "version")
        self.sent += zip(*(self.arrays[name][:n].tolist() for name in fields), strict=True)


def some_step(random):
    ends = random.random((2, E)) < 0.1
    reward = random.standard_normal(E).astype(np.float32)
    return step_of(np.zeros((E, 1)), reward, ends[0], ends[1], random.random(E) < 0.9)


def test_a_log_goes_on_with_its_episodes_and_loses_none_that_waits():
    wires, random = (Wire(), Wire()), np.random.default_rng(1)
    one, two = (EpisodeLog(E, wire, lambda: 7.5) for wire in wires)
    wires[0].full = True
    for _ in range(50):
        one.add(some_step(random))
    one.push()
    two.restore(carried(one.state()))
    wires[0].full = False
    for _ in range(50):
        step = some_step(random)
        assert one.add(step, 3) == two.add(step, 3)
    one.push()
    two.push()
    assert wires[0].sent == wires[1].sent and len(wires[0].sent) > 10


def test_a_log_that_begins_anew_keeps_only_what_had_ended():
    wire, no, yes = Wire(), np.zeros(E, bool), np.ones(E, bool)
    log = EpisodeLog(E, wire, lambda: 0.0)
    one_each = np.ones(E, np.float32)
    log.add(step_of(np.zeros((E, 1)), one_each, yes, no, yes))
    log.add(step_of(np.zeros((E, 1)), one_each, no, no, yes))
    log.begin_anew()
    log.add(step_of(np.zeros((E, 1)), one_each, no, yes, yes))
    log.push()
    steps = [E] * E + [3 * E] * E  # also those of episodes that were given up
    assert wire.sent == [(1.0, 1, 0.0, made, 0) for made in steps]


def test_a_log_reads_what_an_older_checkpoint_said_of_it():
    wire = Wire()
    log = EpisodeLog(E, wire, lambda: 0.0)
    older = {"returned": np.ones(E), "steps": np.full(E, 4), "pending": [[2.5, 9, 1.5]]}
    log.restore(carried(older))
    log.push()
    assert wire.sent == [(2.5, 9, 1.5, 0, 0)]


def test_what_was_measured_of_the_samples_goes_on():
    counts = np.zeros((2, len(Count)))
    one, two = (SampleStats(vector, ("loss",), lambda: 1.0) for vector in counts)
    random = np.random.default_rng(0)

    def batch():
        return {
            "version": random.integers(0, 90, 16),
            "age": random.integers(0, 9000, 16),
            "new": random.random(16) < 0.4,
        }

    for version in range(90, 99):
        one.add(batch(), version, {"loss": 0.1 * version})
    two.restore(carried(one.state()))
    counts[1] = counts[0]  # the role restores its counters itself
    for version in range(99, 109):
        made = batch()
        one.add(made, version, {"loss": 0.2})
        two.add(made, version, {"loss": 0.2})
    assert same([one.report()], [two.report()])


# ------------------------------------------------------------------------------ both halves at once


class Pieces:
    """The parts of a run in one loop, as in `tianji.job.serial`."""

    def __init__(self, job, seed=None):
        def seed_of(kind):
            return job.seed(kind) if seed is None else seed

        self.job = job
        self.env = factory.make_env(job.config)
        self.policy = job.algorithm.policy(job.task, 0, seed_of(Kind.ACTOR))
        self.algorithm = job.algorithm(job.task, seed_of(Kind.LEARNER))
        self.store = job.sampling.build(job.trajectory, 1, 0, seed_of(Kind.BUFFER))
        self.balance = Balance(job.ratio, job.sampling.batch_units, job.sampling.warmup)
        self.trajectory = job.trajectory.empty()
        self.batch = job.sampling.batch_schema(job.trajectory).empty()
        self.version, self.scalars = 0, []

    def begin(self):
        self.trajectory["obs"][0] = self.env.reset(self.job.env_seed(0))["obs"]
        self.policy.load(self.algorithm.weights(), 0)
        return self

    def go(self, n):
        for _ in range(n):
            self.produce()
            while self.store.ready() and self.balance.may_consume():
                self.store.draw(self.batch)
                self.scalars.append(self.algorithm.learn(self.algorithm.stage(self.batch)))
                self.balance.consume()
                self.version += 1
            self.policy.load(self.algorithm.weights(), self.version)
        return self

    def produce(self):
        rows, length = self.trajectory, self.job.length
        for t in range(length):
            decision = act(self.policy, rows["obs"][t])
            step = self.env.step(decision["action"])
            for name, array in decision.items():
                rows[name][t] = array
            step.write(rows, t)
        rows["length"][...] = length
        self.balance.receive(self.store.add(0, rows, self.version).units)
        rows["obs"][0] = rows["obs"][length]

    PARTS = ("env", "policy", "algorithm", "store", "balance")

    def state(self):
        parts = {name: state_of(getattr(self, name)) for name in self.PARTS}
        return {**parts, "version": self.version, "obs": self.trajectory["obs"][0]}

    def restore(self, state):
        for name in self.PARTS:
            assert restore_to(getattr(self, name), state[name])
        self.version = state["version"]
        self.trajectory["obs"][0] = state["obs"]
        return self


@pytest.mark.parametrize("moment", [0, 1, 20, 41])
@pytest.mark.parametrize("name", ["walk_dqn", "walk_ppo"])
def test_training_that_was_carried_over_is_training_that_went_on(name, moment):
    config = configs.load(TASKS / f"{name}.py", ("parallel_parameters.actor_cfg.num=1",))
    env = factory.make_env(config)
    job = prepare(config, env.spec)
    one = Pieces(job).begin().go(moment)
    two = Pieces(job, seed=99).restore(carried(one.state()))
    one.scalars.clear()
    assert one.go(40).version == two.go(40).version > 5
    assert one.scalars == two.scalars
    assert same([split(one.state())[0]], [split(two.state())[0]])
    assert split(one.state())[1] == split(two.state())[1]
