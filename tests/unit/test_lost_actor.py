"""An actor that has died is stood in for, so that synchronous training goes on."""

import numpy as np
import pytest
from fields import layout_of

from tianji.core.channel import ChannelSpec
from tianji.core.schema import Field
from tianji.roles.lost_actor import SurvivingInbox, VersionShares
from tianji.stores.rollouts import Rollouts
from tianji.transports import ring
from tianji.transports.local import LocalTransport

TRAJECTORY = layout_of(Field("obs", "float32", (1,)), Field("action", "int64"), (), 4, 1)


@pytest.fixture
def ends():
    """The actor's outbox and a stand-in before the buffer, which wants two per version."""
    transport = LocalTransport([ChannelSpec("t", "actor-0.0", ("buffer-0.0",), TRAJECTORY)])
    version, refused = Versions([0]), []
    version.shares = VersionShares(2, lambda: version[0], refused.append)
    version.refused, version.block = refused, transport._blocks["t"]
    stand_in = SurvivingInbox(transport.inbox("t"), TRAJECTORY, version.shares)
    return transport.outbox("t"), stand_in, version


class Versions(list):
    """The version that is collected for, and what belongs to the group beside the ends."""

    def others_have_sent(self):
        self.shares.version()
        self.shares.came += 1


def trajectory():
    filled = TRAJECTORY.empty()
    filled["length"][...] = 4
    filled["valid"][...] = True
    return filled


def lengths(inbox):
    return [int(message.arrays["length"]) for message in iter(inbox.take, None)]


def test_what_an_actor_sends_is_handed_on(ends):
    outbox, stand_in, _ = ends
    outbox.push(trajectory(), 5)
    assert stand_in.waiting == 1
    taken = stand_in.take()
    assert (taken.version, int(taken.arrays["length"])) == (5, 4)
    assert stand_in.take() is None


def test_nothing_stands_in_for_an_actor_that_is_only_slow(ends):
    _, stand_in, version = ends
    assert stand_in.take() is None
    version[0] = 1
    assert stand_in.take() is None
    assert not stand_in.closed


def test_the_share_of_one_that_has_gone_is_empty_once_per_version(ends):
    outbox, stand_in, version = ends
    outbox.close()
    assert stand_in.closed
    assert lengths(stand_in) == []  # of nothing but empty ones nobody can learn
    version.others_have_sent()
    assert lengths(stand_in) == [0, 0]
    assert stand_in.take() is None
    version[0] = 1
    assert lengths(stand_in) == []
    version.others_have_sent()
    assert lengths(stand_in) == [0, 0]


def test_one_that_is_away_is_stood_in_for_and_takes_part_again_in_step(ends):
    outbox, stand_in, version = ends
    outbox.push(trajectory(), 0)
    ring.leave(version.block)
    assert not stand_in.closed
    version.others_have_sent()
    assert lengths(stand_in) == [4, 0]
    assert ring.take_over(version.block) == 1
    outbox.push(trajectory(), 0)  # late: its share has gone out
    assert lengths(stand_in) == []
    version[0] = 1
    outbox.push(trajectory(), 1)
    assert lengths(stand_in) == [4]
    assert version.refused == [4]
    version.others_have_sent()
    assert lengths(stand_in) == []  # it is there again: nobody stands in


def test_one_that_has_closed_is_not_away(ends):
    outbox, stand_in, version = ends
    outbox.close()
    ring.leave(version.block)
    assert stand_in.closed


def test_only_what_is_missing_of_the_share_is_stood_in_for(ends):
    outbox, stand_in, version = ends
    outbox.push(trajectory(), 0)
    assert lengths(stand_in) == [4]
    outbox.close()
    assert lengths(stand_in) == [0]
    version[0] = 1
    version.others_have_sent()
    assert lengths(stand_in) == [0, 0]


def test_what_had_come_of_one_that_has_gone_is_taken_first(ends):
    outbox, stand_in, _ = ends
    outbox.push(trajectory(), 0)
    outbox.close()
    assert lengths(stand_in) == [4, 0]


def test_an_empty_trajectory_has_the_version_that_is_collected_for(ends):
    outbox, stand_in, version = ends
    outbox.close()
    version[0] = 7
    version.others_have_sent()
    assert stand_in.take().version == 7


def test_closing_tells_the_actor(ends):
    outbox, stand_in, _ = ends
    stand_in.close()
    assert outbox.abandoned


def test_a_batch_with_an_empty_trajectory_is_smaller_by_its_rows(ends):
    outbox, stand_in, version = ends
    outbox.close()
    version.others_have_sent()
    sampling = Rollouts(batch=2, pool=2, steps=4, per_version=1)
    store = sampling.build(TRAJECTORY, 2, 0, seed=0)
    store.add(0, trajectory(), 0)
    store.add(1, stand_in.take().arrays, 0)
    batch = sampling.batch_schema(TRAJECTORY).empty()
    store.draw(batch)
    assert np.count_nonzero(batch["valid"]) == 4
