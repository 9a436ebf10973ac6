"""A rank whose channel ends a test moves from outside: `mpirun -n 2 python THIS SOCKET`.

Commands come as lines of JSON over a Unix socket and are answered in order. The two ranks pass for
two machines, so that everything between them crosses MPI.
"""

import json
import os
import socket
import sys

import numpy as np

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.schema import Schema
from tianji.transports.cluster import ClusterTransport
from tianji.transports.mpi import World
from tianji.transports.mpi_wire import MpiWire
from tianji.transports.wire import Happening, Word

HOMES = {"source": "left", "target": "right", "other": "right"}
RANKS = {"left": 0, "right": 1}


class CountingWire(MpiWire):
    """Counts the notes, so that a test can tell when all have arrived."""

    sent = heard = 0

    @property
    def busy(self):
        """Whether payloads are on their way."""
        payloads = (Happening.SENT, Happening.RECEIVED)
        return any(flight.what in payloads for flight in self._flights)

    def send(self, peer, note, payload=None):
        self.sent += note.word is not Word.BEAT
        super().send(peer, note, payload)

    def poll(self):
        events = super().poll()
        notes = [e.note for e in events if e.what is Happening.NOTED]
        self.heard += sum(note.word is not Word.BEAT for note in notes)
        return events


class CountingWorld(World):
    def wire(self, peers):
        self.counting = CountingWire(self.comm, peers)
        return self.counting


class PairRank:
    def __init__(self):
        self.world = CountingWorld()
        self.world.hosts = ["a", "b"]
        self.everybody = self.world.comm
        self.home = "left" if self.world.rank == 0 else "right"
        self.transport, self.ends = None, []

    def connect(self, specs):
        self.world.comm = self.everybody.Dup()  # nothing of an earlier test is heard on it
        specs = [_spec(*fields) for fields in specs]
        self.transport = ClusterTransport(self.world, specs, HOMES, RANKS, self.home)
        self.ends = []

    def outbox(self, name):
        self.ends.append(self.transport.outbox(name))
        return len(self.ends) - 1

    def inbox(self, name):
        self.ends.append(self.transport.inbox(name))
        return len(self.ends) - 1

    def get(self, end, name):
        return getattr(self.ends[end], name)

    def slot(self, end):
        return self.ends[end].slot() is not None

    def commit(self, end, number, data, version):
        """Fills the slot and sends it; the slot is the one that was asked for before."""
        arrays = self.ends[end].slot()
        arrays["number"][...], arrays["data"][...] = number, np.array(data)
        self.ends[end].commit(version)

    def push(self, end, number, data, version):
        arrays = {"number": np.array(number), "data": np.array(data, np.float32)}
        return self.ends[end].push(arrays, version)

    def take(self, end):
        message = self.ends[end].take()
        if message is None:
            return None
        arrays = message.arrays
        return int(arrays["number"]), arrays["data"].tolist(), message.version, message.sequence

    def free(self, end):
        self.ends[end].free()

    def close(self, end):
        self.ends[end].close()

    def carry(self):
        """One turn of the courier: whether it moved anything, and how many notes came and went."""
        moved = self.transport.courier.turn()
        wire = self.world.counting
        return [moved or wire.busy, wire.sent, wire.heard]

    def arm(self):
        self.transport.arm()

    def disarm(self):
        self.transport.disarm()

    def wait(self, seconds):
        self.transport.wait(seconds)

    def disconnect(self):
        self.transport.close()


def _spec(name, targets, readers, schema, delivery, depth):
    layout, how = Schema.from_json(schema), Delivery(delivery)
    return ChannelSpec(name, "source", tuple(targets), layout, how, depth, tuple(readers))


def main():
    rank = PairRank()
    with socket.socket(socket.AF_UNIX) as there:
        there.connect(sys.argv[1])
        stream = there.makefile("rw")
        stream.write(json.dumps(rank.home) + "\n")
        stream.flush()
        for line in stream:
            command, *arguments = json.loads(line)
            stream.write(json.dumps(getattr(rank, command)(*arguments)) + "\n")
            stream.flush()
    os._exit(0)


main()
