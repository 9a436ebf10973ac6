"""The doctor's judgements: pure functions from what was read to what is to be said about it."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tianji.machine.resources import THREAD_VARIABLES
from tianji.tools.doctor.echo import Echo

GIB = 2**30
LEAST_MEMORY, GOOD_MEMORY = 0.5 * GIB, 2 * GIB  # torch alone takes 0.2 GiB
LEAST_DISK, GOOD_DISK = 0.1 * GIB, GIB
SLOW_FSYNC_SECONDS = 0.5
MANY_ACTORS = 64
FILES_PER_CHILD = 3  # its doorbell, its log and the pipe of its description
OTHER_FILES = 40  # of the launcher: libraries, metrics, terminal
UNLIMITED = -1  # as the operating system writes it
SLOW_ROUND_TRIP = 2e-3  # seconds; a bell that wakes takes a tenth of a millisecond
COARSE_CLOCK = 1e-3  # seconds
RELEASE_YEAR = 2025  # no clock that is right shows an earlier one
INSTALL_MPI = "pip install 'tianji[mpi]'"
NEEDED = ("torch", "numpy", "gymnasium", "safetensors", "rich", "tensorboardx")
OPTIONAL = {  # what a package is for, and the extra that brings it, where there is one
    "tensorboard": ("looking at a run's event files", "tensorboard"),
    "wandb": ("Weights & Biases", "wandb"),
    "trackio": ("metrics in trackio", "trackio"),
    "onnx": ("tianji export", "onnx"),
    "onnxruntime": ("tianji export", "onnx"),
    "onnxscript": ("tianji export of CNNs, of several agents and of modules of your own", "onnx"),
    "ale-py": ("Atari environments", "atari"),
    "pettingzoo": ("environments of several agents", "mpe"),
    "mpe2": ("particle environments", "mpe"),
    "lbforaging": ("level-based foraging", "lbf"),
    "jaxmarl": ("SMAX, and particle environments in JAX", "smax"),
    "pygame-ce": ("gymnasium's windows", ""),
    "pillow": ("videos as .gif", "video"),
    "imageio-ffmpeg": ("videos as .mp4", "video"),
}


class Verdict(enum.StrEnum):
    """How a finding is to be taken."""

    ABSENT = "-"  # not there, and nothing is wrong about that
    OK = "ok"
    NOTE = "note"  # runs work, but slower or with less than the machine could give
    PROBLEM = "problem"  # some runs, or all, will fail


NOTE, PROBLEM = Verdict.NOTE, Verdict.PROBLEM


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at: one line of the doctor's table."""

    what: str
    found: str
    verdict: Verdict = Verdict.OK
    advice: str = ""  # what to do; empty if there is nothing to do
    section: str = ""  # those that belong together have the same


@dataclass(frozen=True)
class Answer:
    """What a command or a library said."""

    found: bool  # it is there at all
    value: Any = None
    error: str = ""


def judged(what: str, found: str, *rules: tuple[bool, Verdict, str]) -> Finding:
    """The first rule that holds says how a finding is to be taken, and what to do; or all is well.

    A rule is a condition, a verdict and advice.
    """
    verdict, advice = next((rule[1:] for rule in rules if rule[0]), (Verdict.OK, ""))
    return Finding(what, found, verdict, advice)


def platform(name: str, machine: str, has_events: bool) -> Finding:
    """Can processes share memory here the way that the process engine does it?"""
    able = name == "Linux" and has_events
    return judged(
        "platform",
        f"{name} {machine}, {'with memfd and' if able else 'without memfd or'} eventfd",
        (not able, PROBLEM, "the process engine needs Linux: use --engine local here"),
        (
            machine not in ("x86_64", "AMD64"),
            NOTE,
            "the channels without locks are proven on x86-64 alone: prefer --engine local",
        ),
    )


