"""A batch for several learners: equal parts, and all of them or none."""

import numpy as np
import pytest

from tianji.core.channel import ChannelSpec
from tianji.core.errors import TianJiError
from tianji.core.schema import Field, Schema
from tianji.roles.shards import Shards, shard_schema
from tianji.transports.local import LocalTransport

BATCH = Schema((Field("x", "float32", (2,)), Field("version", "int64"))).stacked(6)


class Stage:
    def __init__(self, n=3, depth=1):
        layout, names = shard_schema(BATCH, n), [f"batches {i}" for i in range(n)]
        specs = [ChannelSpec(name, "buffer", (name,), layout, depth=depth) for name in names]
        transport = LocalTransport(specs)
        self.shards = Shards([transport.outbox(name) for name in names], BATCH)
        self.inboxes = [transport.inbox(name) for name in names]

    def push(self, start=0):
        batch = BATCH.empty()
        batch["x"][...] = np.arange(start, start + 12).reshape(6, 2)
        batch["version"][...] = range(start, start + 6)
        return self.shards.push(batch, 9)


def test_each_learner_gets_its_part_of_the_rows():
    stage = Stage()
    assert stage.push()
    messages = [inbox.take() for inbox in stage.inboxes]
    assert [m.arrays["version"].tolist() for m in messages] == [[0, 1], [2, 3], [4, 5]]
    assert messages[2].arrays["x"].tolist() == [[8, 9], [10, 11]]
    assert {m.version for m in messages} == {9}


def test_all_get_a_batch_or_none_does():
    stage = Stage()
    stage.push()
    for inbox in stage.inboxes[:2]:
        inbox.take()
        inbox.take()  # two learners are ready for more, the third is not
    assert stage.push(100) is False
    assert [inbox.take() for inbox in stage.inboxes[:2]] == [None, None]
    assert (stage.shards.refused, stage.shards.in_flight) == (1, 1)
    stage.inboxes[2].take()
    stage.inboxes[2].take()
    assert stage.shards.in_flight == 0
    assert stage.push(100)
    assert [inbox.take().arrays["version"][0] for inbox in stage.inboxes] == [100, 102, 104]


def test_it_ends_for_all_of_them_and_is_abandoned_by_any():
    stage = Stage()
    assert not stage.shards.abandoned
    stage.inboxes[1].close()
    assert stage.shards.abandoned
    stage.shards.close()
    assert all(inbox.closed for inbox in stage.inboxes)


def test_parts_of_unequal_size_are_refused():
    with pytest.raises(TianJiError, match="4 learners cannot get equal parts"):
        shard_schema(BATCH, 4)
