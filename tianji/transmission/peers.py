"""The same experiment over what others use: pickled MPI, multiprocessing's queue, ZeroMQ, Ray.

This is the one module of the package that lets others pickle, because it measures what that costs.
It runs in processes of its own and receives nothing but what these have sent each other; no run of
a configuration ever loads it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tianji import mpirun
from tianji.channel import Message
from tianji.transmission import ranks
from tianji.transmission.experiment import RECEIVER, Collected, Experiment, channels
from tianji.transmission.hosts import Hosts
from tianji.transmission.loops import (
    ActorEnds,
    Numbers,
    ReceiverEnds,
    actor_ends,
    collect,
    die_with_parent,
    produce,
    receiver_ends,
    user_of,
)
from tianji.transmission.ours import Actors
from tianji.transports.shm import ShmTransport

MODULE = "tianji.transmission.peers"
SAMPLES, GO, STOP, REPORT = 1, 2, 3, 4  # tags of pickled MPI
CROWD_NAP = 0.0001  # seconds between two probes where processes outnumber cores
IN_FLIGHT = 2  # samples that each actor of Ray has been asked for


class Unannounced:
    """What nobody has to be told of before a wait."""

    def arm(self) -> None:
        """Nobody would ring."""

    def disarm(self) -> None:
        """Nothing was announced."""


class Naps(Unannounced):
    """What can only be probed: naps where others need the core, and otherwise tries again."""

    def __init__(self, n_processes: int) -> None:
        self._nap = CROWD_NAP if n_processes > (os.cpu_count() or 1) else 0.0

    def wait(self, timeout_seconds: float) -> None:
        """A short nap, or none."""
        time.sleep(self._nap)


def message(number: int, data: Any) -> Message:
    """In the shape that the receiver expects."""
    return Message({"data": data}, number, number)


# -------------------------------------------------------------------------------------- pickled MPI


def pickled_mpi(experiment: Experiment, hosts: Hosts | None = None) -> Collected:
    """What the original release does: `isend` of an object, `iprobe` and `recv`."""
    return ranks.run_ranks(_plain_mpirun, [MODULE, "rank"], experiment, hosts)


def _plain_mpirun(n: int, words: Sequence[str], hostfile: Path | None) -> list[str]:
    """As its users start it: without what our own transport turns on."""
    command = [str(mpirun.find()), "-n", str(n), "--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if hostfile is None:
        return [*command, "--map-by", "slot:OVERSUBSCRIBE", *words]
    return [*command, "--hostfile", str(hostfile), "--map-by", "slot", *words]


def _rank(experiment: Experiment, answer: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    pending: list[Any] = []
    if comm.rank:
        produce(_pickling(comm, experiment, pending), experiment)
        MPI.Request.waitall(pending)
        comm.Ibarrier().Wait()
        return
    ends = _unpickling(comm, experiment, pending)
    found = collect(ends, experiment, _nothing)
    answer.write_text(json.dumps(found.to_json()))
    leaving = comm.Ibarrier()
    while not leaving.Test():  # what was sent too much must be received all the same
        ends.takes[0]()


def _nothing() -> None:
    """A plain mpirun ends all ranks when one fails; else `most_seconds` ends what hangs."""


def _pickling(comm: Any, experiment: Experiment, pending: list[Any]) -> ActorEnds:
    def send(sample: Any, number: int) -> bool:
        pending[:] = [request for request in pending if not request.test()[0]]
        if len(pending) >= experiment.depth:
            return False
        pending.append(comm.isend((number, sample), 0, SAMPLES))
        return True

    def report(numbers: Numbers) -> bool:
        pending.append(comm.isend(numbers, 0, REPORT))
        return True

    naps = Naps(comm.size)
    return ActorEnds(
        naps, send, lambda: bool(comm.iprobe(0, GO)), lambda: bool(comm.iprobe(0, STOP)), report
    )


def _unpickling(comm: Any, experiment: Experiment, pending: list[Any]) -> ReceiverEnds:
    def take() -> Message | None:
        return message(*comm.recv(tag=SAMPLES)) if comm.iprobe(tag=SAMPLES) else None

    def report() -> Message | None:
        return message(0, comm.recv(tag=REPORT)) if comm.iprobe(tag=REPORT) else None

    def tell(tag: int) -> None:
        pending.extend(comm.isend(None, rank, tag) for rank in range(1, comm.size))

    reports = [report] * experiment.n_actors
    return ReceiverEnds(Naps(comm.size), [take], reports, lambda: tell(GO), lambda: tell(STOP))


# ---------------------------------------------------------------------------- multiprocessing.Queue


def mp_queue(experiment: Experiment) -> Collected:
    """One queue of Python's own library for all actors."""
    return _program("queue", experiment)


