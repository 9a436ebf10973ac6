"""Writes a job for Slurm that trains over several nodes, and goes on after each interruption."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from tianji.config import Config
from tianji.errors import TianJiError
from tianji.placement import n_ranks

SIGNAL_SECONDS = 120  # before its time is over a job is told so; a checkpoint takes ten of them
TIME = re.compile(r"(\d+-)?\d+(:\d\d){0,2}")  # as in 30, 04:00:00, 2-12
MEMORY = re.compile(r"\d+[KMGT]?")
NAME = re.compile(r"[\w.,:@+/=-]+")


@dataclass(frozen=True)
class Wish:
    """What is asked of Slurm."""

    nodes: int
    tasks_per_node: int | None = None  # as many as are needed, unless given
    cpus_per_task: int | None = None  # as many as the largest role has, unless given
    time: str = "04:00:00"
    memory: str | None = None  # of each node
    gpus: int | None = None  # of each node
    partition: str | None = None
    account: str | None = None
    setup: Sequence[str] = ()  # lines of shell before the run

    def __post_init__(self) -> None:
        _refuse_unfit("--time", self.time, TIME, "as in 04:00:00 or 2-12:00:00")
        _refuse_unfit("--mem", self.memory, MEMORY, "as in 16G")
        _refuse_unfit("--partition", self.partition, NAME, "a name of your cluster's")
        _refuse_unfit("--account", self.account, NAME, "a name of your cluster's")
        counts = {"--tasks-per-node": self.tasks_per_node, "--cpus-per-task": self.cpus_per_task}
        for option, count in {"--nodes": self.nodes, "--gpus": self.gpus, **counts}.items():
            if count is not None and count < 1:
                raise TianJiError(f"{option}: want 1 or more, got {count}")
        if any("\n" in line for line in self.setup):
            raise TianJiError("--setup: want one line of shell; it may be given several times")


def _refuse_unfit(option: str, given: str | None, shape: re.Pattern[str], wanted: str) -> None:
    if given is not None and not shape.fullmatch(given):
        raise TianJiError(f"{option}: want {wanted}, got {given!r}")


def script(config: Config, wish: Wish, words: Sequence[str], path: str, job: str) -> str:
    """A job that runs `tianji train WORDS`; `path` is the folder with the command in it.

    One node needs no MPI: there the processes share memory.
    """
    name = re.sub(r"[^\w.-]", "_", job)
    engine = "process" if wish.nodes == 1 else "mpi"
    command = ["tianji", "train", *words, "--engine", engine, "--quiet"]
    return TEMPLATE.format(
        head="\n".join(f"#SBATCH --{line}" for line in _head(config, wish, name)),
        ranks=_ranks(config, wish),
        setup="".join(f"{line}\n" for line in wish.setup),
        path=shlex.quote(path),
        command=shlex.join(command),
        name=name,
    )


def _head(config: Config, wish: Wish, name: str) -> list[str]:
    """What Slurm is asked for."""
    tasks, cpus = _size(config, wish)
    lines = [f"job-name={name}", f"nodes={wish.nodes}", f"ntasks-per-node={tasks}"]
    lines += [f"cpus-per-task={cpus}", f"time={wish.time}"]
    lines += [] if wish.memory is None else [f"mem={wish.memory}"]
    lines += [] if wish.gpus is None else [f"gpus-per-node={wish.gpus}"]
    lines += [] if wish.partition is None else [f"partition={wish.partition}"]
    lines += [] if wish.account is None else [f"account={wish.account}"]
    lines += ["requeue", "open-mode=append", f"signal=B:USR1@{SIGNAL_SECONDS}"]
    return [*lines, f"output={name}-%j.out"]


def _size(config: Config, wish: Wish) -> tuple[int, int]:
    """Tasks per node and cores per task."""
    n, cpus = n_ranks(config), wish.cpus_per_task or largest_role(config)
    if wish.nodes == 1:
        refuse_tasks_on_one_node(wish)
        return 1, wish.cpus_per_task or cpus * (n - 1)  # the launcher hardly needs one
    if wish.nodes > n:
        raise TianJiError(f"--nodes: the run has {n} processes, too few for {wish.nodes} nodes")
    tasks = wish.tasks_per_node or -(-n // wish.nodes)
    if tasks * wish.nodes < n:
        raise TianJiError(
            f"{wish.nodes} nodes with {tasks} tasks each have room for {tasks * wish.nodes} "
            f"processes, and this run has {n}: --tasks-per-node {-(-n // wish.nodes)}"
        )
    return tasks, cpus


def refuse_tasks_on_one_node(wish: Wish) -> None:
    """One node is one task, which starts its processes itself."""
    if wish.tasks_per_node not in (None, 1):
        raise TianJiError("--tasks-per-node: one node is one task; give it --cpus-per-task")


def largest_role(config: Config) -> int:
    """The most cores that a role is given."""
    parallel = config.parallel
    roles = (parallel.learner_cfg.cores, parallel.buffer_cfg.cores, parallel.actor_cfg.cores)
    return max(cores or 1 for cores in roles)


def _ranks(config: Config, wish: Wish) -> str:
    if wish.nodes == 1:
        return "all processes on one node, over shared memory"
    return f"{n_ranks(config)} ranks on {wish.nodes} nodes"


TEMPLATE = """\
#!/bin/bash
{head}
# Written by `tianji slurm`: {ranks}. Submit it with sbatch.

{setup}export PATH={path}:"$PATH"
run_dir="runs/{name}-$SLURM_JOB_ID"     # the same after a requeue, so that the run goes on

{command} --run-dir "$run_dir" &
run=$!
told=
trap 'told=yes; kill -USR1 "$run"' USR1     # the time is nearly over
trap 'told=yes; kill -TERM "$run"' TERM     # the job is cancelled or preempted
status=1
while :; do                                 # a signal interrupts `wait`, not the run
    wait "$run"
    code=$?
    [ "$code" -eq 127 ] || status=$code
    [ -n "$told" ] || break
    told=
done
if [ "$status" -eq 138 ]; then              # it was told to leave, and saved what it had
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
"""
