"""The processes of a run as the kernel sees them: who there is, and what each has open."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WORKER = "tianji.tools.chaos.faulty_worker"  # what the children of a run under test execute
PROC = Path("/proc")


@dataclass(frozen=True)
class Usage:
    """What some processes take together."""

    memory_bytes: int = 0  # what several share is counted once
    open_files: int = 0
    threads: int = 0
    segments: int = 0  # of shared memory, each process's own view of each counted
    names: frozenset[str] = frozenset()  # of those that have one in the file system


def children_of(pid: int) -> dict[str, int]:
    """The worker processes of a launcher by their role, without those that only wait to be reaped.

    Where two have the same role, it is the younger one.
    """
    found = dict[str, int]()
    for child in sorted(_offspring(pid)):
        words = _read(child, "cmdline").split(b"\0")
        if WORKER.encode() in words[:-1] and is_alive(child):
            found[words[words.index(WORKER.encode()) + 1].decode()] = child
    return found


def _offspring(pid: int) -> list[int]:
    """All children, whichever thread started them."""
    found = list[int]()
    with suppress(OSError):  # it has gone
        for thread in (PROC / str(pid) / "task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def is_there(pid: int) -> bool:
    """Whether a process has not been reaped."""
    return (PROC / str(pid)).exists()


def is_alive(pid: int) -> bool:
    """Whether a process runs, or could; one that only waits to be reaped does not."""
    return _group_of(pid) is not None


def members_of(groups: Collection[int]) -> dict[int, int]:
    """Everybody alive in these process groups, and in which."""
    pids = [int(path.name) for path in PROC.glob("[0-9]*")]
    return {pid: group for pid in pids if (group := _group_of(pid)) in groups and group}


def _group_of(pid: int) -> int | None:
    """The process group of one that is alive."""
    state, *more = _read(pid, "stat").rpartition(b")")[2].split() or [b"X"]
    return None if state in (b"Z", b"X") else int(more[1])


def usage(pids: Iterable[int]) -> Usage:
    """What processes take together; those that have gone take nothing."""
    each = [_usage(pid) for pid in pids]
    return Usage(
        sum(one.memory_bytes for one in each),
        sum(one.open_files for one in each),
        sum(one.threads for one in each),
        sum(one.segments for one in each),
        frozenset().union(*(one.names for one in each)),
    )


def _usage(pid: int) -> Usage:
    memory = _field(pid, "smaps_rollup", b"Pss:") or _field(pid, "status", b"VmRSS:")
    targets = open_files(pid)
    names = frozenset(target for target in targets if target.startswith("/dev/shm/"))
    segments = len(names) + sum(target.startswith("/memfd:") for target in targets)
    return Usage(memory * 1024, len(targets), _field(pid, "status", b"Threads:"), segments, names)


def open_files(pid: int) -> list[str]:
    """What the descriptors of a process lead to."""
    found = list[str]()
    with suppress(OSError):  # it has gone
        for link in (PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):  # this one was closed just now
                found.append(os.readlink(link))
    return found


def _field(pid: int, file: str, name: bytes) -> int:
    for line in _read(pid, file).splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def _read(pid: int, file: str) -> bytes:
    try:
        return (PROC / str(pid) / file).read_bytes()
    except OSError:
        return b""
