"""Cores, threads and memory: who gets what, decided before anything starts."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tianji.config import Config
from tianji.core.child import command_for
from tianji.core.errors import TianJiError
from tianji.machine import mpirun
from tianji.roles.role_specs import Kind, group_of, kind_of, roles_of

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

SPIN_COUNT = "1000"
"""Turns that an idle thread of torch's pool spins before it sleeps, instead of 300,000.

On a core that has other work, a thread that spins keeps those from running that it waits for: PPO
on two cores beside two busy processes then learns from 2,000 samples per second instead of 50,000.
On idle cores it costs a sixth (100,000 to 84,000).
"""

MOST_THREADS = 4  # of a learner that was not given cores: small networks gain nothing beyond

GPU_FILES = ("nvidia[0-9]*", "kfd", "dxg")  # in /dev, of NVIDIA, AMD and Windows
TORCH_SECONDS = 30.0  # its first import reads hundreds of megabytes


@dataclass(frozen=True)
class Share:
    """What one process may use."""

    cores: tuple[int, ...]  # it runs on these only
    threads: int  # of its numerical libraries

    def environment(self) -> dict[str, str]:
        """Variables that must be set before the process loads its libraries."""
        threads = {name: str(self.threads) for name in THREAD_VARIABLES}
        threads["GOMP_SPINCOUNT"] = os.environ.get("GOMP_SPINCOUNT", SPIN_COUNT)
        return threads | {"TIANJI_CORES": ",".join(map(str, self.cores))}


def available_cores() -> tuple[int, ...]:
    """The cores that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def unbound_cores() -> tuple[int, ...]:
    """The cores of whoever started this process: mpirun may have bound it to just one of them."""
    try:
        return tuple(sorted(os.sched_getaffinity(os.getppid())))
    except OSError:
        return available_cores()


def quota() -> float | None:
    """The tightest CPU limit of this process's control group and those around it, in cores."""
    found = [limit for folder in _groups() if (limit := _quota_in(folder)) is not None]
    return min(found) if found else None


def _quota_in(group: Path) -> float | None:
    """Of a `cpu.max` as "50000 100000"; None without a limit."""
    try:
        maximum, _, period = (group / "cpu.max").read_text().strip().partition(" ")
        return None if maximum == "max" else int(maximum) / int(period or 100_000)
    except (OSError, ValueError):
        return None


def n_usable(cores: Collection[int], limit: float | None) -> int:
    """How many of `cores` can be kept busy; `limit` is the time that a control group allows.

    Rounded down: all processes of the group are stopped for a while when its time is used up.
    """
    return len(cores) if limit is None else max(1, min(len(cores), math.floor(limit)))


def usable_here() -> int:
    """Cores that a run started by this process can keep busy.

    It may run on more, where a container limits the time and not the cores.
    """
    inside = mpirun.inside() is not None  # each rank may be bound to a core of its own
    return n_usable(unbound_cores() if inside else available_cores(), quota())


IN_NUMPY = ("MLP", "GRU")  # networks that act without torch, unless a GPU is asked for


def devices_of(config: Config) -> dict[str, str]:
    """The device that each section of the configuration asks for: the CPU, the GPU or `auto`."""
    parallel = config.parallel
    acting = parallel.actor_cfg.device
    if acting == "auto" and config.model.type in IN_NUMPY:
        acting = "cpu"
    learning = parallel.learner_cfg.device
    return {"learner_cfg": learning, "actor_cfg": acting, "buffer_cfg": parallel.buffer_cfg.device}


def refuse_without_gpu(config: Config) -> None:
    """Raises where a section asks for a GPU that this machine has not."""
    wanted = [section for section, device in devices_of(config).items() if device == "cuda"]
    if wanted and gpu_of("cuda") is None:
        instead = "'cpu'" if wanted[0] == "buffer_cfg" else "'auto' or 'cpu'"
        raise TianJiError(
            f"{wanted[0]}.device='cuda': torch sees no GPU here: write {instead}, or leave "
            "it out; tianji doctor says more"
        )


