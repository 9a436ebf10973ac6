"""Channels under load between processes: nothing lost, torn, reordered, leaked or slept through."""

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from channel_child import Waiter

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.schema import Field, Schema
from tianji.transports.fence import is_fenced_from_afar
from tianji.transports.shm import ShmTransport

pytestmark = pytest.mark.process

CHILD = Path(__file__).with_name("channel_child.py")
HOMES = {"a": "a", "b": "b", "launcher": "launcher"}
NOTHING = Schema((Field("nothing", "uint8"),))


def numbered(n_floats):
    return Schema((Field("number", "int64"), Field("data", "float32", (n_floats,))))


class Stage:
    """A transport and the children that use it; a child that a test forgot ends with it."""

    def __init__(self, env):
        self._env = env
        self._exits = contextlib.ExitStack()

    def set_up(self, *specs):
        self.transport = ShmTransport.create(list(specs), HOMES)
        self._exits.callback(self.transport.close)
        return self.transport

    def start(self, deed, home, **options):
        description = self.transport.describe()
        child = subprocess.Popen(
            [sys.executable, CHILD, deed],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[description["memory"], *description["events"].values()],
            env=self._env,
            text=True,
        )
        self._exits.callback(self.end, child)
        json.dump({"transport": description, "home": home, "options": options}, child.stdin)
        child.stdin.close()
        return child

    def end(self, child):
        child.kill()
        child.wait()
        child.stdout.close()

    def close(self):
        self._exits.close()


@pytest.fixture
def stage(child_env):
    made = Stage(child_env)
    yield made
    made.close()


def result(child, seconds=60.0):
    """What a child printed at its end."""
    assert child.wait(seconds) == 0
    return json.loads(child.stdout.read())


@pytest.mark.parametrize(("n", "n_floats"), [(100_000, 1_000), (20_000, 25_600)])
def test_a_reader_never_sees_a_torn_vector_nor_an_older_one(stage, n, n_floats):
    weights = Schema((Field("weights", "float32", (n_floats,)),))
    stage.set_up(
        ChannelSpec("weights", "a", ("b",), weights, Delivery.LATEST),
        ChannelSpec("ready", "b", ("a",), NOTHING),
    )
    publisher, reader = stage.start("publish", "a", n=n), stage.start("read", "b")
    found = result(reader)
    assert result(publisher) == {"published": n}
    assert (found["torn"], found["backwards"], found["last"]) == (0, 0, n - 1)
    assert found["taken"] > 10


def test_a_hundred_thousand_messages_arrive_in_order_and_memory_stays_flat(stage):
    n = 100_000
    stage.set_up(ChannelSpec("ring", "a", ("b",), numbered(64), depth=4))
    producer, consumer = stage.start("produce", "a", n=n), stage.start("consume", "b", n=n)
    sent, received = result(producer), result(consumer)
    assert (received["taken"], received["wrong"]) == (n, 0)
    assert sent["timeouts"] == received["timeouts"] == 0
    for end in (sent, received):
        assert end["late"] - end["early"] < 512 * 1024


def test_cells_whose_writer_is_too_early_are_found_out(stage):
    """A positive control: what looks for torn vectors above sees them where there are some."""
    weights = Schema((Field("weights", "float32", (25_600,)),))
    stage.set_up(
        ChannelSpec("weights", "a", ("b",), weights, Delivery.LATEST),
        ChannelSpec("ready", "b", ("a",), NOTHING),
    )
    publisher = stage.start("publish", "a", n=500, broken=True)
    assert result(stage.start("read", "b"))["torn"] > 0
    assert result(publisher) == {"published": 500}


def test_a_ring_whose_sender_is_too_early_is_found_out(stage):
    n = 500
    stage.set_up(ChannelSpec("ring", "a", ("b",), numbered(25_600), depth=4))
    producer = stage.start("produce", "a", n=n, broken=True)
    assert result(stage.start("consume", "b", n=n))["wrong"] > 0
    result(producer)


def drain(inbox):
    """Everything that can be taken now: (number, whether it was whole)."""
    found = []
    while (message := inbox.take()) is not None:
        number = int(message.arrays["number"])
        whole = (message.arrays["data"] == number).all() and message.version == number
        found.append((number, bool(whole)))
    return found


def test_a_producer_that_is_killed_leaves_no_half_message(stage):
    random = np.random.default_rng(0)
    transport = stage.set_up(ChannelSpec("ring", "a", ("launcher",), numbered(32_768), depth=4))
    inbox, waiter = transport.inbox("ring"), Waiter(transport)
    for _ in range(20):
        child = stage.start("produce_for_ever", "a")
        found = []
        for _ in range(random.integers(1, 100)):
            waiter.until(lambda: inbox.waiting)
            found += drain(inbox)
        child.kill()
        child.wait()
        found += drain(inbox)
        assert all(whole for _, whole in found)
        assert [number for number, _ in found] == list(range(len(found)))
        assert transport.outbox("ring").in_flight == 0


def test_an_idle_consumer_leaves_its_core_alone(stage):
    stage.set_up(ChannelSpec("ring", "a", ("b",), numbered(64)))
    assert result(stage.start("idle", "b", seconds=1.5))["share"] <= 0.02


@pytest.mark.parametrize("afar", [True, False], ids=["fenced from afar", "own fences"])
def test_no_wake_up_is_lost_between_two_processes_that_both_sleep(stage, afar, monkeypatch):
    if afar and not is_fenced_from_afar():
        pytest.skip("this kernel cannot fence other processes")
    monkeypatch.setattr("tianji.transports.shm.is_fenced_from_afar", lambda: afar)
    n, schema = 20_000, numbered(4)
    transport = stage.set_up(
        ChannelSpec("ping", "launcher", ("b",), schema, depth=1),
        ChannelSpec("pong", "b", ("launcher",), schema, depth=1),
    )
    child = stage.start("echo", "b", n=n, afar=afar)
    outbox, inbox, waiter = transport.outbox("ping"), transport.inbox("pong"), Waiter(transport)
    arrays = schema.empty()
    for i in range(n):
        waiter.until(lambda i=i: outbox.push(arrays, i))
        assert waiter.until(inbox.take).version == i
        if i == 0:  # the child has come up
            waiter.n_timeouts = 0
    assert (waiter.n_timeouts, result(child)["timeouts"]) == (0, 0)


def test_large_trajectories_are_sampled_while_others_are_received(stage):
    n, seconds, floats = 40, 0.02, 2**20  # 4 MB each; the time to sample and to receive are sleeps
    ready = ChannelSpec("ready", "b", ("a",), NOTHING, Delivery.LATEST)
    transport = stage.set_up(ChannelSpec("ring", "a", ("b",), numbered(floats)), ready)
    ours = ShmTransport.attach(transport.describe(), "a")
    outbox, waiter = ours.outbox("ring"), Waiter(ours)
    child = stage.start("store_slowly", "b", n=n, seconds=seconds)
    waiter.until(ours.inbox("ready").take)
    spans = []
    for i in range(n):
        slot, began = waiter.until(outbox.slot), time.monotonic()
        slot["data"][:1000] = i
        time.sleep(seconds)
        spans.append((began, time.monotonic()))
        outbox.commit(i)
    beside = [
        any(began < other[1] and other[0] < ended for other in spans)
        for began, ended in result(child)["spans"]
    ]
    assert sum(beside) > n / 2
