"""What the hardware itself can do, measured in the same run: memcpy, two processes, raw TCP.

A copy that has the machine to itself is shown beside the same copy next to a busy process: where
two "cores" are the two threads of one, or share the way to their memory, a sender and a receiver
that are both awake can only ever have the second rate between them.
"""

from __future__ import annotations

import itertools
import json
import mmap
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from tianji.core.errors import TianJiError
from transmission.child import child_environment, command, die_with_parent
from transmission.experiment import Experiment
from transmission.hosts import Host
from transmission.loops import PAGE, Bytes, Store, touch

MODULE = "transmission.limits"
READY, OVER = 0, 1  # flags in front of the slots: the neighbour is at work; it may go
WRITE_BYTES = 4 << 20  # one write of raw TCP
PORT = 5201
CONNECT_SECONDS = 10.0


def memcpy_seconds(experiment: Experiment) -> float:
    """A warm buffer copied into as many others as a ring has slots, in one process."""
    source = np.ones(experiment.message_bytes, np.uint8)
    targets = list(np.ones((experiment.depth, experiment.message_bytes), np.uint8))
    n, depth = experiment.n_messages, experiment.depth
    began = time.perf_counter()
    for i in range(n):
        np.copyto(targets[i % depth], source)
    return time.perf_counter() - began


def memcpy_beside_seconds(experiment: Experiment) -> float:
    """The same while another process does with memory of its own what a receiver of views does."""
    with neighbour("touch", experiment):
        return memcpy_seconds(experiment)


def copy_between_seconds(experiment: Experiment) -> float:
    """Copies into a store what another process writes all the time; nobody tells anybody."""
    store = Store(experiment.message_bytes)
    with neighbour("fill", experiment) as slots:
        for i in range(experiment.depth):
            store.use(slots[i], i)
        began = time.perf_counter()
        for i in range(experiment.n_messages):
            store.use(slots[i % experiment.depth], i)
        return time.perf_counter() - began


@contextmanager
def neighbour(work: str, experiment: Experiment) -> Iterator[list[Bytes]]:
    """A child at work on shared memory without any channel for as long as the body runs."""
    memory = os.memfd_create("tianji-limit")
    try:
        size, depth = experiment.message_bytes, experiment.depth
        os.ftruncate(memory, PAGE + depth * size)
        flags, slots = _mapped(memory, size, depth)
        words = command(MODULE, work, *map(str, (memory, size, depth)))
        process = subprocess.Popen(words, pass_fds=[memory], env=child_environment())
        try:
            while not flags[READY]:
                if process.poll() is not None:
                    raise TianJiError(f"{' '.join(words)} ended with {process.returncode}")
                time.sleep(0.001)
            yield slots
        finally:
            flags[OVER] = 1
            process.wait()
    finally:
        os.close(memory)


def _mapped(memory: int, size: int, depth: int) -> tuple[memoryview, list[Bytes]]:
    whole = np.frombuffer(mmap.mmap(memory, PAGE + depth * size), np.uint8)
    slots = [whole[PAGE + i * size :][:size] for i in range(depth)]
    return whole[:16].data.cast("q"), slots


def _fill(memory: int, size: int, depth: int) -> None:
    """The neighbour that writes the slots."""
    flags, slots = _mapped(memory, size, depth)
    source = np.ones(size, np.uint8)
    for i in itertools.count():
        np.copyto(slots[i % depth], source)
        flags[READY] = i >= depth
        if flags[OVER]:
            return


def _touch(memory: int, size: int, depth: int) -> None:
    """The neighbour that reads a byte of each page."""
    flags, _ = _mapped(memory, size, depth)
    own = list(np.ones((depth, size), np.uint8))
    for i in itertools.count():
        touch(own[i % depth], i)
        flags[READY] = 1
        if flags[OVER]:
            return


def raw_tcp_seconds(source: Host, target: Host, n_bytes: int) -> float:
    """Plain sockets and large writes, from the word to go until the last byte has come."""
    words = command(MODULE, "receive", str(n_bytes))
    receiving = target.start(words, stdout=subprocess.PIPE)
    sending = source.start(command(MODULE, "send", target.address, str(n_bytes)))
    try:
        said, _ = receiving.communicate(timeout=CONNECT_SECONDS + n_bytes / 1e6)
        if receiving.returncode or sending.wait(CONNECT_SECONDS):
            raise TianJiError(f"raw TCP between {source.name} and {target.name} failed")
        return float(json.loads(said))
    finally:
        for process in (receiving, sending):
            process.kill()
            process.wait()


def _receive(n_bytes: int) -> None:
    buffer, came = bytearray(WRITE_BYTES), 0
    with socket.create_server(("", PORT)) as server:
        server.settimeout(CONNECT_SECONDS)
        there, _ = server.accept()
        with there:
            there.recv(1)  # the connection is up
            there.sendall(b"g")
            began = time.perf_counter()
            while came < n_bytes:
                came += there.recv_into(buffer) or n_bytes  # an early end is seen in the sender
            print(json.dumps(time.perf_counter() - began))


def _send(address: str, n_bytes: int) -> None:
    block = memoryview(bytes(WRITE_BYTES))
    with _connected(address) as there:
        there.sendall(b"r")
        there.recv(1)
        for left in range(n_bytes, 0, -WRITE_BYTES):
            there.sendall(block[: min(left, WRITE_BYTES)])


def _connected(address: str) -> socket.socket:
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return socket.create_connection((address, PORT), CONNECT_SECONDS)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def main() -> None:
    """A child of one of the measurements above."""
    die_with_parent()
    work, *words = sys.argv[1:]
    if work == "send":
        _send(words[0], int(words[1]))
    elif work == "receive":
        _receive(int(words[0]))
    else:
        neighbours: dict[str, Callable[[int, int, int], None]] = {"fill": _fill, "touch": _touch}
        neighbours[work](*map(int, words))