def gpu_of(device: str) -> str | None:
    """The model of the GPU that is used with this device of a section; None: the CPU.

    Torch is asked in a process of its own, as by the doctor, and only where there may be a GPU.
    """
    if device == "cpu" or not any(next(Path("/dev").glob(name), None) for name in GPU_FILES):
        return None
    return _gpu_for_torch()


@cache
def _gpu_for_torch() -> str | None:
    gpus: list[str] = _asked_of_torch("gpus") or []
    return gpus[0] if gpus else None


def free_gpu_bytes() -> int | None:
    """Memory of the GPU that can still be taken; None where nobody knows."""
    free: int | None = _asked_of_torch("free_bytes", "free")
    return free


def _asked_of_torch(name: str, *words: str) -> Any:
    command = [*command_for("tianji.models.gpu"), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TORCH_SECONDS)
        return json.loads(done.stdout.strip().splitlines()[-1])[name]
    except (OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired):
        return None


def idle_seconds(cores: Collection[int], path: Path = Path("/proc/stat")) -> float | None:
    """Seconds that these cores have had nothing to do, all together, since the machine began."""
    names, ticks = {f"cpu{core}" for core in cores}, 0
    try:
        for line in path.read_text().splitlines():
            name, *fields = line.split()
            if name in names:
                ticks += int(fields[3]) + int(fields[4])  # idle, and waiting for a disk
    except (OSError, ValueError, IndexError):
        return None
    return ticks / os.sysconf("SC_CLK_TCK")


