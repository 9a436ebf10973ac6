"""Measures the shared-memory channel against plain copies of the same bytes, in one run.

A copy that has the machine to itself is shown beside the same copy next to a busy neighbour: where
two "cores" are the two threads of one, or share the way to their memory, a sender and a receiver
that are both awake can only ever have the second rate between them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH.parent))

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402

from tianji.channel import ChannelSpec  # noqa: E402
from tianji.schema import Field, Schema  # noqa: E402
from tianji.transports.shm import ShmTransport  # noqa: E402

Bytes = npt.NDArray[np.uint8]

MESSAGE = 512 * 1024  # bytes
DEPTH = 8  # messages in flight; every working set here has this many
STORE = 64  # messages that a receiver keeps
PAGE = 4096
NAP_SECONDS = 0.02  # longest sleep of a process that was not woken, as in a training run
SMALL = 64  # bytes of the messages that are only counted
ASKED_RATE, ASKED_IDLE, ASKED_GROWTH = 0.80, 0.02, 1 << 20


def until(transport: ShmTransport, attempt: Callable[[], Any]) -> Any:
    """Tries until it succeeds, sleeping as a worker process does."""
    while not (found := attempt()):
        transport.arm()
        if found := attempt():
            transport.disarm()
            return found
        transport.wait(NAP_SECONDS)
    return found


def resident_bytes() -> int:
    """Memory of this process alone; shared mappings are left out."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


# ----------------------------------------------------------------------------------------- children


def send(brief: dict[str, Any]) -> dict[str, int]:
    """Fills `n` messages with a copy each, numbers them, and closes the channel."""
    transport = ShmTransport.attach(brief["transport"], "sender")
    outbox, n, early = transport.outbox("ring"), brief["n"], 0
    source = np.ones(brief["size"], np.uint8)
    for i in range(n):
        slot = until(transport, outbox.slot)
        np.copyto(slot["data"], source)
        outbox.commit(i)
        if i == n // 5:
            early = resident_bytes()
    outbox.close()
    return {"early": early, "late": resident_bytes()}


def fill(brief: dict[str, Any]) -> dict[str, int]:
    """Copies into shared memory without a channel, until it is told to stop."""
    flags, slots = plain_memory(brief["memory"])
    source = np.ones(MESSAGE, np.uint8)
    for i in itertools.count():
        np.copyto(slots[i % DEPTH], source)
        flags[0] = i >= DEPTH
        if flags[1]:
            return {"filled": i}
    raise AssertionError("count has no end")


def touch_pages(brief: dict[str, Any]) -> dict[str, int]:
    """Does what a receiver of views does, on memory of its own, until it is told to stop."""
    flags, _ = plain_memory(brief["memory"])
    store = warm_store(DEPTH)
    for i in itertools.count():
        touch(store[i % DEPTH], i)
        flags[0] = 1
        if flags[1]:
            return {"touched": i}
    raise AssertionError("count has no end")


def idle(brief: dict[str, Any]) -> dict[str, float]:
    """Waits for messages that never come; returns its share of a core."""
    transport = ShmTransport.attach(brief["transport"], "receiver")
    inbox = transport.inbox("ring")
    began, cpu = time.monotonic(), time.process_time()
    until(transport, lambda: inbox.take() or time.monotonic() - began > brief["seconds"])
    return {"share": (time.process_time() - cpu) / (time.monotonic() - began)}


CHILDREN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "send": send,
    "fill": fill,
    "touch": touch_pages,
    "idle": idle,
}


@contextmanager
def child(name: str, brief: dict[str, Any], descriptors: list[int]) -> Iterator[dict[str, Any]]:
    """Runs one of CHILDREN beside the body; its result is in the dict once the body has ended."""
    result: dict[str, Any] = {}
    words = [sys.executable, __file__, "--child", name]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, stdin=pipe, stdout=pipe, pass_fds=descriptors, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            json.dump(brief, process.stdin)
            process.stdin.close()
            yield result
            result |= json.load(process.stdout)
        except BaseException:
            process.kill()
            raise


# ------------------------------------------------------------------------------------- measurements


