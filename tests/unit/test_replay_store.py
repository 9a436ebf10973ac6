"""Replay against a naive list of steps."""

from dataclasses import dataclass

import numpy as np
import pytest
from carrying import carried
from fields import layout_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji.core.schema import Field
from tianji.stores.replay import Replay

GAMMA = 0.9


@dataclass
class Record:
    """One step as it really was."""

    obs: int
    action: int
    reward: float
    terminated: bool
    truncated: bool
    valid: bool
    successor: int
    version: int = -1
    born: int = -1

    @property
    def ends(self):
        return self.terminated or self.truncated


class World:
    """E environments whose observations are numbers that never come twice."""

    def __init__(self, first, n_envs, same_step, random):
        self.next_number, self.same_step, self.random = first, same_step, random
        self.obs = [self.number() for _ in range(n_envs)]
        self.over = [False] * n_envs

    def number(self):
        self.next_number += 1
        return self.next_number

    def restart(self):
        self.obs = [self.number() for _ in self.obs]
        self.over = [False for _ in self.obs]

    def step(self, e):
        """One step of environment `e`, and what an actor would write of it."""
        obs, action = self.obs[e], int(self.random.integers(5))
        if self.over[e]:  # this step only resets
            self.over[e] = False
            self.obs[e] = self.number()
            return Record(obs, action, 0.0, False, False, False, self.obs[e])
        terminated, truncated = self.random.random(2) < 0.15
        reward, successor = float(self.random.integers(-3, 4)), self.number()
        self.obs[e] = successor
        if terminated or truncated:
            self.over[e] = not self.same_step
            self.obs[e] = self.number() if self.same_step else successor
        return Record(obs, action, reward, bool(terminated), bool(truncated), True, successor)


class Oracle:
    """Keeps every step in plain lists and says which samples may be drawn."""

    def __init__(self, n_sources, n_envs, n_step, kept, silence):
        self.n_step, self.kept, self.silence, self.received = n_step, kept, silence, 0
        self.steps = [[[] for _ in range(n_envs)] for _ in range(n_sources)]  # by ring
        self.rings = list(range(n_sources))  # by source
        self.broken = set()  # rings that change hands, and whose next steps follow nothing
        self.drawn = set()

    def add(self, source, rows, version, began_anew=False):
        self.received += sum(record.valid for row in rows for record in row)
        self.change_rings(source)
        ring = self.rings[source]
        if began_anew or ring in self.broken:  # the successors of the last steps never came
            for steps in self.steps[ring]:
                if steps:
                    steps[-1].valid = False
        self.broken -= {ring}
        for row in rows:
            for e, record in enumerate(row):
                record.version, record.born = version, self.received
                self.steps[ring][e].append(record)

    def change_rings(self, source):
        """With a source that was silent, once all of the own ring is newer than all of its."""
        newest = [ring[0][-1].born if ring[0] else 0 for ring in self.steps]
        own, other = self.rings[source], newest.index(min(newest))
        kept = self.steps[own][0][-self.kept :]
        if self.received - newest[other] <= self.silence or len(kept) < self.kept or own == other:
            return
        if kept[0].born > newest[other]:
            self.rings[self.rings.index(other)], self.rings[source] = own, other
            self.broken |= {own, other}

    def samples(self):
        """Every sample by its observation."""
        found = {}
        for steps in (steps for source in self.steps for steps in source):
            for i in range(max(0, len(steps) - self.kept), len(steps)):
                if steps[i].valid:
                    found[steps[i].obs] = (steps[i], *self.look_ahead(steps, i))
        return found

    def look_ahead(self, steps, i):
        reward, j = steps[i].reward, i
        while j - i + 1 < self.n_step and not steps[j].ends:
            if j + 1 == len(steps) or not steps[j + 1].valid:
                break
            j += 1
            reward += GAMMA ** (j - i) * steps[j].reward
        return reward, GAMMA ** (j - i + 1) * (not steps[j].terminated), steps[j].successor


def layout(length, n_envs, same_step=False):
    obs, action = Field("obs", "float64", (2,)), Field("action", "int64")
    return layout_of(obs, action, (Field("logp", "float32"),), length, n_envs, same_step)


def play(world, schema, length):
    """A trajectory of `length` steps, and the records of the same steps."""
    trajectory, rows, n_envs = schema.empty(), [], len(world.obs)
    trajectory["length"][...] = length
    trajectory["obs"][0] = np.array(world.obs)[:, None]
    for t in range(length):
        row = [world.step(e) for e in range(n_envs)]
        for name in ("action", "reward", "terminated", "truncated", "valid"):
            trajectory[name][t] = [getattr(record, name) for record in row]
        trajectory["logp"][t] = [-record.obs for record in row]
        trajectory["obs"][t + 1] = np.array(world.obs)[:, None]
        if world.same_step:
            trajectory["final_obs"][t] = np.array([r.successor * r.ends for r in row])[:, None]
        rows.append(row)
    trajectory["obs"][length + 1 :] = np.nan  # what was not filled must not be looked at
    return trajectory, rows


