"""What a rank pays for a message to another host: the push, the way, and waiting for nothing.

Two ranks of this machine pass for two hosts, so that all goes over MPI and TCP (loopback). The
sender pushes 4 MB and then counts in pure Python; the receiver says when the message came. Asked:
the push returns in well under the transfer time, the message comes while the sender computes, and
a rank that waits uses 5 % of a core at most.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

import numpy as np
from options import Options, count

from tianji.core.channel import ChannelSpec
from tianji.core.schema import Field, Schema
from tianji.machine import mpirun

SIZE = 4 << 20
COMPUTING_SECONDS = 0.2
HOMES = {"sender": "left", "receiver": "right"}
RANKS = {"left": 0, "right": 1}


def spec(name: str, source: str, target: str, schema: Schema) -> ChannelSpec:
    return ChannelSpec(name, source, (target,), schema, depth=2)


def rank(n: int) -> None:
    """One of the two: the first sends and prints, the second answers with the time of arrival."""
    from tianji.transports.cluster import ClusterTransport
    from tianji.transports.mpi import leave, world

    here = world()
    here.hosts = ["a", "b"]
    message = spec("message", "sender", "receiver", Schema((Field("data", "uint8", (SIZE,)),)))
    answer = spec("answer", "receiver", "sender", Schema((Field("at", "float64"),)))
    home = "left" if here.rank == 0 else "right"
    transport = ClusterTransport(here, [message, answer], HOMES, RANKS, home)
    transport.start()
    idle = idle_share()
    if here.rank == 0:
        send(transport.outbox("message"), transport.inbox("answer"), n, idle)
    else:
        receive(transport.inbox("message"), transport.outbox("answer"))
    transport.close()
    leave()
    mpirun.vanish(0)


def idle_share(seconds: float = 2.0) -> float:
    """The part of a core that this process uses while nothing comes and nothing goes."""
    time.sleep(0.5)
    began, cpu = time.monotonic(), time.process_time()
    time.sleep(seconds)
    return (time.process_time() - cpu) / (time.monotonic() - began)


def send(outbox, inbox, n: int, idle: float) -> None:  # type: ignore[no-untyped-def]
    data, pushes, ways = np.ones(SIZE, np.uint8), [], []
    for i in range(n):
        np.copyto(outbox.slot()["data"], data)
        began = time.monotonic()
        outbox.commit(i)
        pushes.append(time.monotonic() - began)
        while time.monotonic() - began < COMPUTING_SECONDS:
            pass  # computing: the interpreter is never given away by itself
        while (came := inbox.take()) is None:
            time.sleep(0.001)
        ways.append(float(came.arrays["at"]) - began)
    outbox.close()
    late = sum(way > COMPUTING_SECONDS for way in ways)
    print(f"push of 4 MB returns after   {1e6 * statistics.median(pushes):8.0f} us")
    print(f"it has come after            {1e3 * statistics.median(ways):8.1f} ms")
    print(f"not while the sender computed {late:7d} of {n}")
    print(f"a rank that waits            {100 * idle:8.1f} % of a core (asked: <= 5)", flush=True)


def receive(inbox, outbox) -> None:  # type: ignore[no-untyped-def]
    while not inbox.closed:
        if inbox.take() is None:
            time.sleep(0.0005)
        else:
            outbox.push({"at": np.array(time.monotonic())}, 0)


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--messages", type=count, default=20)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank(options.messages)
    words = [sys.executable, __file__, "--rank", "--messages", str(options.messages)]
    return subprocess.run(mpirun.command(2, words), stderr=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    sys.exit(main())