def plain_memory(descriptor: int) -> tuple[memoryview, list[Bytes]]:
    """(flags, slots) of a shared mapping without any channel in it."""
    whole = np.frombuffer(mmap.mmap(descriptor, PAGE + DEPTH * MESSAGE), np.uint8)
    slots = [whole[PAGE + i * MESSAGE :][:MESSAGE] for i in range(DEPTH)]
    return whole[:16].data.cast("q"), slots


def warm_store(n: int) -> list[Bytes]:
    """`n` messages' worth of private memory that has been touched."""
    return list(np.ones((n, MESSAGE), np.uint8))


def gigabytes_per_second(n: int, seconds: float) -> float:
    return n * MESSAGE / seconds / 1e9


def memcpy_rate(n: int) -> float:
    """A warm buffer copied into as many others as a ring has slots, in one process."""
    source, targets = np.ones(MESSAGE, np.uint8), warm_store(DEPTH)
    for target in targets:
        np.copyto(target, source)
    began = time.perf_counter()
    for i in range(n):
        np.copyto(targets[i % DEPTH], source)
    return gigabytes_per_second(n, time.perf_counter() - began)


def touch(data: Bytes, _: int) -> None:
    """Reads one byte of each page."""
    data[::PAGE].any()


def ring_rate(n: int, use: Callable[[Bytes, int], Any]) -> float:
    """Messages from one process to another; `use` is what the receiver does with each."""
    with ring(MESSAGE) as transport:
        inbox = transport.inbox("ring")
        brief = {"transport": transport.describe(), "n": n + DEPTH, "size": MESSAGE}
        with child("send", brief, descriptors(transport)):
            for i in range(DEPTH):  # warm: every slot was mapped by both
                use(until(transport, inbox.take).arrays["data"], i)
            began = time.perf_counter()
            for i in range(n):
                use(until(transport, inbox.take).arrays["data"], i)
            return gigabytes_per_second(n, time.perf_counter() - began)


def copy_to(store: list[Bytes]) -> Callable[[Bytes, int], None]:
    def copy(data: Bytes, i: int) -> None:
        np.copyto(store[i % STORE], data)

    return copy


@contextmanager
def neighbour(name: str) -> Iterator[list[Bytes]]:
    """A child at work on plain shared memory for as long as the body runs."""
    memory = os.memfd_create("plain")
    os.ftruncate(memory, PAGE + DEPTH * MESSAGE)
    flags, slots = plain_memory(memory)
    with child(name, {"memory": memory}, [memory]):
        while not flags[0]:
            time.sleep(0.001)
        yield slots
        flags[1] = 1
    os.close(memory)


def unsynchronised_rate(n: int, store: list[Bytes]) -> float:
    """The same copy into a store while another process writes the memory; nobody tells anybody."""
    copy = copy_to(store)
    with neighbour("fill") as slots:
        for i in range(DEPTH):
            copy(slots[i], i)
        began = time.perf_counter()
        for i in range(n):
            copy(slots[i % DEPTH], i)
        return gigabytes_per_second(n, time.perf_counter() - began)


def at_rest_rate(n: int, store: list[Bytes]) -> float:
    """The same copy into a store while nobody writes."""
    copy, slots = copy_to(store), warm_store(DEPTH)
    began = time.perf_counter()
    for i in range(n):
        copy(slots[i % DEPTH], i)
    return gigabytes_per_second(n, time.perf_counter() - began)


def memcpy_rate_beside(n: int) -> float:
    """The same as `memcpy_rate` while another process reads memory of its own."""
    with neighbour("touch"):
        return memcpy_rate(n)


def in_order(n: int) -> dict[str, Any]:
    """Many small messages: whether all came in order, how fast, and how both ends' memory grew."""
    with ring(SMALL) as transport:
        inbox, wrong, early = transport.inbox("ring"), 0, 0
        brief = {"transport": transport.describe(), "n": n, "size": SMALL}
        with child("send", brief, descriptors(transport)) as sender:
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
    with ring(SMALL) as transport:
        brief = {"transport": transport.describe(), "seconds": seconds}
        with child("idle", brief, descriptors(transport)) as consumer:
            pass
        return float(consumer["share"])