def check_batch(batch, oracle):
    """Every drawn row is a sample of the oracle."""
    samples = oracle.samples()
    for i, obs in enumerate(batch["obs"][:, 0].astype(int).tolist()):
        assert obs in samples, "drawn, but invalid or no longer kept"
        record, reward, discount, successor = samples[obs]
        assert (batch["obs"][i] == obs).all()
        assert batch["action"][i] == record.action
        assert batch["logp"][i] == -obs
        assert batch["reward"][i] == pytest.approx(reward, abs=1e-5)
        assert batch["discount"][i] == pytest.approx(discount, abs=1e-6)
        if discount:
            assert (batch["next_obs"][i] == successor).all()
        assert batch["version"][i] == record.version
        assert batch["age"][i] == oracle.received - record.born
        assert batch["new"][i] == (obs not in oracle.drawn)
    oracle.drawn.update(batch["obs"][:, 0].astype(int).tolist())


@settings(max_examples=150)
@given(
    n_sources=st.integers(1, 3),
    n_envs=st.integers(1, 3),
    length=st.integers(1, 6),
    capacity=st.integers(1, 60),
    n_step=st.integers(1, 5),
    same_step=st.booleans(),
    restarts=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 2**32),
)
def test_every_drawn_sample_is_one_that_happened(
    n_sources, n_envs, length, capacity, n_step, same_step, restarts, seed
):
    random = np.random.default_rng(seed)
    schema = layout(length, n_envs, same_step)
    sampling = Replay(16, capacity, 0, GAMMA, n_step)
    store, batch = sampling.build(schema, n_sources, 0, seed), sampling.batch_schema(schema).empty()
    kept = sampling.steps_per_source(schema, n_sources)
    oracle = Oracle(n_sources, n_envs, n_step, kept, 2 * n_sources * length * n_envs)
    worlds = [World(10**6 * i, n_envs, same_step, random) for i in range(n_sources)]
    for version in range(25):
        source = int(random.integers(n_sources))
        if began_anew := random.random() < restarts:
            worlds[source].restart()
        trajectory, rows = play(worlds[source], schema, int(random.integers(1, length + 1)))
        added = store.add(source, trajectory, version)
        oracle.add(source, rows, version, began_anew)
        assert added.steps == added.units == sum(r.valid for row in rows for r in row)
        assert store.ready() == bool(oracle.samples())
        if store.ready():
            store.draw(batch)
            check_batch(batch, oracle)


def filled_store(n_sources=2, n_envs=2, capacity=80, n_step=1, trajectories=9):
    random = np.random.default_rng(5)
    schema, sampling = layout(7, n_envs), Replay(50, capacity, 0, GAMMA, n_step)
    store, batch = sampling.build(schema, n_sources, 0, 3), sampling.batch_schema(schema).empty()
    kept = sampling.steps_per_source(schema, n_sources)
    oracle = Oracle(n_sources, n_envs, n_step, kept, 2 * n_sources * 7 * n_envs)
    worlds = [World(10**6 * i, n_envs, False, random) for i in range(n_sources)]
    for version in range(trajectories):
        source = version % 3 % n_sources  # the first actor brings twice as much
        trajectory, rows = play(worlds[source], schema, 7)
        store.add(source, trajectory, version)
        oracle.add(source, rows, version)
    return store, batch, oracle


@pytest.mark.parametrize("trajectories", [2, 5, 30])
def test_draws_are_uniform_over_all_valid_samples(trajectories):
    store, batch, oracle = filled_store(trajectories=trajectories)
    counts = dict.fromkeys(oracle.samples(), 0)
    for _ in range(400):
        store.draw(batch)
        for obs in batch["obs"][:, 0].astype(int).tolist():
            counts[obs] += 1
    expected, freedom = 400 * 50 / len(counts), len(counts) - 1
    chi_square = sum((n - expected) ** 2 / expected for n in counts.values())
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


def test_a_sample_is_new_until_it_was_drawn():
    store, batch, oracle = filled_store()
    seen = set()
    for _ in range(20):
        store.draw(batch)
        drawn = batch["obs"][:, 0].astype(int).tolist()
        assert batch["new"].tolist() == [obs not in seen for obs in drawn]
        seen.update(drawn)
    assert not batch["new"].any()
    assert seen == set(oracle.samples())


