"""One contract, every transport: what a channel promises, whatever carries it."""

import contextlib
import errno
import json
import os
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi_pair import MISSING, MpiPair
from wires import MemoryWorld, Pumped

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.errors import TianJiError
from tianji.core.schema import Field, Schema
from tianji.transports.cluster import ClusterTransport
from tianji.transports.local import LocalTransport
from tianji.transports.shm import ShmTransport

SCHEMA = Schema((Field("number", "int64"), Field("data", "float32", (3, 5))))
HOMES = {"source": "left", "target": "right", "other": "right"}
EVERY, LATEST = Delivery.EVERY, Delivery.LATEST


def spec(delivery=EVERY, depth=2, name="channel"):
    targets = ("target",) if delivery is EVERY else ("target", "other")
    return ChannelSpec(name, "source", targets, SCHEMA, delivery, depth)


@contextlib.contextmanager
def local(*specs):
    transport = LocalTransport(list(specs))
    yield transport, transport
    transport.close()


@contextlib.contextmanager
def shm(*specs):
    """Two ends of one memory, the second made from the first's description as a child would."""
    left = ShmTransport.create(list(specs), HOMES, home="left")
    right = ShmTransport.attach(json.loads(json.dumps(left.describe())), "right")
    yield left, right
    left.close()


class PumpedTransport:
    """A transport whose couriers, this one's and the other's, carry whenever an end is used."""

    def __init__(self, transport, pump):
        self._transport, self._pump = transport, pump

    def outbox(self, name):
        return Pumped(self._transport.outbox(name), self._pump)

    def inbox(self, name):
        return Pumped(self._transport.inbox(name), self._pump)

    def __getattr__(self, name):
        return getattr(self._transport, name)


@contextlib.contextmanager
def wire(*specs):
    """Two machines, with a wire between them that lies in this process."""
    net, ranks = {}, {"left": 0, "right": 1}
    worlds = [MemoryWorld(net, rank, ["a", "b"]) for rank in (0, 1)]
    ends = [
        ClusterTransport(world, list(specs), HOMES, ranks, home)
        for world, home in zip(worlds, ranks, strict=True)
    ]

    def pump():
        while any([end.courier.turn() for end in ends]):
            pass

    yield tuple(PumpedTransport(end, pump) for end in ends)
    for end, world in zip(ends, worlds, strict=True):
        end.courier.left[1 - world.rank] = 0  # nobody turns its courier while this one closes
        end.close()
        world.meeting.close()


TRANSPORTS = {"local": local, "shm": shm, "wire": wire}


@pytest.fixture(scope="module")
def pair(child_env):
    """Two ranks of an MPI job."""
    if MISSING:
        pytest.skip(MISSING)
    pair = MpiPair(child_env)
    yield pair
    pair.close()


SHARING = {name: TRANSPORTS[name] for name in ("local", "shm")}  # both ends see the same memory


@pytest.fixture(params=[*TRANSPORTS, "mpi"])
def connect(request):
    """Makes transports and closes them after the test; returns (sender's, receiver's)."""
    if request.param == "mpi":
        kind = request.getfixturevalue("pair").connect
    else:
        kind = TRANSPORTS[request.param]
    with contextlib.ExitStack() as stack:
        yield lambda *specs: stack.enter_context(kind(*specs))


@pytest.fixture
def channel(connect):
    """Makes (outbox, inbox)."""

    def make(delivery=EVERY, depth=2):
        left, right = connect(spec(delivery, depth))
        return left.outbox("channel"), right.inbox("channel")

    return make


def message(number):
    return {"number": np.array(number), "data": np.full((3, 5), number, np.float32)}


def number(taken):
    """What a message says, if it is whole."""
    if taken is None:
        return None
    assert (taken.arrays["data"] == taken.arrays["number"]).all()
    return int(taken.arrays["number"])


def test_who_reads_without_being_woken_finds_the_newest_and_the_end(connect):
    readers = ("target", "other")
    quiet = ChannelSpec("channel", "source", (), SCHEMA, LATEST, readers=readers)
    left, right = connect(quiet)
    outbox, inbox = left.outbox("channel"), right.inbox("channel")
    for i in range(3):
        assert outbox.push(message(i), i)
    assert number(inbox.take()) == 2 and inbox.take() is None and not inbox.closed
    outbox.push(message(3), 3)
    outbox.close()
    assert number(inbox.take()) == 3 and inbox.closed


