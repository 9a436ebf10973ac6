"""Whole trajectories, each handed out once."""

import numpy as np
import pytest
from fields import layout_of
from hypothesis import given
from hypothesis import strategies as st

from tianji.core.errors import TianJiError
from tianji.core.schema import Field
from tianji.stores.rollouts import Rollouts

T, E = 4, 2
SCHEMA = layout_of(
    Field("obs", "float32", (3,)), Field("action", "int64"), (Field("logp", "float32"),), T, E
)


def trajectory(number, length=T, valid=True):
    made = SCHEMA.empty()
    for name, array in made.items():
        array[...] = number % 2 if array.dtype == bool else number
        assert name in made
    made["length"][...] = length
    made["valid"][...] = valid
    return made


def build(batch, pool, max_lag=None, seed=0):
    sampling = Rollouts(batch, pool, T * E, max_lag)
    return sampling.build(SCHEMA, 1, 0, seed), sampling.batch_schema(SCHEMA).empty()


def numbers(batch):
    """Which trajectories a batch holds; each must be whole."""
    found = batch["logp"][:, 0, 0].astype(int).tolist()
    for i, number in enumerate(found):
        assert (batch["obs"][i] == number).all()
        assert (batch["action"][i] == number).all()
    return found


def test_each_rollout_is_handed_out_once_in_the_order_it_came():
    store, batch = build(batch=2, pool=2)
    handed = []
    for number in range(6):
        store.add(0, trajectory(number), number)
        if store.ready():
            store.draw(batch)
            handed += numbers(batch)
    assert handed == list(range(6))
    assert not store.ready()


def test_the_pool_must_be_full_before_anything_is_drawn():
    store, batch = build(batch=1, pool=3)
    store.add(0, trajectory(0), 0)
    store.add(0, trajectory(1), 0)
    assert not store.ready()
    store.add(0, trajectory(2), 0)
    assert store.ready()


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**32))
def test_a_lagging_pool_hands_out_each_rollout_at_most_once(n, k, seed):
    store, batch = build(batch=n, pool=k * n, seed=seed)
    handed = []
    for number in range(40):
        store.add(0, trajectory(number), number)
        if store.ready():
            store.draw(batch)
            assert (batch["version"] == numbers(batch)).all()
            handed += numbers(batch)
    assert len(handed) == len(set(handed))
    assert len(handed) >= 40 - k * n
    assert k > 1 or handed == sorted(handed)


def test_a_pool_of_k_batches_is_k_batches_old_on_average():
    store, batch = build(batch=2, pool=8, seed=1)
    ages = []
    for number in range(400):
        store.add(0, trajectory(number), 0)
        if store.ready():
            store.draw(batch)
            ages += batch["age"].tolist()
    assert np.mean(ages) / (T * E) == pytest.approx(7, abs=1)


def test_age_counts_the_steps_that_came_later():
    store, batch = build(batch=2, pool=2)
    store.add(0, trajectory(0), 7)
    store.add(0, trajectory(1), 8)
    store.draw(batch)
    assert batch["age"].tolist() == [T * E, 0]
    assert batch["version"].tolist() == [7, 8]
    assert batch["new"].all()


def test_what_is_older_than_the_lag_allows_is_dropped_and_counted():
    store, batch = build(batch=1, pool=2, max_lag=2)
    for version in (3, 4, 5):
        store.add(0, trajectory(version), version)
    assert store.expire(6) == (T * E, T * E)  # steps, and units of the balance
    store.draw(batch)
    assert numbers(batch)[0] in (4, 5)


def test_a_pool_of_which_too_much_is_too_old_is_not_ready():
    store, batch = build(batch=2, pool=2, max_lag=0)
    store.add(0, trajectory(1), 1)
    store.add(0, trajectory(2), 2)
    assert store.expire(2) == (T * E, T * E)
    assert not store.ready()
    store.add(0, trajectory(3), 2)
    store.draw(batch)
    assert numbers(batch) == [2, 3]


def test_without_a_limit_nothing_is_too_old():
    store, batch = build(batch=1, pool=1)
    store.add(0, trajectory(1), 0)
    store.draw(batch)


def test_rows_beyond_the_length_are_not_valid_whatever_they_held():
    store, batch = build(batch=1, pool=1)
    added = store.add(0, trajectory(1, length=3), 0)
    assert (added.steps, added.units) == (3 * E, T * E)
    store.draw(batch)
    assert batch["valid"][0].sum(1).tolist() == [E, E, E, 0]


def test_resets_do_not_count_as_steps():
    store, batch = build(batch=1, pool=1)
    made = trajectory(1)
    made["valid"][1, 0] = False
    assert store.add(0, made, 0).steps == T * E - 1
    store.draw(batch)


def test_a_store_copies_what_it_is_given():
    store, batch = build(batch=1, pool=1)
    made = trajectory(1)
    store.add(0, made, 0)
    made["obs"][...] = -5
    store.draw(batch)
    assert numbers(batch) == [1]


def test_there_is_room_for_what_the_slack_lets_come_and_no_more():
    sampling = Rollouts(batch=1, pool=1, steps=T * E)
    store = sampling.build(SCHEMA, 1, 3 * T * E, 0)
    for number in range(5):  # the pool, three ahead, and the one that is coming
        store.add(0, trajectory(number), 0)
    with pytest.raises(AssertionError):
        store.add(0, trajectory(5), 0)


def test_the_balance_of_rollouts_counts_rows():
    lagging = Rollouts(batch=2, pool=6, steps=T * E)
    assert (lagging.batch_units, lagging.warmup, lagging.serial_ratio) == (16, 32, 1.0)


def test_a_pool_smaller_than_a_batch_is_refused():
    with pytest.raises(TianJiError, match="a pool of 2 rollouts cannot give batches of 3"):
        build(batch=3, pool=2)
