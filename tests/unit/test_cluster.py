"""What becomes of a process whose courier fails: it is known, and the process can still end."""

import sys
import threading

from wires import MemoryWorld

from tianji.channel import ChannelSpec
from tianji.schema import Field, Schema
from tianji.transports.cluster import ClusterTransport

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