def assign(
    config: Config,
    cores: tuple[int, ...],
    alternates: bool,
    here: Collection[str] | None = None,
    usable: int | None = None,
) -> dict[str, Share]:
    """The share of every process, by name.

    `here` are the processes on this machine, all of them unless given; `usable` is how many of the
    cores can be kept busy, all of them unless given.

    A role that was given a number of cores has them to itself, side by side with those of its
    group. The others share what is left, or all cores where nothing is left. Where acting and
    learning take turns (`alternates`), actors may be given the cores of their own learner too.
    """
    parallel, given = config.parallel, _given(config)
    if here is not None:
        given = {home: n for home, n in given.items() if home in here}
    own = {home: n for home, n in given.items() if n is not None}
    shares, rest = _cut(own, cores, alternates)
    rest = rest or cores
    for home, n in given.items():
        if n is None:
            shares[home] = Share(rest, 1)
    if parallel.learner_cfg.cores is None:
        # While it learns all others of an alternating run are idle, and leave it their cores.
        taken = 0 if alternates else sum(own.values())
        beside = 0 if alternates else sum(_acts(home) for home in given if home not in own)
        most = len(cores) if usable is None else usable
        spare = min(len(rest), most - taken) - beside
        learners = [home for home in given if kind_of(home) is Kind.LEARNER]
        threads = min(max(1, spare // max(1, len(learners))), MOST_THREADS)
        shares |= dict.fromkeys(learners, Share(rest, threads))
    return shares


def _given(config: Config) -> dict[str, int | None]:
    """The number of cores that the configuration gives to each process."""
    parallel = config.parallel
    cores = {
        Kind.ACTOR: parallel.actor_cfg.cores,
        Kind.INFERENCE: parallel.actor_cfg.cores,
        Kind.BUFFER: parallel.buffer_cfg.cores,
        Kind.LEARNER: parallel.learner_cfg.cores,
    }
    alone = [role for role in roles_of(config) if role.home == role.name]
    return {role.home: cores.get(role.kind) for role in alone}


def _cut(
    wanted: dict[str, int], cores: tuple[int, ...], alternates: bool
) -> tuple[dict[str, Share], tuple[int, ...]]:
    """Cores for those who want some, and what is left of them."""
    shares: dict[str, Share] = {}
    folded = alternates and sum(wanted.values()) > len(cores)  # actors onto their learner's cores
    start = 0
    for group in sorted({group_of(home) for home in wanted}):
        members = [home for home in wanted if group_of(home) == group]
        end = start
        for acting in (False, True):
            at = start if folded else end
            for home in members:
                if _acts(home) is acting:
                    shares[home] = Share(cores[at : at + wanted[home]], wanted[home])
                    at += wanted[home]
            end = max(end, at)
        start = end
    if start > len(cores):
        acting_cores = sum(n for home, n in wanted.items() if _acts(home))
        raise TianJiError(
            f"parallel_parameters: learners and buffers want {sum(wanted.values()) - acting_cores} "
            f"cores, actors {acting_cores}, but this machine offers {len(cores)}: lower `cores` or "
            "`num`, or leave `cores` out"
        )
    return shares, cores[start:]


def _acts(home: str) -> bool:
    return kind_of(home) in (Kind.ACTOR, Kind.INFERENCE)


def free_bytes() -> int | None:
    """Memory that can still be taken, by the machine's and the control group's account."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError):
        pass
    limits += [limit for folder in _groups() if (limit := _free_in(folder)) is not None]
    return min(limits) if limits else None


def _groups(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """The control group of this process and those around it, each of which may have a limit."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    paths = [line.partition("::")[2] for line in lines if line.startswith("0::")]
    inner = root / paths[0].lstrip("/") if paths else root
    return [inner, *(parent for parent in inner.parents if parent.is_relative_to(root))]


def _free_in(group: Path) -> int | None:
    try:
        maximum = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        return None if maximum == "max" else int(maximum) - used
    except (OSError, ValueError):
        return None


def refuse_without_memory(
    needed: dict[str, int], free: int | None, room: int | None = None
) -> None:
    """Raises if what the run is going to take does not fit.

    `room` is how many samples the store keeps, where a number says so: then it is said what fits.
    """
    total = sum(needed.values())
    if free is None or total <= free:
        return
    parts = ", ".join(f"{name} {gib(n)}" for name, n in needed.items())
    fits = (
        0 if room is None else _room_within(free - total + needed["store"], needed["store"], room)
    )
    what = f"write hyp.buffer_size={fits} or less, or lower" if fits else "lower hyp.buffer_size,"
    raise TianJiError(
        f"not enough memory: this run needs {gib(total)} ({parts}) and {gib(free)} are free: "
        f"{what} actor_cfg.num, actor_cfg.envs or the rollout length"
    )


def refuse_without_gpu_memory(needed: int, fixed: int, free: int | None, room: int | None) -> None:
    """Raises if what stores of `room` samples keep on the GPU does not fit there.

    `fixed` of the bytes are needed however few samples they keep.
    """
    if free is None or needed <= free:
        return
    fits = 0 if room is None else _room_within(free - fixed, needed - fixed, room)
    what = f"write hyp.buffer_size={fits} or less" if fits else "lower hyp.buffer_size"
    raise TianJiError(
        f"not enough memory: with buffer_cfg.device='cuda' samples take {gib(needed)} of the GPU's "
        f"memory and {gib(free)} are free: {what}, or write buffer_cfg.device='cpu'"
    )


def _room_within(n_bytes: int, store_bytes: int, room: int) -> int:
    """How many of the `room` samples of a store fit, in two digits and not quite as many."""
    fits = max(0, int(0.99 * room * n_bytes / store_bytes))
    digits: int = 10 ** max(0, len(str(fits)) - 2)
    return fits // digits * digits


def gib(n_bytes: int) -> str:
    """As in `6.61 GiB`."""
    return f"{n_bytes / 2**30:,.2f} GiB"


def process_started_at() -> float:
    """When this process began, on the clock of `time.monotonic`."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        ago = time.clock_gettime(time.CLOCK_BOOTTIME) - started
        return time.monotonic() - ago
    except (OSError, AttributeError, ValueError, IndexError):
        return time.monotonic()
