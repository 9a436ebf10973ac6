"""How often a courier looks, and what becomes of a process whose courier fails."""

import sys
import threading

import pytest
from wires import MemoryWorld

from tianji.core.channel import ChannelSpec
from tianji.core.schema import Field, Schema
from tianji.transports import cluster
from tianji.transports.cluster import ClusterTransport
from tianji.transports.courier_naps import Naps

SPEC = ChannelSpec("samples", "left", ("right",), Schema((Field("data", "uint8", (4,)),)))


def broken():
    raise KeyError("no such route")


def test_a_courier_that_fails_says_so_and_does_not_keep_its_process_from_ending(
    capsys, monkeypatch
):
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    world, told = MemoryWorld({}, 0, ["a", "b"]), threading.Event()
    names = {"left": "left", "right": "right"}
    transport = ClusterTransport(world, [SPEC], names, {"left": 0, "right": 1}, "left")
    monkeypatch.setattr(transport._wire, "poll", broken)
    transport.start(failed=told.set)
    assert told.wait(10)
    assert "KeyError: 'no such route'" in transport.failure
    assert "KeyError: 'no such route'" in capsys.readouterr().err
    transport.close()
    world.meeting.close()


def waits(naps, monkeypatch, seconds):
    """How long it sleeps when nothing has happened for so long."""
    monkeypatch.setattr(cluster.time, "monotonic", lambda: 100.0 + seconds)
    return naps.next()


def test_a_courier_looks_the_more_rarely_the_longer_nothing_has_happened(monkeypatch):
    monkeypatch.setattr(cluster.time, "monotonic", lambda: 100.0)
    naps = Naps(longest=0.002)
    assert waits(naps, monkeypatch, 0.0) == pytest.approx(0.0001)
    assert waits(naps, monkeypatch, 0.008) == pytest.approx(0.001)  # late by an eighth
    assert waits(naps, monkeypatch, 60.0) == pytest.approx(0.002)
    naps.begin_again()
    assert waits(naps, monkeypatch, 60.008) == pytest.approx(0.001)


class NothingMoves:
    """A courier on a slow link: there is something on its way, and nothing has happened."""

    def __init__(self, *_):
        self.looks = 0

    def turn(self):
        self.looks += 1
        return False


def test_a_process_that_waits_for_a_slow_link_leaves_the_cores_to_others(monkeypatch):
    """Ten thousand looks a second of 32 processes on two cores kept each other from sending."""
    world = MemoryWorld({}, 0, ["a", "b"])
    names = {"left": "left", "right": "right"}
    transport = ClusterTransport(world, [SPEC], names, {"left": 0, "right": 1}, "left")
    slept = []
    monkeypatch.setattr(cluster.time, "sleep", slept.append)
    monkeypatch.setattr(cluster.time, "monotonic", lambda: sum(slept))
    transport.courier = slow = NothingMoves()
    transport._carry_until(lambda: sum(slept) > 1.0)
    assert slow.looks < 600
    monkeypatch.undo()
    world.meeting.close()
