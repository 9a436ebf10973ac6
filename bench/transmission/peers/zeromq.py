"""PUSH and PULL of ZeroMQ, over a Unix socket and over TCP."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from tianji.core.channel import Message
from tianji.transports.shm import ShmTransport
from transmission.child import die_with_parent
from transmission.experiment import RECEIVER, Collected, Experiment, channels
from transmission.loops import actor_ends, collect, produce, receiver_ends
from transmission.ours import Actors
from transmission.peers.common import Unannounced, asked, message, run_alone

MODULE = "transmission.peers.zeromq"
ACTOR = "actor"  # the first word of a child that sends


class Polling(Unannounced):
    """Waits for a socket of ZeroMQ to be ready."""

    def __init__(self, socket: Any, flag: int) -> None:
        self._socket = socket
        self._flag = flag

    def wait(self, timeout_seconds: float) -> None:
        """At most a millisecond: what is not on the socket is not noticed."""
        self._socket.poll(min(1.0, timeout_seconds * 1e3), self._flag)


def zmq_ipc(experiment: Experiment) -> Collected:
    """PUSH and PULL over a Unix socket, without copies where ZeroMQ can."""
    return run_alone(MODULE, ["ipc"], experiment)


def zmq_tcp(experiment: Experiment) -> Collected:
    """The same over TCP, through the loopback device."""
    return run_alone(MODULE, ["tcp"], experiment)


def _zmq(experiment: Experiment, address: str) -> Collected:
    """Samples go over ZeroMQ; the word to go and the reports over shared memory."""
    import zmq  # type: ignore[import-not-found, unused-ignore]  # an extra

    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.set_hwm(experiment.depth)
        pull.bind(address)

        def take() -> Message | None:
            try:
                number, data = pull.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            return message(int(number.bytes), np.frombuffer(data.buffer, np.uint8))

        specs, homes = channels(experiment)
        control = ShmTransport.create(specs, homes, home=RECEIVER)
        said = control.describe()
        where = pull.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
        brief = {"transport": said, "experiment": experiment.to_json(), "address": where}
        inherited = [said["memory"], *said["events"].values()]
        ends = receiver_ends(control, experiment.n_actors)
        ends.waiting, ends.takes = Polling(pull, zmq.POLLIN), [take]
        with Actors(experiment.n_actors, [MODULE, ACTOR], brief, inherited) as actors:
            return collect(ends, experiment, actors.check)


def _zmq_actor(brief: dict[str, Any], name: str) -> None:
    import zmq  # type: ignore[import-not-found, unused-ignore]  # an extra

    experiment = Experiment.from_json(brief["experiment"])
    ends = actor_ends(ShmTransport.attach(brief["transport"], name), name)
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.set_hwm(experiment.depth)
        push.connect(brief["address"])
        push.linger = -1 if experiment.sample_seconds is None else 0  # are all of them awaited?

        def send(sample: Any, number: int) -> bool:
            try:
                push.send_multipart([b"%d" % number, sample], zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return False
            return True

        ends.waiting, ends.send = Polling(push, zmq.POLLOUT), send
        produce(ends, experiment)


def main() -> None:
    """An actor, or the receiver."""
    if sys.argv[1] == ACTOR:
        die_with_parent()
        _zmq_actor(json.load(sys.stdin), sys.argv[2])
        return
    experiment, answer, [way] = asked()
    address = f"ipc://{answer.parent}/samples" if way == "ipc" else "tcp://127.0.0.1:*"
    answer.write_text(json.dumps(_zmq(experiment, address).to_json()))