def cores(available: int, present: int, limit: float | None) -> Finding:
    """Enough for an actor beside a learner? `limit` is the control group's, in cores."""
    found, usable = f"{available} of {present}", min(available, limit or available)
    if usable < available:
        found += f", but cpu.max allows the time of {usable:g}"
    return judged(
        "cores",
        found,
        (usable < 1, PROBLEM, "raise the CPU limit of the container to 2 cores or more"),
        (
            usable < available,
            NOTE,
            "every process is stopped when the time is used up: ask for whole cores (cpuset)",
        ),
        (
            usable < 2,
            NOTE,
            "roles take turns: give it 2 cores, or use --engine local for tiny jobs",
        ),
    )


def threads(variables: Mapping[str, str], n_cores: int) -> Finding:
    """Do variables in the environment make numerical libraries fight for the cores?"""
    given = {name: variables[name] for name in THREAD_VARIABLES if name in variables}
    listed = ", ".join(f"{name}={value}" for name, value in given.items())
    return judged(
        "threads",
        f"{listed or 'no variable is set'}; the process engine sets them for each role",
        (
            any(not value.isdigit() or int(value) > n_cores for value in given.values()),
            NOTE,
            f"more than the {n_cores} cores here: unset it for --engine local and your own scripts",
        ),
    )


def memory(free: int | None, total: int) -> Finding:
    """Room for libraries, channels and a replay store?"""
    if free is None:
        advice = "a run cannot check beforehand that it fits"
        return Finding("memory", "cannot be read here", NOTE, advice)
    return judged(
        "memory",
        f"{gib(free)} free of {gib(total)}",
        (free < LEAST_MEMORY, PROBLEM, "a small run needs 0.5 GiB: free or add some"),
        (free < GOOD_MEMORY, NOTE, "keep hyp.buffer_size and actor_cfg.num small"),
    )