def test_every_message_arrives_once_in_order(channel):
    outbox, inbox = channel(depth=2)
    assert [outbox.push(message(i), 10 + i) for i in range(3)] == [True, True, False]
    taken = [inbox.take() for _ in range(2)]
    assert [(t.version, t.sequence) for t in taken] == [(10, 0), (11, 1)]
    assert inbox.take() is None


def test_a_channel_goes_round_its_slots_many_times(channel):
    outbox, inbox = channel(depth=3)
    seen = []
    for i in range(100):
        assert outbox.push(message(i), i)
        seen.append(number(inbox.take()))
    assert seen == list(range(100))


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_a_channel_refuses_after_depth_messages_and_counts_it(channel, depth):
    outbox, _ = channel(depth=depth)
    assert [outbox.push(message(i), i) for i in range(depth)] == [True] * depth
    assert outbox.slot() is None
    assert not outbox.push(message(0), 0)
    assert outbox.refused == 2


def test_a_refused_push_changes_nothing(channel):
    outbox, inbox = channel(depth=1)
    outbox.push(message(1), 1)
    outbox.push(message(2), 2)
    assert number(inbox.take()) == 1
    assert inbox.take() is None


def test_a_taken_message_occupies_its_slot_until_the_next_take(channel):
    outbox, inbox = channel(depth=1)
    outbox.push(message(1), 1)
    taken = inbox.take()
    assert outbox.slot() is None
    assert number(taken) == 1
    assert inbox.take() is None
    assert outbox.slot() is not None


def test_a_freed_message_makes_room_at_once_and_only_once(channel):
    outbox, inbox = channel(depth=1)
    outbox.push(message(1), 1)
    assert number(inbox.take()) == 1
    inbox.free()
    assert outbox.push(message(2), 2)
    inbox.free()
    assert outbox.slot() is None
    assert number(inbox.take()) == 2
    assert inbox.take() is None


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_what_is_peeked_at_is_what_the_next_take_returns(transport):
    with TRANSPORTS[transport](spec()) as (left, right):
        outbox, inbox = left.outbox("channel"), right.inbox("channel")
        assert inbox.peek() is None
        outbox.push(message(1), 1)
        assert number(inbox.peek()) == number(inbox.peek()) == number(inbox.take()) == 1
        assert inbox.peek() is None
        outbox.push(message(2), 2)
        ahead = inbox.peek()
        assert (number(ahead), ahead.version, ahead.sequence) == (2, 2, 1)
        assert outbox.in_flight == 2 and outbox.slot() is None  # the first is still in use
        assert inbox.take().sequence == 1


def test_in_flight_counts_until_the_receiver_is_finished(channel):
    outbox, inbox = channel(depth=2)
    assert outbox.in_flight == 0
    outbox.push(message(1), 1)
    outbox.push(message(2), 2)
    assert (outbox.in_flight, inbox.waiting) == (2, 2)
    inbox.take()
    assert (outbox.in_flight, inbox.waiting) == (2, 1)
    inbox.take()
    assert (outbox.in_flight, inbox.waiting) == (1, 0)
    inbox.take()
    assert (outbox.in_flight, inbox.waiting) == (0, 0)


def test_a_slot_is_not_sent_before_it_is_committed(channel):
    outbox, inbox = channel()
    slot = outbox.slot()
    slot["number"][...] = 7
    assert (inbox.take(), inbox.waiting, outbox.in_flight) == (None, 0, 0)
    slot["data"][...] = 7
    outbox.commit(3)
    taken = inbox.take()
    assert (number(taken), taken.version) == (7, 3)


def test_asking_for_the_slot_again_gives_the_same_one(channel):
    outbox, _ = channel()
    first, second = outbox.slot(), outbox.slot()
    assert np.shares_memory(first["data"], second["data"])


