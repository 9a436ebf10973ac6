"""What becomes of channels between machines when a process is lost and another takes its place."""

import numpy as np
import pytest
from commands import eventually
from wires import MemoryWire, MemoryWorld

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.schema import Field, Schema
from tianji.transports import ring
from tianji.transports.bell import Silence
from tianji.transports.cluster import ClusterTransport
from tianji.transports.wire import Event, Happening, Note, Wires, Word

SCHEMA = Schema((Field("number", "int64"),))
SPECS = [
    ChannelSpec("samples", "actor", ("learner",), SCHEMA, depth=3),
    ChannelSpec("report", "actor", ("learner",), SCHEMA, Delivery.LATEST),
    ChannelSpec("weights", "learner", ("actor",), SCHEMA, Delivery.LATEST),
]
HOMES = {"actor": "actor", "learner": "learner"}
RANKS = {"learner": 0, "actor": 1}
NEW = 2  # the number of the process in the actor's place


class Run:
    """A learner and an actor on two machines."""

    def __init__(self):
        self._net, self._hosts = {}, ["a", "b"]
        self._closing = []
        self.learner = self.made(0, RANKS, "learner")
        self.actor = self.made(1, RANKS, "actor")
        self.samples = self.learner.inbox("samples")
        self.weights = self.learner.outbox("weights")

    def made(self, rank, ranks, home, host=None):
        world = MemoryWorld(self._net, rank, self._hosts)
        found = ClusterTransport(world, SPECS, HOMES, ranks, home, ["actor"], host)
        self._closing.append((found, world))
        return found

    def carry(self, *transports):
        while any([each.courier.turn() for each in transports]):
            pass

    def lose_the_actor(self):
        self._net[1].die()
        self.carry(self.learner)

    def replace_the_actor(self):
        """As rank 0 has it done: the learner lets it in, and it hears where the lost one stood."""
        self._hosts.append(self._hosts[1])
        new = self.made(NEW, RANKS | {"actor": NEW}, "actor", "actor")
        self.learner.let_in("actor", NEW)
        self.carry(self.learner, new)
        assert new.stand(1.0)
        return new

    def close(self):
        for transport, world in self._closing:
            transport.courier.left = dict.fromkeys(range(3), 0)  # nobody is waited for
            transport.close()
            world.meeting.close()


@pytest.fixture
def run():
    made = Run()
    yield made
    made.close()


def push(outbox, *numbers):
    return [outbox.push({"number": np.array(number)}, number) for number in numbers]


def taken(inbox):
    return [int(message.arrays["number"]) for message in iter(inbox.take, None)]


def test_what_a_lost_actor_had_sent_is_taken_once_and_the_next_one_goes_on_behind_it(run):
    push(run.actor.outbox("samples"), 1, 2)
    run.carry(run.actor, run.learner)
    assert run.samples.take().version == 1  # and is held
    run.lose_the_actor()
    assert not run.samples.closed
    new = run.replace_the_actor()
    outbox = new.outbox("samples")
    assert push(outbox, 3, 4) == [True, False]  # 1 and 2 still have their slots
    run.carry(new, run.learner)
    assert taken(run.samples) == [2, 3]
    run.samples.free()
    run.carry(new, run.learner)
    assert push(outbox, 4) == [True]
    run.carry(new, run.learner)
    assert taken(run.samples) == [4]


def test_a_lost_actor_is_away_until_there_is_another(run):
    run.lose_the_actor()
    assert run.samples.away
    run.replace_the_actor()
    assert not run.samples.away and not run.samples.closed


def test_a_message_that_was_half_sent_is_not_there(run):
    push(run.actor.outbox("samples"), 1)
    run.actor.courier.turn()  # the learner has not looked yet
    run.lose_the_actor()
    new = run.replace_the_actor()
    push(new.outbox("samples"), 2)
    run.carry(new, run.learner)
    assert taken(run.samples) == [2]