def open_files(soft: int, hard: int) -> Finding:
    """Enough descriptors for a launcher with many actors? -1 is no limit."""
    wanted = FILES_PER_CHILD * (MANY_ACTORS + 2) + OTHER_FILES
    allowed = "unlimited" if soft == UNLIMITED else f"{soft:,} allowed"
    too_few, for_ever = (limit != UNLIMITED and limit < wanted for limit in (soft, hard))
    most = max(1, (soft - OTHER_FILES) // FILES_PER_CHILD - 2)
    return judged(
        "open files",
        f"{allowed}, {wanted} needed with {MANY_ACTORS} actors"
        + (f", enough for {most}" if too_few else ""),
        (too_few and for_ever, NOTE, "have the hard limit raised (nofile)"),
        (too_few, NOTE, "ulimit -n 1024"),
    )


def disk(free: int, fsync_seconds: float) -> Finding:
    """Is a disk with so many free bytes large and fast enough?"""
    return judged(
        "disk",
        f"{gib(free)} free, 1 MB safely written in {fsync_seconds * 1000:,.0f} ms",
        (free < LEAST_DISK, PROBLEM, "free some space, or name another disk with --run-dir"),
        (free < GOOD_DISK, NOTE, "checkpoints with a replay store may not fit: use --run-dir"),
        (
            fsync_seconds > SLOW_FSYNC_SECONDS,
            NOTE,
            "checkpoints will be slow: use a local disk with --run-dir",
        ),
    )


def channel(echo: Echo) -> Finding:
    """Does a message reach another process and wake it?"""
    if echo.error:
        found = f"two processes could not talk: {echo.error}"
        return Finding("channel", found, PROBLEM, "use --engine local here")
    return judged(
        "channel",
        f"{echo.messages:,} messages there and back, {echo.round_trip_seconds * 1e6:,.0f} us each",
        (
            echo.round_trip_seconds > SLOW_ROUND_TRIP,
            NOTE,
            "the machine is busy, or bells do not wake: try again when it is idle",
        ),
    )


def clock(resolution_seconds: float, year: int, shared: bool) -> Finding:
    """Fine enough, set, and the same in every process?"""
    same = "the same in every process" if shared else "not the same in every process"
    return judged(
        "clock",
        f"ticks of {resolution_seconds * 1e9:,.0f} ns, {same}, year {year}",
        (not shared, PROBLEM, "times of runs would be wrong: leave the time namespace"),
        (
            year < RELEASE_YEAR,
            PROBLEM,
            "set the system's clock: names and times of runs use it",
        ),
        (
            resolution_seconds > COARSE_CLOCK,
            NOTE,
            "times of single steps will be coarse on this machine",
        ),
    )


def gpu(torch: Answer, driver: Answer, visible: str | None) -> Finding:
    """Is there one, and can torch use it?

    `torch` is what tianji.models.gpu printed, `driver` names the GPUs of nvidia-smi, and
    `visible` is CUDA_VISIBLE_DEVICES.
    """
    if torch.error:
        found = f"torch cannot be loaded: {torch.error}"
        return Finding("GPU", found, PROBLEM, "install torch again")
    usable, built_for = torch.value["gpus"], torch.value["built_for"]
    if usable:
        return Finding("GPU", f"{'; '.join(usable)} (torch for {built_for})")
    if not driver.found:
        return Finding("GPU", "none; learners compute on the CPU")
    return judged(
        "GPU",
        f"{'; '.join(driver.value)}, which torch does not use"
        + ("" if visible is None else f", with CUDA_VISIBLE_DEVICES={visible!r}"),
        (visible is not None, NOTE, "unset it, or name the GPU there (0 is the first)"),
        (
            built_for is None,
            NOTE,
            "torch is a build for the CPU: install one for CUDA to use the GPU",
        ),
        (
            True,
            PROBLEM,
            f"torch for {built_for} cannot use it: update the driver, or install an older build",
        ),
    )


def mpi(binding: Answer, starter: Answer) -> Finding:
    """Could a run use several machines? `starter` is the mpirun that belongs to mpi4py."""
    if not binding.found:
        advice = f"{INSTALL_MPI} for runs over several machines"
        return Finding("MPI", "not installed", Verdict.ABSENT, advice)
    if binding.error:
        return Finding("MPI", f"mpi4py does not load: {binding.error}", NOTE, INSTALL_MPI)
    found = f"mpi4py {binding.value['version']}, {binding.value['library']}"
    found += "" if starter.error else f", {starter.value}"
    return judged("MPI", found, (bool(starter.error), NOTE, starter.error))


def ulfm(binding: Answer, build: Answer) -> Finding:
    """Could survivors of a lost rank go on? `build` is the answer of ompi_info."""
    built = "options:ft_mpi_support:yes" in (build.value or "").splitlines()
    if built and binding.value["revoke"]:
        return Finding("ULFM", "in this MPI: training goes on without an actor that was lost")
    advice = f"a rank that is lost ends the run: {INSTALL_MPI} brings one that goes on"
    return Finding("ULFM", "not in this MPI", NOTE, advice)


def needed(name: str, version: str | None, least: str | None) -> Finding:
    """Is a library there, and new enough?"""
    advice = f"pip install '{name}>={least}'" if least else f"pip install {name}"
    old = version is not None and least is not None and numbers(version) < numbers(least)
    found = f"{version}, older than {least}" if old else version or "not installed"
    return judged(name, found, (version is None or old, PROBLEM, advice))


def optional(name: str, version: str | None) -> Finding:
    """Whether a feature has what it wants; nothing is wrong if it has not."""
    purpose, extra = OPTIONAL[name]
    if version is not None:
        return Finding(name, f"{version}, for {purpose}")
    wanted = f"'tianji[{extra}]'" if extra else name
    return Finding(name, "not installed", Verdict.ABSENT, f"pip install {wanted} for {purpose}")


def numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0), to be compared."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def gib(n_bytes: float) -> str:
    """As in `0.5 GiB` or `24 GiB`."""
    size = n_bytes / GIB
    return f"{size:,.0f} GiB" if size >= 10 else f"{size:,.2g} GiB"