@contextmanager
def ring(size: int) -> Iterator[ShmTransport]:
    """A channel of messages of `size` bytes, seen from its receiver."""
    schema = Schema((Field("data", "uint8", (size,)),))
    spec = ChannelSpec("ring", "sender", ("receiver",), schema, depth=DEPTH)
    homes = {"sender": "sender", "receiver": "receiver"}
    transport = ShmTransport.create([spec], homes, home="receiver")
    yield transport
    transport.close()


def descriptors(transport: ShmTransport) -> list[int]:
    description = transport.describe()
    return [description["memory"], *description["events"].values()]


# -------------------------------------------------------------------------------------------- table


def one_round(n: int, store: list[Bytes]) -> dict[str, float]:
    """All rates once, close together in time, and their ratios."""
    rates = {
        "memcpy": memcpy_rate(n),
        "memcpy_beside": memcpy_rate_beside(n),
        "views": ring_rate(n, touch),
        "at_rest": at_rest_rate(n, store),
        "unsynchronised": unsynchronised_rate(n, store),
        "stored": ring_rate(n, copy_to(store)),
    }
    rates["views_ratio"] = rates["views"] / rates["memcpy"]
    rates["views_ratio_beside"] = rates["views"] / rates["memcpy_beside"]
    rates["stored_ratio"] = rates["stored"] / rates["unsynchronised"]
    return {name: round(value, 3) for name, value in rates.items()}


def line(name: str, values: list[float], unit: str, asked: str = "", reached: bool = True) -> str:
    spread = f"{min(values):.2f}-{max(values):.2f}"
    verdict = f"{asked}: {'reached' if reached else 'missed'}" if asked else ""
    return f"{name:<46}{statistics.median(values):>8.2f} {unit:<6}{spread:>14}  {verdict}".rstrip()


def ratio(name: str, values: list[float]) -> str:
    return line(name, values, "", ">= 0.80", statistics.median(values) >= ASKED_RATE)


def table(rounds: list[dict[str, float]], counted: dict[str, Any], idles: list[float]) -> str:
    of = {name: [r[name] for r in rounds] for name in rounds[0]}
    grown, percent = counted["grown_bytes"], [100 * value for value in idles]
    flat = not counted["wrong"] and grown <= ASKED_GROWTH
    lines = [
        f"512 KB messages, {DEPTH} in flight, medians of {len(rounds)}",
        line("memcpy, warm, nothing else running", of["memcpy"], "GB/s"),
        line("memcpy, warm, beside a busy process", of["memcpy_beside"], "GB/s"),
        line("ring, as views", of["views"], "GB/s"),
        ratio("  of memcpy with nothing else running", of["views_ratio"]),
        ratio("  of memcpy beside a busy process", of["views_ratio_beside"]),
        line("copy into a store, one process", of["at_rest"], "GB/s"),
        line("copy into a store, two processes, no channel", of["unsynchronised"], "GB/s"),
        line("ring, with the copy into a store", of["stored"], "GB/s"),
        ratio("  of that copy without a channel", of["stored_ratio"]),
        line("idle consumer", percent, "% CPU", "<= 2 %", statistics.median(idles) <= ASKED_IDLE),
        f"{counted['messages']:,} messages of {SMALL} B: {counted['wrong']} lost or out of order, "
        f"{counted['per_second']:,.0f} per second, memory grew by {grown / 1024:,.0f} KiB: "
        + ("reached" if flat else "missed"),
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=6_000, help="512 KB messages per figure")
    parser.add_argument("--small", type=int, default=100_000, help="messages counted in order")
    parser.add_argument("--idle-seconds", type=float, default=2.0)
    parser.add_argument("--out", type=Path, default=BENCH / "out")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(CHILDREN[options.child](json.load(sys.stdin))))
        return 0
    store = warm_store(STORE)
    rounds = [one_round(options.messages, store) for _ in range(options.rounds)]
    idles = [idle_share(options.idle_seconds) for _ in range(options.rounds)]
    counted = in_order(options.small)
    options.out.mkdir(parents=True, exist_ok=True)
    found = {"rounds": rounds, "idle_shares": idles, "in_order": counted}
    (options.out / "channel.json").write_text(json.dumps(found, indent=1) + "\n")
    print(table(rounds, counted, idles))
    return 0


if __name__ == "__main__":
    sys.exit(main())
