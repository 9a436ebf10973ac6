"""Writes a job for Slurm that trains over several nodes, and goes on after each interruption."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tianji.config import Config
from tianji.core.errors import TianJiError
from tianji.machine.placement import n_ranks, place
from tianji.machine.resources import devices_of
from tianji.roles.role_specs import LAUNCHER

MARKER = "# Written by `tianji slurm`"  # by it a file of ours is known
SIGNAL_SECONDS = 120  # before its time is over a job is told so; a checkpoint takes ten of them
LEAST_SECONDS = 600  # a turn must do more than start and be told to leave
TIME = re.compile(r"(\d{1,4}-)?\d{1,6}(:\d\d){0,2}", re.ASCII)  # as in 30, 04:00:00, 2-12
MEMORY = re.compile(r"\d{1,9}[KMGT]?", re.ASCII)
NAME = re.compile(r"[\w.,:@+/=-]+")
NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")  # of what Slurm reads
NOT_IN_A_WORD = re.compile(r"[\x00\ud800-\udfff]")  # of what the shell reads


@dataclass(frozen=True)
class SlurmRequest:
    """What is asked of Slurm."""

    nodes: int
    tasks_per_node: int | None = None  # as many as are needed, unless given
    cpus_per_task: int | None = None  # as many as the roles of a node have, unless given
    time: str = "04:00:00"
    memory: str | None = None  # of each node
    gpus: int | None = None  # of each node
    partition: str | None = None
    account: str | None = None
    setup: Sequence[str] = ()  # lines of shell before the run

    def __post_init__(self) -> None:
        _refuse_unfit("--time", self.time, TIME, "as in 04:00:00 or 2-12:00:00")
        _refuse_short(self.time)
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


def _refuse_short(time: str) -> None:
    """A job that is warned before it has learned anything would come back for ever."""
    if (seconds := seconds_of(time)) < LEAST_SECONDS:
        raise TianJiError(
            f"--time: {time} is {seconds // 60} min {seconds % 60} s, and a job is told to leave "
            f"{SIGNAL_SECONDS} s before its end: want {LEAST_SECONDS // 60} minutes or more, "
            "as in 04:00:00"
        )


def seconds_of(time: str) -> int:
    """As Slurm reads it: minutes, minutes:seconds, hours:minutes:seconds, or days-hours and on."""
    days, dash, rest = time.rpartition("-")
    numbers = [int(number) for number in rest.split(":")]
    if dash or len(numbers) == 3:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def script(
    config: Config, wish: SlurmRequest, words: Sequence[str], path: str, job: str, folder: str
) -> str:
    """A job that runs `tianji train WORDS` in `folder`; `path` is where the command lies.

    One node needs no MPI: there the processes share memory.
    """
    _refuse_without_gpu(config, wish)
    _refuse_unwritable(folder, NOT_IN_A_LINE)
    for word in (*words, path, *wish.setup):
        _refuse_unwritable(word, NOT_IN_A_WORD)
    name = re.sub(r"[^\w.-]", "_", job, flags=re.ASCII)
    engine = "process" if wish.nodes == 1 else "mpi"
    command = ["tianji", "train", *words, "--engine", engine, "--quiet"]
    return TEMPLATE.format(
        head="\n".join(f"#SBATCH --{line}" for line in _head(config, wish, name, folder)),
        marker=MARKER,
        ranks=_ranks(config, wish),
        setup="".join(f"{line}\n" for line in wish.setup),
        path=shlex.quote(path),
        command=shlex.join(command),
        name=name,
    )


def _refuse_unwritable(text: str, wrong: re.Pattern[str]) -> None:
    if (found := wrong.search(text)) is not None:
        raise TianJiError(
            f"{text!r}: {found[0]!r} cannot stand in a job of Slurm: rename the file or the folder"
        )


def _refuse_without_gpu(config: Config, wish: SlurmRequest) -> None:
    wanted = [section for section, device in devices_of(config).items() if device == "cuda"]
    if wanted and wish.gpus is None:
        raise TianJiError(
            f"{wanted[0]}.device is 'cuda', and the job would ask for no GPU: add --gpus 1"
        )


def _head(config: Config, wish: SlurmRequest, name: str, folder: str) -> list[str]:
    """What Slurm is asked for."""
    tasks, cpus = _size(config, wish)
    lines = [f"job-name={name}", f"nodes={wish.nodes}", f"ntasks-per-node={tasks}"]
    lines += [f"cpus-per-task={cpus}", f"time={wish.time}"]
    lines += [] if wish.memory is None else [f"mem={wish.memory}"]
    lines += [] if wish.gpus is None else [f"gpus-per-node={wish.gpus}"]
    lines += [] if wish.partition is None else [f"partition={wish.partition}"]
    lines += [] if wish.account is None else [f"account={wish.account}"]
    lines += ["requeue", "open-mode=append", f"signal=B:USR1@{SIGNAL_SECONDS}"]
    return [*lines, f"chdir={shlex.quote(folder)}", f"output={name}-%j.out"]


def _size(config: Config, wish: SlurmRequest) -> tuple[int, int]:
    """Tasks per node and cores per task.

    One node is one task with the cores of all roles. On several nodes a task is a place for a rank:
    mpirun fills the places of one node after another, and a rank may use all cores of the job on
    its node (`--bind-to none`), not just those of one task. So the cores of the fullest node are
    divided among its tasks, whichever role needs them.
    """
    if wish.nodes == 1:
        refuse_tasks_on_one_node(wish)
        return 1, wish.cpus_per_task or _fullest(config, n_ranks(config))
    tasks = _tasks(wish, n_ranks(config))
    return tasks, wish.cpus_per_task or -(-_fullest(config, tasks) // tasks)


def _tasks(wish: SlurmRequest, n: int) -> int:
    """Places for ranks on each of several nodes, enough for all `n`."""
    most = -(-n // -(-n // wish.nodes))  # nodes that get a rank if each has as many as any
    if wish.nodes > n or (wish.tasks_per_node is None and most < wish.nodes):
        raise TianJiError(
            f"--nodes: the run has {n} processes, too few for {wish.nodes} nodes: "
            f"--nodes {min(n, most)} at most, or more actors with --set actor_cfg.num=N"
        )
    tasks = wish.tasks_per_node or -(-n // wish.nodes)
    if tasks * wish.nodes < n:
        raise TianJiError(
            f"{wish.nodes} nodes with {tasks} tasks each have room for {tasks * wish.nodes} "
            f"processes, and this run has {n}: --tasks-per-node {-(-n // wish.nodes)}"
        )
    return tasks


def _fullest(config: Config, tasks: int) -> int:
    """Cores of the node whose roles have most, with `tasks` ranks on each node."""
    hosts = [str(rank // tasks) for rank in range(n_ranks(config))]
    cores: Counter[str] = Counter()
    for home, rank in place(config, hosts).items():
        cores[hosts[rank]] += _cores_of(config, home)
    return max(cores.values())


def _cores_of(config: Config, home: str) -> int:
    """Of one process: as the configuration has it, or one. The launcher hardly needs any."""
    parallel, kind = config.parallel, home.partition("-")[0]
    given = {
        LAUNCHER: 0,
        "learner": parallel.learner_cfg.cores,
        "buffer": parallel.buffer_cfg.cores,
        "actor": parallel.actor_cfg.cores,
    }.get(kind)
    return 1 if given is None else given


def refuse_tasks_on_one_node(wish: SlurmRequest) -> None:
    """One node is one task, which starts its processes itself."""
    if wish.tasks_per_node not in (None, 1):
        raise TianJiError("--tasks-per-node: one node is one task; give it --cpus-per-task")


def _ranks(config: Config, wish: SlurmRequest) -> str:
    if wish.nodes == 1:
        return "all processes on one node, over shared memory"
    return f"{n_ranks(config)} ranks on {wish.nodes} nodes"


TEMPLATE = """\
#!/bin/bash
{head}
{marker}: {ranks}. Submit it with sbatch.

{setup}export PATH={path}:"$PATH"
run_dir="runs/{name}-$SLURM_JOB_ID"     # the same after a requeue, so that the run goes on
saved() {{ echo "$run_dir"/checkpoints/*-step-*/; }}
before=$(saved)

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
    if [ "$(saved)" != "$before" ]; then
        scontrol requeue "$SLURM_JOB_ID"
    else
        echo "no checkpoint since the job began: it is not put back into the queue" >&2
    fi
fi
exit "$status"
"""
