"""Measures how learners of a group average their gradients: our channels against torch's gloo.

Both do the same in the same processes and in turns: each of N processes has a vector, and ends with
the mean of all. Ours is `tianji.roles.allreduce` over shared-memory rings, driven as a worker
process does it, with sleep when there is nothing to do. Gloo is `torch.distributed.all_reduce`
on the loopback device and a division. Shown is the median time of one exchange as the first
process sees it.

    python bench/allreduce.py                       # 2 and 4 processes, 4 KB to 8 MB
    python bench/allreduce.py --processes 2 --rounds 3

See bench/README.md for the figures that decided which of the two is used.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
from measures import Spread
from options import OUT, Options, at_least, count
from transmission.loops import until

from tianji.core.channel import ChannelSpec
from tianji.roles.allreduce import AllReduce, exchange_schema
from tianji.transports.shm import ShmTransport

SIZES = (4 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20)  # bytes
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}  # of the processes
SECONDS = 0.5  # that one measurement may take, roughly
Floats = npt.NDArray[np.float32]


def repeats(size: int) -> int:
    """Exchanges per measurement."""
    return max(20, min(400, int(SECONDS * 2e9 / size / 8)))


TRANSPORTS: list[ShmTransport] = []  # of this process: one, once it is attached
EXCHANGES: dict[int, AllReduce] = {}  # by size


def exchange_for(brief: dict[str, Any], rank: int, size: int) -> AllReduce:
    """The ends of the channels for vectors of one size, made once."""
    if not TRANSPORTS:
        TRANSPORTS.append(ShmTransport.attach(brief["transport"], f"p{rank}"))
    transport, others = TRANSPORTS[0], [i for i in range(brief["n"]) if i != rank]
    if size not in EXCHANGES:
        EXCHANGES[size] = AllReduce(
            rank,
            {i: transport.outbox(f"{size} {rank}>{i}") for i in others},
            {i: transport.inbox(f"{size} {i}>{rank}") for i in others},
            size // 4,
        )
    return EXCHANGES[size]


def ours(brief: dict[str, Any], rank: int, size: int, n: int) -> list[float]:
    """Seconds of each exchange, over the channels."""
    exchange = exchange_for(brief, rank, size)
    transport = TRANSPORTS[0]
    vector, times = np.empty(size // 4, np.float32), []

    def update() -> Generator[Floats, None, dict[str, float]]:
        for _ in range(n):
            vector[:] = rank
            began = time.perf_counter()
            yield vector
            times.append(time.perf_counter() - began)
        return {"mean": float(vector[-1])}

    exchange.begin(update())
    while exchange.scalars is None:
        until(transport, exchange.step)
    assert exchange.scalars["mean"] == (brief["n"] - 1) / 2
    return times


def gloo(brief: dict[str, Any], rank: int, size: int, n: int) -> list[float]:
    """Seconds of each exchange, by torch.distributed."""
    import torch
    from torch import distributed

    if not distributed.is_initialized():
        distributed.init_process_group(
            "gloo", init_method=f"file://{brief['store']}", rank=rank, world_size=brief["n"]
        )
    vector, times = torch.empty(size // 4), []
    for _ in range(n):
        vector[:] = rank
        began = time.perf_counter()
        distributed.all_reduce(vector)
        vector /= brief["n"]
        times.append(time.perf_counter() - began)
    assert float(vector[-1]) == (brief["n"] - 1) / 2
    return times


def child(rank: int) -> None:
    """Takes part in everything that the brief on standard input names."""
    brief = json.loads(sys.stdin.read())
    found: dict[str, list[float]] = {}
    for size in SIZES:
        for _ in range(brief["rounds"]):
            for way in (gloo, ours):  # gloo first: whoever comes late is not measured with ours
                way(brief, rank, size, 3)
                times = way(brief, rank, size, repeats(size))
                found.setdefault(f"{way.__name__} {size}", []).append(statistics.median(times))
    if rank == 0:
        print(json.dumps(found))


def measure(n: int, rounds: int) -> dict[str, list[float]]:
    """Medians of every round, by way and size."""
    names = [f"p{i}" for i in range(n)]
    pairs = [(size, i, j) for size in SIZES for i in range(n) for j in range(n) if i != j]
    specs = [
        ChannelSpec(f"{size} {i}>{j}", names[i], (names[j],), exchange_schema(size // 4))
        for size, i, j in pairs
    ]
    transport = ShmTransport.create(specs, {name: name for name in names})
    about = transport.describe()
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(
            {"transport": about, "n": n, "rounds": rounds, "store": f"{folder}/store"}
        )
        children = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", str(rank)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT | os.environ,
                pass_fds=(about["memory"], *about["events"].values()),
            )
            for rank in range(n)
        ]
        for process in children:
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.close()
            process.stdin = None
        out = [process.communicate()[0] for process in children]
    transport.close()
    assert all(process.returncode == 0 for process in children)
    found: dict[str, list[float]] = json.loads(out[0])
    return found


def main() -> None:
    """Prints a table for each number of processes, and writes the raw medians."""
    parser = Options(__doc__)
    parser.add_argument("--processes", type=at_least(2), nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=count, default=5)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        child(given.child)
        return
    raw = {}
    for n in given.processes:
        raw[n] = found = measure(n, given.rounds)
        print(f"\n{n} processes, {os.cpu_count()} cores: microseconds per exchange, median (range)")
        print(f"{'vector':>8}  {'ours':>24}  {'gloo':>24}  ours/gloo")
        for size in SIZES:
            cells, middles = [], []
            for way in ("ours", "gloo"):
                times = Spread.of(1e6 * t for t in found[f"{way} {size}"])
                middles.append(times.middle)
                cells.append(times.text(0))
            ratio = middles[0] / middles[1]
            print(f"{size >> 10:>5} KB  {cells[0]:>24}  {cells[1]:>24}  {ratio:>9.2f}")
    OUT.mkdir(exist_ok=True)
    (OUT / "allreduce.json").write_text(json.dumps(raw, indent=2) + "\n")


if __name__ == "__main__":
    main()
