"""The doctor's judgements: pure functions from what was read to what is to be said about it."""

from __future__ import annotations

from collections.abc import Mapping

from tianji.machine.resources import THREAD_VARIABLES
from tianji.tools.doctor.finding import Finding, absent, note, ok, problem
from tianji.tools.doctor.readings import Answer, Disk, Echo

LEAST_PYTHON = (3, 11)
LEAST_GIB, GOOD_GIB = 0.5, 2.0  # of memory: torch alone takes 0.2
LEAST_DISK_GIB, GOOD_DISK_GIB = 0.1, 1.0
SLOW_FSYNC_SECONDS = 0.5
MANY_ACTORS = 64
FILES_PER_CHILD = 3  # its doorbell, its log and the pipe of its description
OTHER_FILES = 40  # of the launcher: libraries, metrics, terminal
UNLIMITED = -1  # as the operating system writes it
SLOW_ROUND_TRIP = 2e-3  # seconds; a bell that wakes takes a tenth of a millisecond
COARSE_CLOCK = 1e-3  # seconds
RELEASE_YEAR = 2025  # no clock that is right shows an earlier one


def python(version: tuple[int, int, int]) -> Finding:
    """New enough?"""
    found = ".".join(map(str, version))
    if version[:2] < LEAST_PYTHON:
        return problem("Python", found, "install Python 3.11 or newer and set up again")
    return ok("Python", found)


def platform(system: str, machine: str, has_events: bool) -> Finding:
    """Can processes share memory here the way that the process engine does it?"""
    found = f"{system} {machine}"
    if system != "Linux" or not has_events:
        return problem(
            "platform",
            f"{found}, without memfd or eventfd",
            "the process engine needs Linux: use --engine local here",
        )
    if machine not in ("x86_64", "AMD64"):
        return note(
            "platform",
            found,
            "the channels without locks are proven on x86-64 alone: prefer --engine local",
        )
    return ok("platform", f"{found}, with memfd and eventfd")


def cores(available: int, present: int, quota: float | None) -> Finding:
    """Enough for an actor beside a learner? `quota` is the control group's limit, in cores."""
    found = f"{available} of {present}"
    if quota is not None and quota < available:
        found += f", but cpu.max allows the time of {quota:g}"
    usable = available if quota is None else min(quota, available)
    if usable < 1:
        return problem("cores", found, "raise the CPU limit of the container to 2 cores or more")
    if quota is not None and quota < available:
        advice = "every process is stopped when the time is used up: ask for whole cores (cpuset)"
        return note("cores", found, advice)
    if usable < 2:
        return note(
            "cores", found, "roles take turns: give it 2 cores, or use --engine local for tiny jobs"
        )
    return ok("cores", found)


def threads(variables: Mapping[str, str], n_cores: int) -> Finding:
    """Do variables in the environment make numerical libraries fight for the cores?"""
    given = {name: variables[name] for name in THREAD_VARIABLES if name in variables}
    if not given:
        return ok("threads", "no variable is set; the process engine sets them for each role")
    found = ", ".join(f"{name}={value}" for name, value in given.items())
    wrong = [value for value in given.values() if not value.isdigit() or int(value) > n_cores]
    if wrong:
        return note(
            "threads",
            found,
            f"more than the {n_cores} cores here: unset it for --engine local and your own "
            "scripts; the process engine sets its own for each role",
        )
    return ok("threads", f"{found}; for the local engine, the process engine sets its own")


def memory(free: int | None, total: int | None) -> Finding:
    """Room for libraries, channels and a replay store?"""
    if free is None:
        return note("memory", "cannot be read here", "a run cannot check beforehand that it fits")
    of = "" if total is None else f" of {_gib(total)}"
    found = f"{_gib(free)} free{of}"
    if free < LEAST_GIB * 2**30:
        return problem("memory", found, f"a small run needs {LEAST_GIB:g} GiB: free or add some")
    if free < GOOD_GIB * 2**30:
        return note("memory", found, "keep hyp.buffer_size and actor_cfg.num small")
    return ok("memory", found)


def shared_memory(total: int | None) -> Finding:
    """Nothing can be wrong with what is not used."""
    size = "none" if total is None else _gib(total)
    return ok("/dev/shm", f"{size}; not used: channels are anonymous memory, without that limit")


