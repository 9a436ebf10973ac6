"""What crosses from one machine to another: every message once, publications once per machine."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wires import MemoryWire

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.errors import TianJiError
from tianji.core.schema import Field, Schema
from tianji.transports import ring
from tianji.transports.bell import Silence
from tianji.transports.courier import BEAT_SECONDS, Courier
from tianji.transports.local import aligned
from tianji.transports.routes import Beside, EveryIn, EveryOut, LatestIn, LatestOut
from tianji.transports.wire import Event, Happening, Note, Word

SCHEMA = Schema((Field("number", "int64"), Field("data", "float32", (3,))))
SENT, RECEIVED, NOTED = Happening.SENT, Happening.RECEIVED, Happening.NOTED


class Bell:
    rings = 0

    def ring(self):
        self.rings += 1


def spec(delivery=Delivery.EVERY, depth=2):
    return ChannelSpec("channel", "source", ("target",), SCHEMA, delivery, depth)


def message(number):
    return {"number": np.array(number), "data": np.full(3, number, np.float32)}


def number(taken):
    """What a message says, if it is whole."""
    if taken is None:
        return None
    assert (taken.arrays["data"] == taken.arrays["number"]).all()
    return int(taken.arrays["number"])


def numbers(inbox):
    return [number(taken) for taken in iter(inbox.take, None)]


def nothing(options):
    return None


def only(*kinds):
    """Tells what is of these kinds, and leaves the rest for later."""
    return lambda options: next((option for option in options if option[0] in kinds), None)


class Every:
    """One channel from machine 0 to machine 1."""

    def __init__(self, depth=2):
        net, here = {}, spec(depth=depth)
        blocks = [aligned(ring.n_bytes(here)) for _ in range(2)]
        self.bells = [Bell(), Bell()]
        self.wires = [MemoryWire(net, 0, [1]), MemoryWire(net, 1, [0])]
        out = EveryOut(0, here, blocks[0], 1, self.bells[0])
        into = EveryIn(0, here, blocks[1], 0, self.bells[1])
        self.left = Courier(self.wires[0], {(0, 1): out}, [1])
        self.right = Courier(self.wires[1], {(0, 0): into}, [0])
        self.outbox = ring.sender(here, blocks[0], [])
        self.inbox = ring.receiver(here, blocks[1], Silence())

    def carry(self):
        pump(self.left, self.right)

    def push(self, *values):
        return [self.outbox.push(message(value), value) for value in values]


def pump(*couriers):
    """Until nothing moves any more."""
    for _ in range(1000):
        if not any([courier.turn() for courier in couriers]):
            return
    raise AssertionError("the couriers do not come to rest")


def test_a_slot_is_free_only_when_its_payload_has_left_and_the_target_has_freed_it():
    channel = Every(depth=1)
    channel.wires[0].choose = only(NOTED)  # its payload does not leave
    channel.push(1)
    channel.carry()
    assert numbers(channel.inbox) == [1]  # taken and freed over there
    channel.carry()
    assert channel.outbox.slot() is None
    channel.wires[0].choose = only(SENT)
    channel.carry()
    assert channel.outbox.slot() is not None


def test_a_slot_whose_payload_has_left_is_not_free_before_the_target_has_freed_it():
    channel = Every(depth=1)
    channel.push(1)
    channel.carry()
    assert channel.outbox.slot() is None
    assert number(channel.inbox.take()) == 1
    channel.carry()
    assert channel.outbox.slot() is None  # still in use over there
    channel.inbox.take()
    channel.carry()
    assert channel.outbox.slot() is not None


def test_slots_are_freed_in_order_although_payloads_leave_out_of_order():
    channel = Every(depth=2)
    channel.wires[0].choose = only(NOTED)
    channel.push(1, 2)
    channel.carry()
    assert numbers(channel.inbox) == [1, 2]
    last = channel.wires[0].options()[-1]
    channel.carry()  # all were freed over there
    channel.wires[0].choose = lambda options: last if last in options else None
    channel.carry()
    assert channel.outbox.in_flight == 2  # the second has left, and the first has not
    channel.wires[0].choose = lambda options: options[0]
    channel.carry()
    assert channel.outbox.in_flight == 0


def test_a_message_that_arrives_before_one_that_it_follows_waits_for_it():
    channel = Every(depth=2)
    channel.push(1, 2)
    channel.left.turn()
    channel.wires[1].choose = only(NOTED)
    channel.right.turn()
    last = [option for option in channel.wires[1].options() if option[0] is RECEIVED][-1]
    channel.wires[1].choose = lambda options: last if last in options else None
    channel.right.turn()
    assert channel.inbox.take() is None
    channel.wires[1].choose = lambda options: options[0]
    channel.right.turn()
    assert numbers(channel.inbox) == [1, 2]


def test_the_end_is_seen_only_after_the_last_payload():
    channel = Every(depth=2)
    channel.push(1, 2)
    channel.outbox.close()
    channel.wires[1].choose = only(NOTED)  # also that the sender has closed
    channel.carry()
    assert not channel.inbox.closed
    channel.wires[1].choose = lambda options: options[0]
    channel.carry()
    assert not channel.inbox.closed
    assert numbers(channel.inbox) == [1, 2]
    assert channel.inbox.closed


def test_an_empty_stream_ends():
    channel = Every()
    channel.outbox.close()
    channel.carry()
    assert channel.inbox.closed


def test_the_receiver_that_closes_is_heard_of_and_rings():
    channel = Every()
    channel.inbox.close()
    channel.carry()
    assert channel.outbox.abandoned
    assert channel.bells[0].rings == 1


def test_what_had_arrived_of_a_lost_source_can_be_taken_and_nothing_more():
    channel = Every(depth=3)
    channel.push(1, 2)
    channel.carry()
    channel.push(3)
    channel.left.turn()
    channel.wires[0].die()
    channel.right.turn()
    assert not channel.inbox.closed
    assert numbers(channel.inbox) == [1, 2]
    assert channel.inbox.closed
    assert channel.bells[1].rings > 0


def test_a_gap_in_what_came_of_a_lost_source_is_never_stepped_over():
    channel = Every(depth=2)
    channel.push(1, 2)
    channel.left.turn()
    channel.wires[1].choose = only(NOTED)
    channel.right.turn()
    last = channel.wires[1].options()[-1]
    channel.wires[1].choose = lambda options: last if last in options else None
    channel.right.turn()
    channel.wires[0].die()
    channel.right.turn()
    assert numbers(channel.inbox) == []
    assert channel.inbox.closed


def test_nobody_reads_what_is_sent_to_a_lost_target():
    channel = Every()
    channel.push(1)
    channel.carry()
    channel.wires[1].die()
    channel.left.turn()
    assert channel.outbox.abandoned
    assert channel.bells[0].rings == 1
    channel.push(2)
    channel.left.turn()  # harms nobody


class Latest:
    """One publisher, rank 0, and readers on other machines: a list of ranks for each machine."""

    def __init__(self, *machines):
        net, here = {}, spec(Delivery.LATEST)
        ranks = [rank for readers in machines for rank in readers]
        block = aligned(ring.n_bytes(here))
        self.outbox = ring.sender(here, block, [])
        self.wires = {0: MemoryWire(net, 0, ranks)}
        routes, self.couriers, self.inboxes = {}, {}, {}
        for readers in machines:
            route = LatestOut(0, here, block, readers)
            routes |= {(0, rank): route for rank in readers}
            there = aligned(ring.n_bytes(here))  # the readers of one machine share it
            for rank in readers:
                self._add_reader(net, here, there, rank)
        self.couriers[0] = Courier(self.wires[0], routes, ranks)

    def _add_reader(self, net, here, block, rank):
        wire = self.wires[rank] = MemoryWire(net, rank, [0])
        self.couriers[rank] = Courier(wire, {(0, 0): LatestIn(0, here, block, 0, [Bell()])}, [0])
        self.inboxes[rank] = ring.receiver(here, block, Silence())

    def publish(self, *values):
        for value in values:
            self.outbox.push(message(value), value)

    def carry(self):
        pump(*self.couriers.values())

    def kill(self, rank):
        del self.couriers[rank], self.inboxes[rank]
        self.wires[rank].die()

    def take(self, rank):
        return number(self.inboxes[rank].take())

    @property
    def crossed(self):
        """Reader and version of everything that was sent."""
        return [(rank, note.version) for rank, note in self.wires[0].crossed]


def test_of_what_is_published_while_one_is_on_its_way_only_the_newest_crosses():
    channel = Latest([1])
    channel.publish(1)
    channel.couriers[0].turn()
    for value in range(2, 30):
        channel.publish(value)
        channel.couriers[0].turn()
    channel.carry()
    assert channel.crossed == [(1, 1), (1, 29)]
    assert channel.take(1) == 29


def test_the_next_is_not_sent_before_the_one_before_has_arrived():
    channel = Latest([1])
    channel.wires[1].choose = only(NOTED)
    channel.publish(1)
    channel.carry()
    channel.publish(2)
    channel.carry()
    assert channel.crossed == [(1, 1)]  # it has left, but it has not arrived
    channel.wires[1].choose = lambda options: options[0]
    channel.carry()
    assert channel.crossed == [(1, 1), (1, 2)]


def test_a_publication_that_has_arrived_and_not_left_keeps_its_memory():
    channel = Latest([1])
    channel.wires[0].choose = only(NOTED)
    channel.publish(1)
    channel.carry()
    assert channel.take(1) == 1
    channel.publish(2)
    channel.carry()
    assert channel.crossed == [(1, 1)]
    channel.wires[0].choose = lambda options: options[0]
    channel.carry()
    assert channel.take(1) == 2


def test_publications_cross_once_per_machine_however_many_read_them():
    channel = Latest([1, 2, 3])
    for value in (1, 2):
        channel.publish(value)
        channel.carry()
        assert [channel.take(rank) for rank in (1, 2, 3)] == [value] * 3
    assert channel.crossed == [(1, 1), (1, 2)]


def test_three_machines_at_once():
    channel = Latest([1, 2], [3], [4, 5, 6])
    channel.wires[3].choose = nothing  # a slow one keeps nobody waiting
    channel.publish(1)
    channel.carry()
    channel.publish(2)
    channel.carry()
    assert [channel.take(rank) for rank in (1, 2, 4, 5, 6)] == [2] * 5
    assert channel.take(3) is None
    channel.wires[3].choose = lambda options: options[0]
    channel.carry()
    assert channel.take(3) == 2


def test_the_next_reader_takes_over_when_the_one_that_received_has_died():
    channel = Latest([1, 2, 3])
    channel.publish(1)
    channel.carry()
    channel.kill(1)
    channel.publish(2)
    channel.carry()
    assert [channel.take(rank) for rank in (2, 3)] == [2, 2]
    assert channel.crossed[-1] == (2, 2)


def test_the_next_reader_takes_over_when_the_one_that_received_has_left():
    channel = Latest([1, 2, 3])
    channel.publish(1)
    channel.carry()
    channel.couriers[1].leave(0)
    channel.carry()
    channel.publish(2)
    channel.carry()
    assert [channel.take(rank) for rank in (2, 3)] == [2, 2]
    assert channel.crossed[-1] == (2, 2)


def test_what_the_dead_reader_may_not_have_received_is_sent_again():
    channel = Latest([1, 2])
    channel.wires[1].choose = only(NOTED)
    channel.publish(1)
    channel.carry()
    channel.kill(1)  # half of it may lie in the cell
    channel.carry()
    assert channel.take(2) == 1


def test_a_reader_that_only_looks_on_may_die():
    channel = Latest([1, 2])
    channel.publish(1)
    channel.carry()
    channel.kill(2)
    channel.publish(2)
    channel.carry()
    assert channel.take(1) == 2
    assert channel.crossed == [(1, 1), (1, 2)]


def test_a_machine_whose_readers_have_all_died_is_left_alone():
    channel = Latest([1], [2])
    channel.kill(1)
    channel.publish(1)
    channel.outbox.close()
    channel.carry()
    assert channel.take(2) == 1
    assert channel.inboxes[2].closed


def test_the_last_publication_arrives_before_the_end():
    channel = Latest([1, 2])
    channel.wires[1].choose = only(NOTED)
    channel.publish(1)
    channel.carry()
    channel.publish(2)
    channel.outbox.close()
    channel.carry()
    assert not channel.inboxes[2].closed
    channel.wires[1].choose = lambda options: options[0]
    channel.carry()
    assert channel.inboxes[1].closed and channel.inboxes[2].closed
    assert [channel.take(rank) for rank in (1, 2)] == [2, 2]


def test_the_end_reaches_a_machine_whose_receiving_reader_dies_with_the_news():
    channel = Latest([1, 2])
    channel.publish(1)
    channel.carry()
    channel.outbox.close()
    channel.couriers[0].turn()
    channel.kill(1)
    channel.carry()
    assert channel.inboxes[2].closed
    assert channel.take(2) == 1


def test_a_publisher_that_has_died_publishes_nothing_more():
    channel = Latest([1, 2])
    channel.publish(1)
    channel.carry()
    channel.publish(2)
    channel.couriers[0].turn()
    channel.wires[0].die()
    del channel.couriers[0]
    channel.carry()
    assert channel.inboxes[1].closed and channel.inboxes[2].closed
    assert [channel.take(rank) for rank in (1, 2)] == [1, 1]


def beside(delivery):
    here, bell = spec(delivery), Bell()
    block = aligned(ring.n_bytes(here))
    target = 2 if delivery is Delivery.EVERY else None
    net = {}
    wires = [MemoryWire(net, rank, set(range(3)) - {rank}) for rank in range(3)]
    courier = Courier(wires[0], {}, [1, 2], [Beside(here, block, 1, target, [bell])])
    ends = ring.sender(here, block, []), ring.receiver(here, block, Silence())
    return wires, courier, bell, *ends


@pytest.mark.parametrize("delivery", Delivery)
def test_a_channel_beside_closes_when_its_source_dies(delivery):
    wires, courier, bell, outbox, inbox = beside(delivery)
    outbox.push(message(1), 1)
    wires[1].die()
    courier.turn()
    assert number(inbox.take()) == 1
    assert inbox.closed
    assert bell.rings == 1


def test_a_channel_beside_is_abandoned_when_its_target_dies():
    wires, courier, bell, outbox, inbox = beside(Delivery.EVERY)
    wires[2].die()
    courier.turn()
    assert outbox.abandoned
    assert bell.rings == 1


def test_the_loss_of_a_reader_is_nothing_to_a_publisher_beside():
    wires, courier, bell, outbox, inbox = beside(Delivery.LATEST)
    wires[2].die()
    courier.turn()
    assert not outbox.abandoned
    assert not inbox.closed
    assert bell.rings == 0


class Pair:
    """Two couriers without channels, on a clock that a test moves."""

    def __init__(self):
        self.now = 100.0
        net = {}
        self.wires = [MemoryWire(net, 0, [1]), MemoryWire(net, 1, [0])]
        self.left, self.right = (
            Courier(wire, {}, [1 - rank], clock=lambda: self.now)
            for rank, wire in enumerate(self.wires)
        )

    def later(self, seconds):
        """Time goes by, in small steps that have no remainder."""
        for _ in range(round(seconds * 8)):
            self.now += 0.125
            self.left.turn()
            self.right.turn()


def test_a_sign_of_life_is_sent_every_second():
    pair = Pair()
    heard = []
    send = pair.wires[0].send
    pair.wires[0].send = lambda peer, note: (heard.append(note.word), send(peer, note))
    pair.later(5)
    assert heard == [Word.BEAT] * 5
    assert pair.left.silence(1) <= BEAT_SECONDS + 0.2
    assert pair.right.silence(0) <= BEAT_SECONDS + 0.2


def test_one_that_says_nothing_is_silent_for_as_long():
    pair = Pair()
    pair.wires[1].send = lambda *_: None
    pair.later(7)
    assert pair.left.silence(1) == 7


def test_a_silence_counts_when_it_lasts_for_two_beats_after_it_was_noticed():
    pair = Pair()
    pair.wires[1].send = lambda *_: None
    pair.later(4)
    assert not pair.left.is_silent(1, 3)  # noticed
    pair.later(2)
    assert not pair.left.is_silent(1, 3)
    pair.later(1)
    assert pair.left.is_silent(1, 3)


def test_a_process_that_was_stopped_does_not_take_that_for_a_silence_of_the_others():
    pair = Pair()
    pair.later(1)
    pair.now += 60.0  # both were
    assert not pair.left.is_silent(1, 3)
    pair.later(1.5)
    assert not pair.left.is_silent(1, 3)
    pair.later(3)
    assert not pair.left.is_silent(1, 3)


def test_a_payload_that_leaves_is_no_sign_of_life_of_the_other():
    channel = Every()
    channel.left._clock = lambda: 1e9
    channel.push(1)
    channel.left.turn()
    channel.left.turn()
    assert channel.left.heard_at[1] < 1e9


def test_one_that_has_said_goodbye_is_not_lost():
    pair = Pair()
    pair.right.leave(3)
    pair.left.turn()
    pair.wires[1].die()
    pair.left.turn()
    assert pair.left.left == {1: 3}
    assert pair.left.lost == set()


@pytest.mark.parametrize("status", [0, 1])
def test_one_that_has_failed_has_closed_nothing_and_its_ends_are_closed_for_it(status):
    channel = Every()
    channel.push(1)
    pump(channel.left, channel.right)
    channel.left.leave(status)
    channel.right.turn()
    assert channel.inbox.take().version == 1
    assert channel.inbox.take() is None
    assert channel.inbox.closed == bool(status)  # who goes in order closes before


def test_one_that_goes_without_a_word_is_lost():
    pair = Pair()
    pair.wires[1].die()
    pair.left.turn()
    assert (pair.left.left, pair.left.lost) == ({}, {1})


def test_nothing_more_is_sent_to_whoever_has_left():
    pair = Pair()
    pair.right.leave(0)
    pair.left.turn()
    pair.wires[1]._notes.clear()
    pair.later(3)
    assert not pair.wires[1]._notes.get(0)


def test_one_that_was_given_up_is_lost_to_all_its_channels():
    channel = Every()
    channel.push(1)
    channel.left.give_up(1)
    assert channel.left.lost == {1}
    channel.left.turn()
    assert channel.outbox.abandoned
    channel.left.leave(0)
    assert Note(Word.LEFT) not in channel.wires[1]._notes.get(0, ())


class Whims:
    """Draws what happens next, and sometimes that nothing does."""

    def __init__(self, data):
        self._data = data

    def __call__(self, options):
        chosen = self._data.draw(st.integers(-1, len(options) - 1))
        return None if chosen < 0 else options[chosen]


MOVES = st.lists(st.sampled_from(["push", "push", "take", "left", "right"]), max_size=60)


@given(depth=st.integers(1, 3), moves=MOVES, data=st.data())
def test_no_interleaving_loses_doubles_or_reorders_a_message(depth, moves, data):
    channel, whims = Every(depth), Whims(data)
    for wire in channel.wires:
        wire.choose = whims
    pushed, taken = 0, []
    for move in moves:
        if move == "push":
            assert channel.outbox.in_flight <= depth
            pushed += channel.push(pushed) == [True]
        elif move == "take":
            taken += [n for n in [number(channel.inbox.take())] if n is not None]
        else:
            getattr(channel, move).turn()
        assert channel.inbox.waiting <= depth
    channel.outbox.close()
    for wire in channel.wires:
        wire.choose = lambda options: options[0]
    while not channel.inbox.closed:
        channel.carry()
        taken += numbers(channel.inbox)
    assert taken == list(range(pushed))
    channel.carry()
    assert channel.outbox.in_flight == 0
    assert not any(wire.busy for wire in channel.wires)


STEPS = st.lists(
    st.sampled_from(["publish", "turn 0", "turn 1", "turn 2", "turn 3", "take", "kill 1"]),
    max_size=80,
)


@given(steps=STEPS, data=st.data())
def test_no_interleaving_shows_an_older_publication_after_a_newer_one(steps, data):
    channel, whims = Latest([1, 2], [3]), Whims(data)
    for wire in channel.wires.values():
        wire.choose = whims
    versions, seen = itertools.count(1), dict.fromkeys((1, 2, 3), 0)
    newest = 0
    for step in steps:
        word, _, rank = step.partition(" ")
        if word == "publish":
            newest = next(versions)
            channel.publish(newest)
        elif word == "take":
            for reader in channel.inboxes:
                n = channel.take(reader)
                assert n is None or seen[reader] <= n <= newest
                seen[reader] = n or seen[reader]
        elif int(rank) in channel.couriers:
            channel.kill(1) if word == "kill" else channel.couriers[int(rank)].turn()
    _end_of(channel, seen, newest)


def _end_of(channel, seen, newest):
    """The newest has come to everybody when the end has."""
    channel.outbox.close()
    for wire in channel.wires.values():
        wire.choose = lambda options: options[0]
    channel.carry()
    for reader, inbox in channel.inboxes.items():
        assert inbox.closed
        n = channel.take(reader)
        assert newest == (seen[reader] if n is None else n)


class StrangeWire:
    """Tells of notes that no rank of this run has sent."""

    def __init__(self, notes):
        self.events = [Event(NOTED, 0, note) for note in notes]

    def poll(self):
        events, self.events = self.events, []
        return events

    def send(self, peer, note, payload=None):
        pass

    receive = send

    def forget(self, peer):
        pass


INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 4)


@given(st.lists(st.builds(Note, st.sampled_from(Word), INT64, INT64, INT64), max_size=12))
def test_any_notes_give_messages_or_an_error(notes):
    here = spec()
    block = aligned(ring.n_bytes(here))
    into = EveryIn(0, here, block, 0, Bell())
    courier = Courier(StrangeWire(notes), {(0, 0): into}, [0])
    try:
        courier.turn()
    except TianJiError as error:
        assert "tells of channel" in str(error)
