"""Chunks of trajectories with the memory at their start, drawn again and again."""

from dataclasses import replace

import numpy as np
import pytest
from agents_tasks import agents_env, seen
from carrying import carried
from hypothesis import given, settings
from hypothesis import strategies as st

from tianji.core.balance import Balance
from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.core.store import keep, trajectory_schema
from tianji.stores.sequences import Sequences

T, E = 5, 3
ENV = agents_env(2, n_envs=E)
EXTRA = (Field("memory", "float32", (2, 4)),)
SCHEMA = trajectory_schema(ENV, EXTRA, T)


class Play:
    """An actor whose every row tells its environment and step, and whose memory counts steps.

    Episodes have random lengths; the row after an end only resets, as in any environment here.
    """

    def __init__(self, seed=0):
        self.random = np.random.default_rng(seed)
        self.t = np.zeros(E, int)  # rows ever made
        self.memory = np.zeros(E, int)  # rows since the episode began
        self.ended = np.zeros(E, bool)
        self.first = np.ones(E, bool)
        self.log = []  # (environment, row) -> what happened there, in order

    def obs(self):
        return np.stack([np.arange(E), self.t, self.memory], 1)

    def trajectory(self, length=T):
        rows = {name: np.array(a) for name, a in SCHEMA.empty().items()}
        for name in ("obs", "state"):
            rows[name][...] = np.nan  # what is not filled must not be seen
        rows["length"][...] = length
        self._show(rows, 0)
        for t in range(length):
            self.memory[self.first] = 0
            memory = np.broadcast_to(self.memory[:, None, None], (E, 2, 4))
            keep({"action": np.zeros((E, 2), int), "memory": memory}, rows, t)
            resets, self.t = self.ended, self.t + 1
            end = (self.random.random(E) < 0.3) & ~resets
            terminated = end & (self.random.random(E) < 0.5)
            for e in range(E):
                self.log.append((e, self.t[e] - 1, not resets[e], bool(terminated[e])))
            rows["valid"][t], rows["terminated"][t] = ~resets, terminated
            rows["truncated"][t] = end & ~terminated
            self.first, self.ended, self.memory = resets, end, self.memory + 1
            self._show(rows, t + 1)
        return rows

    def _show(self, rows, t):
        rows["first"][t] = self.first
        rows["obs"][t, :, :, :3] = self.obs()[:, None]
        rows["obs"][t, :, :, 3:] = rows["state"][t] = 0
        rows["mask"][t] = rows["alive"][t] = True


def build(batch=4, capacity=T * E * 4, seed=0):
    sampling = Sequences(batch, capacity, 0, T)
    return sampling.build(SCHEMA, 1, 0, seed), sampling.batch_schema(SCHEMA).empty()


def drawn(store, batch, times=30):
    """Every chunk that is there, once."""
    chunks = {}
    for _ in range(times):
        store.draw(batch)
        for i in range(len(batch["version"])):
            chunk = {name: array[i].copy() for name, array in batch.items()}
            chunks[int(chunk["obs"][0, 0, 0]), int(chunk["obs"][0, 0, 1])] = chunk
    return [chunks[key] for key in sorted(chunks)]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.lists(st.integers(1, T), min_size=1, max_size=12))
def test_chunks_hold_every_step_of_their_actor_once_and_nothing_else(seed, lengths):
    play = Play(seed)
    store, batch = build(batch=8, capacity=T * E * len(lengths))
    for version, length in enumerate(lengths):
        added = store.add(0, play.trajectory(length), version)
        assert added.units == T * E
    found = {}
    for chunk in drawn(store, batch, 60):
        memory, e = chunk["memory"][0, 0], int(chunk["obs"][0, 0, 0])
        assert memory == (0 if chunk["is_first"][0] else chunk["obs"][0, 0, 2])
        length = lengths[chunk["version"]]
        assert not chunk["valid"][length:].any() and np.isfinite(chunk["obs"]).all()
        for t in range(length):
            here, after = chunk["obs"][t, 0], chunk["obs"][t + 1, 0]
            assert here[0] == after[0] == e and after[1] == here[1] + 1
            valid, terminated = bool(chunk["valid"][t]), bool(chunk["terminated"][t])
            found[e, int(here[1])] = valid, terminated
            ended = chunk["terminated"][t] or chunk["truncated"][t]
            assert chunk["is_first"][t + 1] == (not valid)  # an episode begins after a reset
            assert not (ended and not valid)
    wanted = {(e, t): (valid, terminated) for e, t, valid, terminated in play.log}
    assert found == wanted


