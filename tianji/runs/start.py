"""From a configuration to an engine with all its processes, and where each of them is."""

from __future__ import annotations

import errno
import os
import platform
import resource
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tianji.config import Config
from tianji.core import terminal
from tianji.core.errors import TianJiError
from tianji.core.signals import pausing
from tianji.engines.worker_processes import Crew, refuse_platform
from tianji.machine import mpirun, notices, resources
from tianji.roles.role_specs import Kind, role_name
from tianji.runs.folder import identify

if TYPE_CHECKING:  # numpy is not loaded before the first child has been started
    from tianji.engines.local import LocalEngine
    from tianji.engines.ranks import Ranks
    from tianji.engines.remote import RemoteEngine
    from tianji.job.job import Job
    from tianji.machine.resources import Share
    from tianji.runs.resume import Resumed

    Engine: TypeAlias = LocalEngine | RemoteEngine

ENGINES = ("process", "local", "mpi")


def check(config: Config, engine: str | None) -> str:
    """The engine that is to train; says, and refuses, what can be before anything is started."""
    name = refuse(config, engine)
    _note(notices.apart(config))
    return name


def refuse(config: Config, engine: str | None) -> str:
    """The same, without a word about what is not refused."""
    name = chosen_engine(config, engine)
    _refuse_missing_trackers(config)
    _refuse_without_gpu(config, name)
    if config.exp.record:
        _refuse_to_record(config, name)
    if config.parallel.actor_cfg.inference:
        _refuse_inference(config, name)
    return name


def chosen_engine(config: Config, engine: str | None) -> str:
    """The engine that was asked for, by name or by being in an MPI job or by the config."""
    among_ranks = mpirun.inside() is not None
    name = engine or ("mpi" if among_ranks else None)
    name = name or ("process" if config.parallel.global_cfg.use_comm_parallel else "local")
    if name not in ENGINES:
        raise TianJiError(f"engine: want one of {ENGINES}, got {name!r}")
    if name == "mpi" and config.parallel.global_cfg.transport is not None:
        raise TianJiError(
            "global_cfg.transport: engine mpi has its own: leave it out, or use --engine process"
        )
    if name == "mpi" and "tianji.transports.mpi" not in sys.modules:  # the command line loads it
        raise TianJiError(
            "engine mpi: an MPI job is started on the command line: tianji train CONFIG "
            "--engine mpi, or mpirun -n N tianji train CONFIG, not from a script of your own"
        )
    if name != "mpi" and among_ranks and mpirun.inside() != (0, 1):
        raise TianJiError(f"engine {name}: it starts its own processes: run it without mpirun")
    if name != "local":
        refuse_platform(name)
    return name


def _refuse_missing_trackers(config: Config) -> None:
    if config.exp.track:
        from tianji.observe.sinks import refuse_missing

        refuse_missing(config.exp.track)


def _refuse_to_record(config: Config, engine: str) -> None:
    """What `tianji replay` could not do again, or need not."""
    devices = resources.devices_of(config)
    if engine == "local":
        problem = (
            "engine local repeats itself, the same command trains the same: leave it out, or use "
            "--engine process"
        )
    elif engine != "process":
        problem = f"engine {engine} keeps no record: use --engine process"
    elif config.n_groups > 1 or config.n_learners > 1:
        problem = "want one group with one learner (global_cfg.group_num, learner_cfg.num)"
    elif gpu := [each for each, device in devices.items() if resources.gpu_of(device)]:
        problem = f"{gpu[0]}.device: a GPU does not add up twice in the same order: want 'cpu'"
    elif config.exp.trace_seconds is not None:
        problem = "a run can be traced or recorded, not both: leave --trace out"
    else:
        return
    raise TianJiError(f"exp.record: {problem}")


def _refuse_inference(config: Config, engine: str) -> None:
    """What an inference role cannot do yet."""
    if engine == "mpi":
        problem = "engine mpi has none: use --engine process, or let the actors act"
    elif config.parallel.actor_cfg.trigger:
        problem = "its trajectories are always full: leave actor_cfg.trigger out"
    elif config.exp.record or config.exp.trace_seconds is not None:
        problem = "it can be neither traced nor recorded: leave --trace and exp.record out"
    else:
        return
    raise TianJiError(f"actor_cfg.inference: {problem}")


def _refuse_without_gpu(config: Config, engine: str) -> None:
    """Of any role; with MPI they may be on other machines."""
    from tianji.job.validate import check_device

    check_device(config)
    if engine != "mpi":
        resources.refuse_without_gpu(config)


def start(
    name: str, config: Config, folder: Path, resumed: Resumed | None, stack: ExitStack
) -> tuple[Job, Engine]:
    """The job that a configuration makes, and the engine of this name with all its processes.

    What has to be undone at the end, or if this fails, is on the `stack`.
    """
    makers = {"process": _process_engine, "local": _local_engine, "mpi": _mpi_engine}
    try:
        job, engine = makers[name](config, folder, resumed, stack)
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        raise TianJiError(
            f"engine {name}: {allowed:,} open files are allowed here, too few to start "
            "this run: raise the limit, as in `ulimit -n 1024`"
        ) from error
    for notice in job.notices:
        _note(notice)
    return job, engine