def test_a_store_that_was_saved_keeps_nothing_longer_for_what_was_lost_since():
    (saved, _, oracle), (again, batch, _) = (filled_store(1, trajectories=n) for n in (9, 0))
    again.restore(carried(saved.state()))
    again.miss(28)
    assert saved.size() > again.size() > 0.5 * saved.size()
    world, ages = World(10**6, 2, False, np.random.default_rng(0)), set()
    expected = oracle.samples()
    for version in range(9, 15):
        for _ in range(20):
            again.draw(batch)
            ages |= set(batch["age"].tolist())
            for row, obs in enumerate(batch["obs"][:, 0].astype(int).tolist()):
                assert obs > 10**6 or expected[obs][3] == batch["next_obs"][row, 0]
        again.add(0, play(world, layout(7, 2), 7)[0], version)
    assert min(ages) == 0 and 60 < max(ages) <= 80


@pytest.mark.parametrize("missed", [1_000, 10**14])  # of which no array is made
def test_of_a_store_that_was_saved_long_ago_nothing_is_left_and_another_may_begin(missed):
    (saved, _, _), (again, _, _) = filled_store(), filled_store(trajectories=0)
    again.restore(carried(saved.state()))
    again.miss(missed)
    assert (again.size(), again.ready()) == (0, False)
    again.add(0, play(World(0, 2, False, np.random.default_rng(0)), layout(7, 2), 7)[0], 5)
    assert again.ready()


def test_the_same_seed_draws_the_same_samples():
    (one, batch, _), (two, other, _) = filled_store(), filled_store()
    for _ in range(3):
        one.draw(batch)
        two.draw(other)
        assert all((batch[name] == other[name]).all() for name in batch)


def one_env_trajectory(obs, terminated=None, truncated=None, valid=None):
    """Steps whose observations are `obs`, the last of them the successor of the last step."""
    n = len(obs) - 1
    trajectory = layout(n, 1).empty()
    trajectory["length"][...] = n
    trajectory["obs"][:, 0] = np.array(obs, float)[:, None]
    trajectory["reward"][:, 0] = 10.0 ** np.arange(n)
    trajectory["valid"][...] = True
    for name, given_ in (("terminated", terminated), ("truncated", truncated), ("valid", valid)):
        if given_ is not None:
            trajectory[name][:, 0] = given_
    return trajectory


def draw_by_obs(store, sampling, schema):
    """What is drawn, by observation: (reward, discount, next observation)."""
    batch = sampling.batch_schema(schema).empty()
    store.draw(batch)
    rows = zip(
        batch["obs"][:, 0].tolist(),
        batch["reward"].tolist(),
        batch["discount"].tolist(),
        batch["next_obs"][:, 0].tolist(),
        strict=True,
    )
    return {obs: (round(r, 3), round(d, 3), successor) for obs, r, d, successor in rows}


def small_store(n_step=1, capacity=100):
    schema, sampling = layout(4, 1), Replay(200, capacity, 0, 0.5, n_step)
    return sampling.build(schema, 1, 0, 0), sampling, schema


def test_truncation_bootstraps_and_termination_does_not():
    store, sampling, schema = small_store()
    ends = {"terminated": [0, 1, 0, 0], "truncated": [0, 0, 0, 1], "valid": [1, 1, 0, 1]}
    store.add(0, one_env_trajectory([1, 2, 3, 4, 5], **ends), 0)
    assert draw_by_obs(store, sampling, schema) == {
        1: (1.0, 0.5, 2),
        2: (10.0, 0.0, 3),
        4: (1000.0, 0.5, 5),
    }


def test_an_n_step_return_stops_at_the_end_of_an_episode_and_at_the_newest_step():
    store, sampling, schema = small_store(n_step=3)
    ends = {"truncated": [0, 1, 0, 0], "valid": [1, 1, 0, 1]}
    store.add(0, one_env_trajectory([1, 2, 3, 4, 5], **ends), 0)
    assert draw_by_obs(store, sampling, schema) == {
        1: (6.0, 0.25, 3),
        2: (10.0, 0.5, 3),
        4: (1000.0, 0.5, 5),
    }
    store.add(0, one_env_trajectory([5, 6, 7, 8, 9]), 0)
    assert draw_by_obs(store, sampling, schema)[4] == (1003.0, 0.125, 7)


def test_an_actor_that_began_anew_costs_the_step_whose_successor_is_lost():
    store, sampling, schema = small_store()
    store.add(0, one_env_trajectory([1, 2, 3, 4, 5]), 0)
    store.add(0, one_env_trajectory([21, 22, 23, 24, 25]), 0)
    assert set(draw_by_obs(store, sampling, schema)) == {1, 2, 3, 21, 22, 23, 24}


def test_a_trajectory_that_is_partly_filled_gives_only_what_is_filled():
    store, sampling, schema = small_store()
    trajectory = one_env_trajectory([1, 2, 3, 77, 88])
    trajectory["length"][...] = 2
    assert store.add(0, trajectory, 0) == (2, 2)
    assert set(draw_by_obs(store, sampling, schema)) == {1, 2}
    store.add(0, one_env_trajectory([3, 4, 5, 6, 7]), 0)
    assert set(draw_by_obs(store, sampling, schema)) == {1, 2, 3, 4, 5, 6}