def test_the_newest_chunks_take_the_place_of_the_oldest_whoever_made_them():
    store, batch = build(capacity=T * E * 2)
    plays = [Play(1), Play(2)]
    for version, source in enumerate((0, 0, 0, 1, 0)):
        store.add(source, plays[source].trajectory(), version)
        assert store.size() == T * E * min(version + 1, 2)
    assert {int(chunk["version"]) for chunk in drawn(store, batch)} == {3, 4}


def test_a_batch_has_no_chunk_twice_where_there_are_enough():
    store, batch = build(batch=E)
    store.add(0, Play().trajectory(), 0)
    for _ in range(20):
        store.draw(batch)
        assert sorted(batch["obs"][:, 0, 0, 0]) == [0, 1, 2]
    few, batch = build(batch=2 * E)
    few.add(0, Play().trajectory(), 0)
    few.draw(batch)
    assert len(set(batch["obs"][:, 0, 0, 0])) < 2 * E


def test_ages_count_the_steps_since_and_new_means_never_drawn():
    store, batch = build(batch=E, capacity=T * E)
    play = Play(3)
    store.add(0, play.trajectory(), 7)
    store.draw(batch)
    assert (batch["age"] == 0).all() and batch["new"].all() and (batch["version"] == 7).all()
    store.draw(batch)
    assert not batch["new"].any()
    added = store.add(0, play.trajectory(), 8)
    store.draw(batch)
    assert (batch["age"] == 0).all() and batch["new"].all() and added.steps <= T * E


def test_what_was_kept_goes_on_elsewhere():
    one, batch = build()
    play = Play(5)
    for version in range(3):
        one.add(0, play.trajectory(), version)
    one.draw(batch)
    two, other = build(seed=9)
    two.restore(carried(one.state()))
    for version in range(3, 9):
        trajectory = play.trajectory()
        for store in (one, two):
            store.add(0, trajectory, version)
        for _ in range(3):
            one.draw(batch)
            two.draw(other)
            for name, array in batch.items():
                np.testing.assert_array_equal(array, other[name])


def test_a_store_of_another_size_does_not_go_on():
    one, _ = build()
    one.add(0, Play().trajectory(), 0)
    with pytest.raises(TianJiError, match=r"sequences: room for 12 chunks.*room for 6"):
        build(capacity=T * E * 2)[0].restore(carried(one.state()))


def test_clearing_says_how_much_that_was_and_a_rejoin_loses_nothing():
    store, _ = build()
    added = [store.add(0, Play(i).trajectory(), 0) for i in range(3)]
    assert store.rejoin(2) == (0, 0) and store.expire(1_000) == (0, 0)
    assert store.clear() == (sum(a.steps for a in added), 3 * T * E)
    assert not store.ready() and store.size() == 0


def test_the_balance_gives_each_row_its_share():
    sampling = Sequences(4, T * E * 4, 0, T, ratio=2.0)
    balance, store = Balance(sampling.serial_ratio, sampling.batch_units), build()[0]
    play, updates = Play(), 0
    for _ in range(40):
        balance.receive(store.add(0, play.trajectory(), 0).units)
        while balance.may_consume():
            balance.consume()
            updates += 1
    assert updates == 40 * T * E * 2 // (4 * T)


def test_its_memory_is_what_was_announced():
    sampling = Sequences(4, T * E * 4, 0, T)
    store = sampling.build(SCHEMA, 1, 0, 0)
    assert sum(a.nbytes for a in store._kept.values()) == sampling.n_bytes(SCHEMA, 1, 0)


def test_without_a_memory_there_is_no_first_either():
    schema = trajectory_schema(ENV, (), T)
    names = {f.name for f in Sequences(4, 60, 0, T).batch_schema(schema).fields}
    assert names == {f.name for f in Sequences(4, 60, 0, T).batch_schema(SCHEMA).fields} - {
        *("memory", "is_first")
    }


def test_a_trajectory_with_final_observations_keeps_them():
    schema = trajectory_schema(replace(ENV, same_step=True), EXTRA, T)
    store = Sequences(2, T * E, 0, T).build(schema, 1, 0, 0)
    trajectory = schema.empty()
    trajectory["length"][...] = T
    trajectory["final_obs"][...] = seen(ENV, np.random.default_rng(0), T, E)["obs"]
    store.add(0, trajectory, 0)
    batch = Sequences(2, T * E, 0, T).batch_schema(schema).empty()
    store.draw(batch)
    assert batch["final_obs"][0].tolist() in trajectory["final_obs"].swapaxes(0, 1).tolist()
