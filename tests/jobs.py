"""MPI jobs on this machine, whose ranks may pass for ranks of several, and who is who in them."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from commands import ROOT, Finished, alive, eventually, rows
from mpi_pair import mpirun

from tianji.machine.mpirun import SETTINGS

LOOPBACK = {"btl": "tcp,self", "btl_tcp_if_include": "lo"}


def environment(**more):
    """Where the ranks find this package; they are told of no other job."""
    outer = {name: value for name, value in os.environ.items() if "OMPI" not in name}
    return {**SETTINGS, **outer, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **more}


def words(config, folder, *options):
    """What one rank runs."""
    program = [sys.executable, "-m", "tianji", "train", str(config)]
    return [*program, "--run-dir", str(folder), "--quiet", *map(str, options)]


def start(config, folder, *options, n=None, machines=None, **more):
    """Starts a job of `n` ranks, or of some ranks on each of `machines`; else it starts itself."""
    own = words(config, folder, *options)
    if machines is not None:
        own = spread(machines, own)
    elif n is not None:
        own = mpirun(n, *own)
    else:
        own += ["--engine", "mpi"]
    return begun(own, folder, **more)


def begun(line, folder, **more):
    """Starts a command line beside the folder of its run.

    What a killed mpirun leaves behind lies there too, and nobody stumbles over it.
    """
    beside = next(parent for parent in folder.parents if parent.is_dir())
    return subprocess.Popen(
        line,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=beside,
        env=environment(TMPDIR=str(beside), **more),
    )


def spread(machines, own):
    """So many ranks of the same command on each machine: `{"a": 2, "b": 2}`."""
    first, _, _, *options = mpirun(0)  # without its `-n 0`
    line = [first, *options]
    at = line.index("--mca")
    del line[at : at + 3]
    line += [word for setting in LOOPBACK.items() for word in ("--mca", *setting)]
    for i, (name, n) in enumerate(machines.items()):
        line += [":"] * (i > 0) + ["-n", str(n), "-x", f"TIANJI_HOST={name}", *own]
    return line


def train(config, folder, *options, **more):
    """Runs a job to its end."""
    return _ended(start(config, folder, *options, **more), folder)


def ended(line, folder):
    """Runs the command line of a job to its end."""
    return _ended(begun(line, folder), folder)


def _ended(process, folder):
    """Waits for the end of a job; all its ranks end with it."""
    try:
        out, err = process.communicate(timeout=120)
        gone(ranks(folder).values(), 5)
    finally:
        end(process, folder)
    return Finished(process.returncode, out, err, folder)


def end(process, folder):
    """Kills whatever is left of a job."""
    process.kill()
    for pid in ranks(folder).values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for pipe in (process.stdout, process.stderr):
        pipe.close()
    process.wait()


def ranks(folder):
    """The ranks of the job that trains in a folder, by the process that each of them is."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            is_rank = b"OMPI_COMM_WORLD_RANK=" in (path / "environ").read_bytes()
            ours = str(folder).encode() in (path / "cmdline").read_bytes().split(b"\0")
            log = os.readlink(path / "fd" / "1")
        except OSError:
            continue
        if is_rank and ours and alive(int(path.name)):
            is_log = log.endswith(".log")
            found[Path(log).stem if is_log else f"launcher {log}"] = int(path.name)
    return {name.partition(" ")[0]: pid for name, pid in found.items()}


def shared_files(pids):
    """The names in /dev/shm that these processes use: they have the number of their job."""
    found = set()
    for pid in pids:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            path = Path(line.split(maxsplit=5)[-1])
            found |= {path.name} if path.parent == Path("/dev/shm") else set()
    return found


def training(process, folder):
    """Waits until a job has begun to learn; returns its ranks."""
    eventually(lambda: rows(folder) or process.poll() is not None, 40, "the first update")
    assert process.poll() is None, process.communicate()
    return ranks(folder)


def gone(pids, seconds=10.0):
    """Waits until none of these processes is left."""
    eventually(lambda: not any(map(alive, pids)), seconds, "the end of all ranks")