@pytest.mark.parametrize("transport", SHARING)
def test_what_is_taken_is_the_very_memory_that_was_filled(transport):
    with SHARING[transport](spec()) as (left, right):
        outbox, inbox = left.outbox("channel"), right.inbox("channel")
        slot = outbox.slot()
        outbox.commit(0)
        taken = inbox.take()
        slot["data"][1, 2] = 42.0
        assert taken.arrays["data"][1, 2] == 42.0


def test_a_push_copies_so_that_the_senders_arrays_stay_its_own(channel):
    outbox, inbox = channel()
    mine = message(1)
    outbox.push(mine, 0)
    mine["data"][...] = -1
    assert number(inbox.take()) == 1


def test_taken_arrays_stay_whole_until_the_next_take(channel):
    outbox, inbox = channel(depth=2)
    outbox.push(message(1), 1)
    taken = inbox.take()
    outbox.push(message(2), 2)
    outbox.push(message(3), 3)
    assert number(taken) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_slots_start_on_cache_lines(transport):
    with TRANSPORTS[transport](spec()) as (left, _):
        slot = left.outbox("channel").slot()
        assert slot["number"].ctypes.data % 64 == 0
        assert slot["data"].ctypes.data % 64 == 0


def test_a_channel_is_closed_only_after_everything_was_taken(channel):
    outbox, inbox = channel()
    outbox.push(message(1), 1)
    outbox.push(message(2), 2)
    assert not inbox.closed
    outbox.close()
    assert not inbox.closed
    inbox.take()
    assert not inbox.closed
    assert number(inbox.take()) == 2
    assert inbox.closed


def test_an_empty_channel_is_closed_at_once(channel):
    outbox, inbox = channel()
    outbox.close()
    assert inbox.closed
    assert inbox.take() is None


def test_a_sender_learns_that_nobody_will_read_any_more(channel):
    outbox, inbox = channel()
    outbox.push(message(1), 1)
    assert not outbox.abandoned
    inbox.close()
    assert outbox.abandoned


def test_a_sender_that_begins_anew_goes_on_where_the_old_one_was(connect):
    left, right = connect(spec(depth=2))
    old, inbox = left.outbox("channel"), right.inbox("channel")
    old.push(message(1), 1)
    half = old.slot()
    half["number"][...] = 99
    assert left.outbox("channel").push(message(2), 2)
    assert [number(inbox.take()) for _ in range(3)] == [1, 2, None]


OPERATIONS = st.lists(st.sampled_from(["push", "push", "slot", "take", "close"]), max_size=80)


@pytest.mark.parametrize("transport", TRANSPORTS)
@given(depth=st.integers(1, 4), operations=OPERATIONS)
def test_a_ring_does_what_a_queue_would_do(transport, depth, operations):
    with TRANSPORTS[transport](spec(depth=depth)) as (left, right):
        outbox, inbox = left.outbox("channel"), right.inbox("channel")
        queue, held, sent, closed = deque(), 0, 0, False
        for operation in operations:
            if operation == "push" and not closed:
                accepted = outbox.push(message(sent), sent)
                assert accepted == (len(queue) + held < depth)
                if accepted:
                    queue.append(sent)
                    sent += 1
            elif operation == "slot":
                assert (outbox.slot() is None) == (len(queue) + held >= depth)
            elif operation == "take":
                assert number(inbox.take()) == (queue[0] if queue else None)
                held = 1 if queue else 0
                if queue:
                    queue.popleft()
            elif operation == "close":
                outbox.close()
                closed = True
            assert inbox.waiting == len(queue)
            assert outbox.in_flight == len(queue) + held
            assert inbox.closed == (closed and not queue)


def test_latest_replaces_what_was_not_read(channel):
    outbox, inbox = channel(LATEST)
    for i in range(10):
        assert outbox.push(message(i), i)
    taken = inbox.take()
    assert (number(taken), taken.version, taken.sequence) == (9, 9, 9)
    assert inbox.take() is None


def test_latest_never_refuses_and_has_nothing_in_flight(channel):
    outbox, _ = channel(LATEST, depth=1)
    assert all(outbox.push(message(i), i) for i in range(50))
    assert (outbox.refused, outbox.in_flight) == (0, 0)