def test_a_new_actor_has_the_newest_weights_and_those_that_come(run):
    push(run.weights, 1, 2)
    run.carry(run.actor, run.learner)
    run.lose_the_actor()
    new = run.replace_the_actor()
    inbox = new.inbox("weights")
    assert taken(inbox) == [2]
    push(run.weights, 3)
    run.carry(new, run.learner)
    assert taken(inbox) == [3]


def test_a_new_actor_reports_on_the_channel_of_the_lost_one(run):
    reports = run.learner.inbox("report")
    push(run.actor.outbox("report"), 1)
    run.carry(run.actor, run.learner)
    assert taken(reports) == [1]
    run.lose_the_actor()
    assert not reports.closed
    new = run.replace_the_actor()
    push(new.outbox("report"), 2)
    run.carry(new, run.learner)
    assert taken(reports) == [2]


def test_the_one_in_its_place_may_be_lost_too(run):
    run.lose_the_actor()
    new = run.replace_the_actor()
    push(new.outbox("samples"), 1)
    run.carry(new, run.learner)
    run._net[NEW].die()
    run.carry(run.learner)
    assert taken(run.samples) == [1]
    assert run.samples.away


def test_what_comes_with_the_news_of_a_loss_is_taken_too(run):
    """An actor that was replaced before is killed just behind a message."""
    run.lose_the_actor()
    new = run.replace_the_actor()
    push(new.outbox("samples"), 1)
    new.courier.turn()
    wire, told = run.learner._wire._wires[0], []
    poll = wire.poll
    wire.poll = lambda: told.pop() if told else poll()
    run._net[NEW].die = lambda: None
    events = [event for event in poll() if event.peer == NEW]
    told.append([*events, Event(Happening.LOST, NEW, Note(Word.BEAT))])
    run.carry(run.learner)
    assert taken(run.samples) == [1]
    assert run.samples.away


def test_one_that_is_there_goes_on_when_nobody_is_replaced_any_more(run):
    run.learner.courier.run(lambda: run.learner.courier.close_for_good(1))
    push(run.actor.outbox("samples"), 1)
    run.carry(run.actor, run.learner)
    assert taken(run.samples) == [1]
    assert not run.samples.closed
    run.lose_the_actor()
    assert run.samples.closed


def test_where_nobody_comes_the_stream_ends(run):
    run.lose_the_actor()
    run.learner.courier.run(lambda: run.learner.courier.close_for_good(1))
    run.carry(run.learner)
    assert run.samples.closed


def test_rank_0_says_who_comes_and_who_does_not(run, monkeypatch):
    joined = []
    monkeypatch.setattr(run.learner, "_let_in", lambda home, number: joined.append((home, number)))
    run.lose_the_actor()
    names = sorted(RANKS)
    run.learner._on_newcomer(Note(Word.JOIN, number=NEW, version=names.index("actor")))
    assert eventually(lambda: joined) == [("actor", NEW)]


def test_nobody_looks_any_more_at_the_wire_of_one_that_came_later_and_is_lost():
    first, later = (MemoryWire({}, 0, [peer]) for peer in (1, 2))
    wires = Wires(first, [1])
    wires.add(2, later)
    wires.forget(2)
    assert [event.peer for event in wires.poll()] == [2]
    assert wires._wires == [first, later]  # a small payload that had come is told once more
    assert wires.poll() == []
    assert wires._wires == [first]
    wires.send(2, Note(Word.BEAT))  # to nobody


def test_a_process_of_one_machine_finds_its_memory_as_the_lost_one_left_it():
    """The channels of two processes of one machine cross no wire; who comes maps their memory."""
    block = np.zeros(ring.n_bytes(SPECS[0]), np.uint8)
    lost = ring.sender(SPECS[0], block, [])
    push(lost, 1)
    ring.leave(block)
    inbox = ring.receiver(SPECS[0], block, Silence())
    assert taken(inbox) == [1] and inbox.away
    assert ring.take_over(block) == ring.n_sent(block) == 1
    push(ring.sender(SPECS[0], block, []), 2)
    assert taken(inbox) == [2] and not inbox.away