def open_files(soft: int, hard: int) -> Finding:
    """Enough descriptors for a launcher with many actors? -1 is no limit."""
    needed = FILES_PER_CHILD * (MANY_ACTORS + 2) + OTHER_FILES
    allowed = "unlimited" if soft == UNLIMITED else f"{soft:,} allowed"
    found = f"{allowed}, {needed} needed with {MANY_ACTORS} actors"
    if soft == UNLIMITED or soft >= needed:
        return ok("open files", found)
    most = max(1, (soft - OTHER_FILES) // FILES_PER_CHILD - 2)
    enough = hard == UNLIMITED or hard >= needed
    advice = "ulimit -n 1024" if enough else "have the hard limit raised (nofile)"
    return note("open files", f"{found}, enough for {most}", advice)


def locked_memory(soft: int) -> Finding:
    """Nothing is locked here; some networks under MPI do so."""
    size = "unlimited" if soft == UNLIMITED else f"{soft / 2**20:,.0f} MiB"
    return ok("locked memory", f"{size}; not used by this version")


def disk(reading: Disk) -> Finding:
    """Can runs be written here, and how long does a safe write take?"""
    if reading.error:
        return problem(
            "disk",
            f"{reading.folder} cannot be written ({reading.error})",
            "go to another folder, or name one with --run-dir",
        )
    milliseconds = reading.fsync_seconds * 1000
    found = f"{_gib(reading.free)} free, 1 MB safely written in {milliseconds:,.0f} ms"
    if reading.free < LEAST_DISK_GIB * 2**30:
        return problem("disk", found, "free some space, or name another disk with --run-dir")
    if reading.free < GOOD_DISK_GIB * 2**30:
        return note("disk", found, "checkpoints with a replay store may not fit: use --run-dir")
    if reading.fsync_seconds > SLOW_FSYNC_SECONDS:
        return note("disk", found, "checkpoints will be slow: use a local disk with --run-dir")
    return ok("disk", found)


def channel(reading: Echo) -> Finding:
    """Does a message reach another process and wake it?"""
    if reading.error:
        return problem(
            "channel", f"two processes could not talk: {reading.error}", "use --engine local here"
        )
    microseconds = reading.round_trip_seconds * 1e6
    found = f"{reading.messages:,} messages there and back, {microseconds:,.0f} us each"
    if reading.round_trip_seconds > SLOW_ROUND_TRIP:
        return note(
            "channel", found, "the machine is busy, or bells do not wake: try again when it is idle"
        )
    return ok("channel", found)


def clock(resolution_seconds: float, year: int, shared: bool) -> Finding:
    """Fine enough, set, and the same in every process?"""
    same = "the same in every process" if shared else "not the same in every process"
    found = f"ticks of {resolution_seconds * 1e9:,.0f} ns, {same}, year {year}"
    if not shared:
        return problem("clock", found, "times of runs would be wrong: leave the time namespace")
    if year < RELEASE_YEAR:
        return problem("clock", found, "set the system's clock: names and times of runs use it")
    if resolution_seconds > COARSE_CLOCK:
        return note("clock", found, "times of single steps will be coarse on this machine")
    return ok("clock", found)


def gpu(torch: Answer, driver: Answer, visible: str | None) -> Finding:
    """Is there one, and can torch use it?

    `torch` is what tianji.models.gpu printed, `driver` names the GPUs of nvidia-smi, and
    `visible` is CUDA_VISIBLE_DEVICES.
    """
    if torch.error:
        return problem("GPU", f"torch cannot be loaded: {torch.error}", "install torch again")
    usable, built_for = torch.value["gpus"], torch.value["built_for"]
    present = driver.value if driver.found else []
    if usable:
        return ok("GPU", f"{'; '.join(usable)} (torch for {built_for})")
    if not present:
        return ok("GPU", "none; learners compute on the CPU")
    found = "; ".join(present)
    if visible is not None:
        advice = "unset it, or name the GPU there (0 is the first)"
        return note("GPU", f"{found}, unused with CUDA_VISIBLE_DEVICES={visible!r}", advice)
    if built_for is None:
        advice = "torch is a build for the CPU: install one for CUDA to use the GPU"
        return note("GPU", f"{found}, unused", advice)
    advice = f"torch for {built_for} cannot use it: update the driver, or install an older build"
    return problem("GPU", f"{found}, but torch sees none", advice)


def mpi(binding: Answer, starter: Answer) -> Finding:
    """Could a run use several machines? `starter` is the mpirun that belongs to mpi4py."""
    install = "pip install 'tianji[mpi]'"
    if not binding.found:
        return absent("MPI", f"{install} for runs over several machines")
    if binding.error:
        return note("MPI", f"mpi4py does not load: {binding.error}", install)
    found = f"mpi4py {binding.value['version']}, {binding.value['library']}"
    if starter.error:
        return note("MPI", found, starter.error)
    return ok("MPI", f"{found}, {starter.value}")


def ulfm(binding: Answer, build: Answer) -> Finding:
    """Could survivors of a lost rank go on? `build` is the answer of ompi_info."""
    able = not binding.error and binding.value["revoke"] and build.found and not build.error
    if able and build.value["ft"]:
        return ok("ULFM", "in this MPI: training goes on without an actor that was lost")
    advice = "a rank that is lost ends the run: pip install 'tianji[mpi]' brings one that goes on"
    return note("ULFM", "not in this MPI", advice)


def _gib(n_bytes: int) -> str:
    gib = n_bytes / 2**30
    return f"{gib:,.0f} GiB" if gib >= 10 else f"{gib:,.2g} GiB"