def test_a_trajectory_longer_than_the_ring_leaves_its_newest_steps_and_counts_in_full():
    store, sampling, schema = small_store(capacity=2)
    assert store.add(0, one_env_trajectory([1, 2, 3, 4, 5]), 0) == (4, 4)
    assert set(draw_by_obs(store, sampling, schema)) == {3, 4}


def test_only_resets_make_nothing_ready():
    store, _, _ = small_store()
    assert not store.ready()
    store.add(0, one_env_trajectory([1, 2, 3, 4, 5], valid=[0, 0, 0, 0]), 0)
    assert not store.ready()


def test_the_bytes_that_are_foretold_are_the_bytes_that_are_taken():
    schema, sampling = layout(4, 3, same_step=True), Replay(8, 1000, 0)
    store = sampling.build(schema, 2, 0, 0)
    taken = sum(array.nbytes for array in store._by_time.values())
    assert sampling.n_bytes(schema, 2, 0) == taken


def test_serial_training_consumes_a_batch_per_update():
    assert Replay(32, 100, 0).serial_ratio == 32
    assert Replay(32, 100, 0, updates_per_step=0.25).serial_ratio == 8


def test_a_store_does_not_keep_the_arrays_it_was_given():
    store, sampling, schema = small_store()
    trajectory = one_env_trajectory([1, 2, 3, 4, 5])
    store.add(0, trajectory, 0)
    for array in trajectory.values():
        array[...] = 0
    assert set(draw_by_obs(store, sampling, schema)) == {1, 2, 3, 4}


@pytest.mark.parametrize("n_awake", [1, 3, 7])
def test_the_store_stays_as_fresh_when_some_actors_are_silent(n_awake):
    random, schema, capacity = np.random.default_rng(1), layout(4, 1), 800
    sampling = Replay(2_000, capacity, 0, GAMMA)
    store, batch = sampling.build(schema, 8, 0, 3), sampling.batch_schema(schema).empty()
    worlds = [World(10**6 * i, 1, False, random) for i in range(8)]

    def bring(sources, n):
        for i in range(n):
            source = sources[i % len(sources)]
            store.add(source, play(worlds[source], schema, 4)[0], i)
        store.draw(batch)

    bring(range(8), 400)  # twice what it keeps
    bring(range(n_awake), 4_000)
    assert batch["age"].max() <= 1.5 * capacity
    assert batch["age"].mean() <= 0.65 * capacity
    assert store.size() > 0.75 * capacity  # rows that only reset are no samples
    before = store.size()
    bring(range(8), 400)  # all are back
    assert batch["age"].max() <= 1.2 * capacity
    assert store.size() == pytest.approx(before, rel=0.1)


def test_rings_that_changed_hands_are_remembered():
    random, schema = np.random.default_rng(1), layout(4, 1)
    sampling = Replay(50, 80, 0, GAMMA)
    worlds = [World(10**6 * i, 1, False, random) for i in range(4)]
    store, other = (sampling.build(schema, 4, 0, 3) for _ in range(2))
    for i in range(200):
        source = i % 4 if i < 40 else 0
        store.add(source, play(worlds[source], schema, 4)[0], i)
    other.restore(store.state())
    trajectory, _ = play(worlds[0], schema, 4)
    batches = []
    for one in (store, other):
        one.add(0, trajectory, 200)
        batches.append(sampling.batch_schema(schema).empty())
        one.draw(batches[-1])
    assert all((batches[0][name] == batches[1][name]).all() for name in batches[0])


@pytest.mark.parametrize("missing", [(), ("cut",), ("cut", "filled_by")])
def test_no_return_runs_from_one_actor_into_another_after_a_resume(missing):
    schema, sampling = layout(4, 1), Replay(200, 24, 0, 1.0, n_step=3)
    store, resumed = (sampling.build(schema, 2, 0, 3) for _ in range(2))

    def trajectory(reward):
        made = one_env_trajectory([7] * 5)  # all observations are equal and tell nothing
        made["reward"][...] = reward
        return made

    store.add(1, trajectory(100.0), 0)
    for _ in range(13 if "filled_by" not in missing else 2):  # so long that the rings change hands
        store.add(0, trajectory(1.0), 0)
    state = {name: value for name, value in store.state().items() if name not in missing}
    resumed.restore(state)
    batch = sampling.batch_schema(schema).empty()
    for one in (store, resumed):
        one.add(1, trajectory(100.0), 0)
        one.draw(batch)
        assert set(batch["reward"].tolist()) == {1.0, 2.0, 3.0, 100.0, 200.0, 300.0}