def test_each_publication_is_new_once(channel):
    outbox, inbox = channel(LATEST)
    assert (inbox.waiting, inbox.take()) == (0, None)
    outbox.push(message(1), 1)
    assert inbox.waiting == 1
    inbox.take()
    assert (inbox.waiting, inbox.take()) == (0, None)


def test_many_readers_each_see_the_newest(connect):
    left, right = connect(spec(LATEST))
    outbox = left.outbox("channel")
    readers = [right.inbox("channel") for _ in range(3)]
    outbox.push(message(1), 1)
    assert number(readers[0].take()) == 1
    outbox.push(message(2), 2)
    assert [number(reader.take()) for reader in readers] == [2, 2, 2]


def test_a_late_reader_finds_what_was_published_before(connect):
    left, right = connect(spec(LATEST))
    left.outbox("channel").push(message(5), 5)
    assert number(right.inbox("channel").take()) == 5


def test_a_reader_keeps_what_it_took_while_newer_ones_are_published(channel):
    outbox, inbox = channel(LATEST)
    outbox.push(message(1), 1)
    taken = inbox.take()
    for i in range(2, 12):
        outbox.push(message(i), i)
    assert number(taken) == 1


def test_a_publication_in_the_making_is_not_seen(channel):
    outbox, inbox = channel(LATEST)
    outbox.push(message(1), 1)
    outbox.slot()["data"][...] = 99
    assert number(inbox.take()) == 1


def test_a_last_publication_can_be_read_after_the_end(channel):
    outbox, inbox = channel(LATEST)
    outbox.push(message(1), 1)
    outbox.close()
    assert inbox.closed
    assert number(inbox.take()) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
@given(st.lists(st.integers(0, 3), max_size=60))
def test_no_reader_ever_sees_an_older_one_after_a_newer_one(transport, operations):
    with TRANSPORTS[transport](spec(LATEST)) as (left, right):
        outbox, readers = left.outbox("channel"), [right.inbox("channel") for _ in range(3)]
        newest, seen = -1, [-1, -1, -1]
        for operation in operations:
            if operation == 3:
                newest += 1
                outbox.push(message(newest), newest)
                continue
            taken = number(readers[operation].take())
            assert taken == (newest if newest > seen[operation] else None)
            seen[operation] = newest


def test_channels_of_one_transport_do_not_touch_each_other(connect):
    specs = [spec(name="a"), spec(LATEST, name="b"), spec(depth=5, name="c")]
    left, right = connect(*specs)
    for i, name in enumerate("abc"):
        left.outbox(name).push(message(i), i)
    assert [number(right.inbox(name).take()) for name in "abc"] == [0, 1, 2]


def test_a_wait_for_nothing_ends(connect):
    _, right = connect(spec())
    right.arm()
    right.wait(0.001)
    right.arm()
    right.disarm()


def bell_after(left, right, action):
    """Whether a process that sleeps from before `action` is woken by it."""
    right.arm()
    action()
    return bool(right._poll.poll(0))


def test_a_message_rings_only_for_who_announced_to_sleep():
    with shm(spec()) as (left, right):
        outbox = left.outbox("channel")
        outbox.push(message(1), 1)
        assert not right._poll.poll(0)
        assert bell_after(left, right, lambda: outbox.push(message(2), 2))
        right.wait(10.0)
        assert not right._poll.poll(0)


def test_a_freed_slot_and_the_end_of_either_side_ring_too():
    with shm(spec()) as (left, right):
        outbox, inbox = left.outbox("channel"), right.inbox("channel")
        outbox.push(message(1), 1)
        inbox.take()
        assert bell_after(right, left, inbox.take)
        assert bell_after(left, right, outbox.close)
        left.wait(0.0)
        assert bell_after(right, left, inbox.close)


def test_a_publication_rings_for_its_readers():
    with shm(spec(LATEST)) as (left, right):
        outbox = left.outbox("channel")
        assert bell_after(left, right, lambda: outbox.push(message(1), 1))


def test_a_lack_of_shared_memory_says_what_to_do(monkeypatch):
    def no_space(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(TianJiError, match=r"no 0 MiB of shared memory.*use fewer actors"):
        ShmTransport.create([spec()], HOMES)
