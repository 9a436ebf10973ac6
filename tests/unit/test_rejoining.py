"""Roles that were saved at different moments agree again on where they stand."""

import numpy as np
import pytest
from fields import layout_of

from tianji.core.balance import Balance
from tianji.core.channel import ChannelSpec
from tianji.core.schema import Field
from tianji.roles import Buffer, role_state
from tianji.stores.rollouts import Rollouts
from tianji.transports.local import LocalTransport

TRAJECTORY = layout_of(Field("obs", "float32", (1,)), Field("action", "int64"), (), 4, 1)


def pool(n_waiting, **more):
    """A pool of three with trajectories in it, and the balance that belongs to it."""
    sampling = Rollouts(batch=1, pool=3, steps=4, **more)
    store = sampling.build(TRAJECTORY, 1, 0, seed=0)
    balance = Balance(1.0, sampling.batch_units, sampling.warmup)
    trajectory = TRAJECTORY.empty()
    trajectory["length"][...] = 4
    trajectory["valid"][...] = True
    for version in range(n_waiting):
        balance.receive(store.add(0, trajectory, version).units)
    return store, balance


def rejoined(store, balance, handed, version):
    balance.received += handed * balance.batch
    batch = Rollouts(1, 3, 4).batch_schema(TRAJECTORY)
    carrier = LocalTransport([ChannelSpec("batches", "b", ("l",), batch, depth=2)])
    buffer = Buffer("buffer-0.0", [], carrier.outbox("batches"), store, balance)
    buffer.handed = handed
    role_state.rejoin(buffer, version)
    return balance


@pytest.mark.parametrize("version", [5, 7, 8, 9, 12])
def test_what_was_received_is_what_was_consumed_and_what_waits(version):
    store, balance = pool(2)
    balance = rejoined(store, balance, handed=8, version=version)
    assert balance.received == balance.consumed + store.size()


def test_a_learner_that_was_ahead_makes_the_pool_forget_what_it_may_have_learned_from():
    store, balance = pool(2)
    rejoined(store, balance, handed=7, version=9)
    assert store.size() == 0


def test_a_learner_that_was_behind_leaves_the_pool_as_it_is():
    store, balance = pool(2)
    rejoined(store, balance, handed=9, version=7)
    assert store.size() == 2 * 4


def test_the_pool_never_overflows_after_a_resume():
    store, balance = pool(2)
    balance = rejoined(store, balance, handed=7, version=9)
    trajectory, batch = TRAJECTORY.empty(), Rollouts(1, 3, 4).batch_schema(TRAJECTORY).empty()
    trajectory["length"][...] = 4
    trajectory["valid"][...] = True
    for version in range(9, 40):
        while balance.may_produce():
            balance.receive(store.add(0, trajectory, version).units)
        while store.ready() and balance.may_consume():
            store.draw(batch)
            balance.consume()
    assert np.isclose(balance.consumed, (balance.received - balance.warmup), atol=balance.batch)