def _queue(experiment: Experiment) -> Collected:
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    samples = context.Queue(experiment.depth * experiment.n_actors)
    reports, go, stop = context.Queue(), context.Event(), context.Event()
    given = (experiment.to_json(), samples, reports, go, stop)
    actors = [
        context.Process(target=_queue_actor, args=given, daemon=True)
        for _ in range(experiment.n_actors)
    ]
    for each in actors:
        each.start()
    naps = Naps(experiment.n_actors + 1)
    heard = [_taken(reports)] * experiment.n_actors
    found = collect(
        ReceiverEnds(naps, [_taken(samples)], heard, go.set, stop.set), experiment, _nothing
    )
    for each in actors:
        each.kill()  # their feeder threads may be stuck on a full pipe
    return found


def _taken(source: Any) -> Callable[[], Message | None]:
    def take() -> Message | None:
        try:
            return message(*source.get_nowait())
        except queue.Empty:
            return None

    return take


def _queue_actor(said: dict[str, Any], samples: Any, reports: Any, go: Any, stop: Any) -> None:
    die_with_parent()
    experiment = Experiment.from_json(said)

    def send(sample: Any, number: int) -> bool:
        try:
            samples.put_nowait((number, sample))
        except queue.Full:
            return False
        return True

    def report(numbers: Numbers) -> bool:
        reports.put((0, numbers))
        return True

    ends = ActorEnds(Naps(experiment.n_actors + 1), send, go.is_set, stop.is_set, report)
    produce(ends, experiment)


# ------------------------------------------------------------------------------------------- ZeroMQ


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
    return _program("zmq-ipc", experiment)


def zmq_tcp(experiment: Experiment) -> Collected:
    """The same over TCP, through the loopback device."""
    return _program("zmq-tcp", experiment)


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
        with Actors(experiment.n_actors, [MODULE, "zmq-actor"], brief, inherited) as actors:
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


# ---------------------------------------------------------------------------------------------- Ray


def ray(experiment: Experiment) -> Collected:
    """Actors of Ray return samples into its object store; the receiver gets and copies them."""
    return _program("ray", experiment)


def _ray(experiment: Experiment) -> Collected:
    import ray as library  # type: ignore[import-not-found, unused-ignore]  # an extra

    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    library.init(num_cpus=experiment.n_actors + 1, **quiet)
    kind, said = library.remote(_RayActor), experiment.to_json()
    actors = [kind.remote(said) for _ in range(experiment.n_actors)]
    use = user_of(experiment)
    library.get([each.sample.remote() for each in actors for _ in range(experiment.depth)])
    began, busy = time.perf_counter(), 0.0
    asked = {each.sample.remote(): each for each in actors for _ in range(IN_FLIGHT)}
    for i in range(experiment.n_messages):
        [ready], _ = library.wait(list(asked), num_returns=1)
        came = time.perf_counter()
        use(library.get(ready), i)
        busy += time.perf_counter() - came
        each = asked.pop(ready)
        asked[each.sample.remote()] = each
    seconds = time.perf_counter() - began
    library.shutdown()
    return Collected(seconds, receive_seconds=busy / experiment.n_messages)


class _RayActor:
    """Sleeps for the sample time and returns a message."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._experiment = Experiment.from_json(said)
        self._sample = np.ones(self._experiment.message_bytes, np.uint8)

    def sample(self) -> Any:
        """One message."""
        if self._experiment.sample_seconds:
            time.sleep(self._experiment.sample_seconds)
        return self._sample


# ------------------------------------------------------------------------------- starting all these


def missing(*modules: str) -> str | None:
    """What to install; None where nothing is missing."""
    absent = [name for name in modules if importlib.util.find_spec(name) is None]
    names = ["pyzmq" if name == "zmq" else name for name in absent]
    return f"not installed: pip install {' '.join(names)}" if absent else None


def _program(name: str, experiment: Experiment) -> Collected:
    """Runs one of the peers in a process of its own: what it loads and leaves goes with it."""
    with tempfile.TemporaryDirectory(prefix="tianji-peer-") as folder:
        answer = Path(folder) / "answer.json"
        words = [name, json.dumps(experiment.to_json()), str(answer)]
        ranks.run(
            [sys.executable, "-m", MODULE, *words], dict(os.environ), ranks.most_seconds(experiment)
        )
        return Collected(**json.loads(answer.read_text()))


def main() -> None:
    """A receiver, a rank or an actor of one of the peers."""
    name, *words = sys.argv[1:]
    if name == "zmq-actor":
        die_with_parent()
        _zmq_actor(json.load(sys.stdin), words[0])
        return
    experiment, answer = Experiment.from_json(json.loads(words[0])), Path(words[1])
    if name == "rank":
        if words[2] == ranks.NEAR:
            die_with_parent()
        _rank(experiment, answer)
        return
    found = {
        "queue": lambda: _queue(experiment),
        "zmq-ipc": lambda: _zmq(experiment, f"ipc://{answer.parent}/samples"),
        "zmq-tcp": lambda: _zmq(experiment, "tcp://127.0.0.1:*"),
        "ray": lambda: _ray(experiment),
    }[name]()
    answer.write_text(json.dumps(found.to_json()))


if __name__ == "__main__":
    main()