def _process_engine(
    config: Config, folder: Path, resumed: Resumed | None, stack: ExitStack
) -> tuple[Job, Engine]:
    """Starts the children first: they load their libraries while sizes are worked out here."""
    cores, usable = resources.available_cores(), resources.usable_here()
    lenient = resources.assign(config, cores, alternates=True, usable=usable)
    crew = Crew(config, folder / "logs")
    stack.callback(crew.dismiss)
    stack.enter_context(pausing(crew.leaders))
    first = role_name(Kind.LEARNER)  # it loads longest: before this process loads anything
    crew.start(first, lenient[first])
    from tianji.engines.remote import process_engine
    from tianji.job.job import load_algorithm

    algorithm, hyp = load_algorithm(config)
    alternates = algorithm.alternates(hyp, config.parallel.actor_cfg.num)
    shares = resources.assign(config, cores, alternates, usable=usable)
    _note(notices.crowding(shares, alternates, usable))
    for home in crew.homes[1:]:
        crew.start(home, shares[home])
    job = _try_out(config)
    identify(folder, config, "process", asdict(hyp))
    saved = None if resumed is None else resumed.saved
    return job, process_engine(job, crew, folder, shares, saved)


def _local_engine(
    config: Config, folder: Path, resumed: Resumed | None, stack: ExitStack
) -> tuple[Job, Engine]:
    """Everything in this process, with as many threads as the learner has cores."""
    before = dict(os.environ)
    stack.callback(os.environ.update, before)
    stack.callback(os.environ.clear)  # first: what is pushed last is called first
    for name in resources.THREAD_VARIABLES:  # before numpy and torch are loaded, where they are not
        os.environ.setdefault(name, str(config.parallel.learner_cfg.cores or 1))
    from tianji.engines.local import LocalEngine

    job = _try_out(config)
    identify(folder, config, "local", asdict(job.task.hyp))
    return job, LocalEngine(job, folder, None if resumed is None else resumed.saved)


def _mpi_engine(
    config: Config, folder: Path, resumed: Resumed | None, stack: ExitStack
) -> tuple[Job, Engine]:
    """The ranks are there already: they are told what they are, and load while sizes are found."""
    from tianji.engines.remote import mpi_engine
    from tianji.transports.mpi import world

    ranks, shares = _place_ranks(config, stack)
    ranks.assign(shares, folder / "logs")
    job = _try_out(config)
    identify(folder, config, "mpi", asdict(job.task.hyp))
    saved = None if resumed is None else resumed.saved
    return job, mpi_engine(world(), job, ranks, folder, shares, saved)


def _place_ranks(config: Config, stack: ExitStack) -> tuple[Ranks, dict[str, Share]]:
    """All ranks of the job, and what each may use."""
    from tianji.engines.ranks import Ranks
    from tianji.engines.serve_rank import identity
    from tianji.job.job import load_algorithm
    from tianji.transports.mpi import world

    ranks = Ranks(world(), config)
    stack.callback(ranks.dismiss)
    ranks.gather(identity())
    algorithm, hyp = load_algorithm(config)
    alternates = algorithm.alternates(hyp, config.parallel.actor_cfg.num)
    shares = ranks.shares(alternates)
    for text in ranks.crowding(shares, alternates):
        _note(text)
    return ranks, shares


def _note(text: str | None) -> None:
    """Says what a user may want to change before the run has taken hours; None: nothing."""
    if text is not None:
        terminal.say("note", text)


def placement(config: Config, engine: str | None = None) -> str:
    """Which process every role would live in, and on what cores, as a table for people.

    What `train` would refuse is refused here too.
    """
    name = check(config, engine)
    if name != "mpi":
        return _placement_here(config, name)
    with ExitStack() as stack:
        ranks, shares = _place_ranks(config, stack)
        _try_out(config)
        return ranks.table(shares)


def _placement_here(config: Config, name: str) -> str:
    """Processes of one machine have no ranks: they are counted, from 1."""
    from tianji.machine.placement import table
    from tianji.roles.role_specs import LAUNCHER, homes_of

    cores, usable, here = resources.available_cores(), resources.usable_here(), platform.node()
    job, homes = _try_out(config), dict.fromkeys([LAUNCHER, *homes_of(config).values()])
    numbers = {home: 1 if name == "local" else i for i, home in enumerate(homes, 1)}
    shares = dict.fromkeys(homes, resources.Share(cores, 1))
    if name != "local":
        alternates = job.algorithm.alternates(job.task.hyp, job.task.n_actors)
        assigned = resources.assign(config, cores, alternates, usable=usable)
        _note(notices.crowding(assigned, alternates, usable))
        shares |= assigned
    return table(config, "process", {home: (n, here) for home, n in numbers.items()}, shares)


def _try_out(config: Config) -> Job:
    from tianji.job.preflight import try_out
    from tianji.job.wiring import n_bytes_of, n_device_bytes_of
    from tianji.runs.checkpoint_schedule import left_out

    job = try_out(config)
    needed, free, room = n_bytes_of(job), resources.free_bytes(), job.sampling.room
    resources.refuse_without_memory(needed, free, room)
    store = needed["store"] // config.n_groups
    unsaved = left_out(config, store)
    _note(notices.large_store(store, room, free, f"; {unsaved}" if unsaved else ""))
    on_gpu, fixed = n_device_bytes_of(job)
    if on_gpu and mpirun.inside() is None:  # else it may be another machine's
        free = resources.free_gpu_bytes()
        resources.refuse_without_gpu_memory(on_gpu, fixed, free, room)
        _note(notices.large_on_gpu(on_gpu, room, free))
    return job
