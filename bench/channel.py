"""What a shared-memory channel costs while nothing happens, and whether many messages all arrive.

How fast it is stands beside the limits of the hardware in `figure5.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from options import OUT, Options, count, positive
from transmission.loops import until

from tianji.core.channel import ChannelSpec
from tianji.core.schema import Field, Schema
from tianji.transports.shm import ShmTransport

DEPTH = 8  # messages in flight
SMALL = 64  # bytes of a message
ASKED_IDLE, ASKED_GROWTH = 0.02, 1 << 20


def resident_bytes() -> int:
    """Memory of this process alone; shared mappings are left out."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def send(brief: dict[str, Any]) -> dict[str, int]:
    """Fills `n` messages with a copy each, numbers them, and closes the channel."""
    transport = ShmTransport.attach(brief["transport"], "sender")
    outbox, n, early = transport.outbox("ring"), brief["n"], 0
    source = np.ones(SMALL, np.uint8)
    for i in range(n):
        slot = until(transport, outbox.slot)
        np.copyto(slot["data"], source)
        outbox.commit(i)
        if i == n // 5:
            early = resident_bytes()
    outbox.close()
    return {"early": early, "late": resident_bytes()}


def idle(brief: dict[str, Any]) -> dict[str, float]:
    """Waits for messages that never come; returns its share of a core."""
    transport = ShmTransport.attach(brief["transport"], "receiver")
    inbox = transport.inbox("ring")
    began, cpu = time.monotonic(), time.process_time()
    until(transport, lambda: inbox.take() or time.monotonic() - began > brief["seconds"])
    return {"share": (time.process_time() - cpu) / (time.monotonic() - began)}


CHILDREN: dict[str, Callable[[dict[str, Any]], Any]] = {"send": send, "idle": idle}


@contextmanager
def child(name: str, transport: ShmTransport, **more: Any) -> Iterator[dict[str, Any]]:
    """Runs one of CHILDREN beside the body; its result is in the dict once the body has ended."""
    result: dict[str, Any] = {}
    said = transport.describe()
    inherited = [said["memory"], *said["events"].values()]
    words, pipe = [sys.executable, __file__, "--child", name], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, pass_fds=inherited, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            json.dump({"transport": said} | more, process.stdin)
            process.stdin.close()
            yield result
            result |= json.load(process.stdout)
        except BaseException:
            process.kill()
            raise


@contextmanager
def ring() -> Iterator[ShmTransport]:
    """A channel of small messages, seen from its receiver."""
    schema = Schema((Field("data", "uint8", (SMALL,)),))
    spec = ChannelSpec("ring", "sender", ("receiver",), schema, depth=DEPTH)
    homes = {"sender": "sender", "receiver": "receiver"}
    transport = ShmTransport.create([spec], homes, home="receiver")
    yield transport
    transport.close()


def in_order(n: int) -> dict[str, Any]:
    """Many small messages: whether all came in order, how fast, and how both ends' memory grew."""
    with ring() as transport:
        inbox, wrong, early = transport.inbox("ring"), 0, 0
        with child("send", transport, n=n) as sender:
            began = time.perf_counter()
            for i in range(n):
                message = until(transport, inbox.take)
                wrong += message.version != i or message.sequence != i
                if i == n // 5:
                    early = resident_bytes()
            seconds = time.perf_counter() - began
            inbox.take()
            until(transport, lambda: inbox.closed)
        grown = max(resident_bytes() - early, sender["late"] - sender["early"])
    return {"messages": n, "wrong": wrong, "grown_bytes": grown, "per_second": n / seconds}


def idle_share(seconds: float) -> float:
    with ring() as transport:
        with child("idle", transport, seconds=seconds) as consumer:
            pass
        return float(consumer["share"])


def table(counted: dict[str, Any], idles: list[float]) -> str:
    share, grown = statistics.median(idles), counted["grown_bytes"]
    flat = not counted["wrong"] and grown <= ASKED_GROWTH
    return "\n".join(
        [
            f"idle consumer: {100 * share:.2f} % of a core (asked <= 2 %): "
            + ("reached" if share <= ASKED_IDLE else "missed"),
            f"{counted['messages']:,} messages of {SMALL} B: {counted['wrong']} lost or out of "
            f"order, {counted['per_second']:,.0f} per second, memory grew by "
            f"{grown / 1024:,.0f} KiB: " + ("reached" if flat else "missed"),
        ]
    )


def main() -> int:
    parser = Options(__doc__)
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--small", type=count, default=100_000, help="messages counted in order")
    parser.add_argument("--idle-seconds", type=positive, default=2.0)
    parser.add_out(OUT)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](json.load(sys.stdin))))
        return 0
    idles = [idle_share(options.idle_seconds) for _ in range(options.rounds)]
    counted = in_order(options.small)
    options.out.mkdir(parents=True, exist_ok=True)
    found = {"idle_shares": idles, "in_order": counted}
    (options.out / "channel.json").write_text(json.dumps(found, indent=1) + "\n")
    print(table(counted, idles))
    return 0


if __name__ == "__main__":
    sys.exit(main())
