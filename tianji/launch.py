"""From a configuration to a finished run: what is behind the command line."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tianji import mpirun, notices, resources, terminal
from tianji.config import Config
from tianji.engines.crew import Crew, refuse_platform
from tianji.engines.losses import RoleFailed
from tianji.errors import USER_MISTAKE, TianJiError
from tianji.folder import Claim, claim, identify
from tianji.outcome import Report
from tianji.planning import planfile
from tianji.roster import Kind, role_name
from tianji.signals import Interrupted, Signals
from tianji.status import ENDED, Status
from tianji.tracing import forget

if TYPE_CHECKING:  # numpy is not loaded before the first child has been started
    from tianji.engines.local import LocalEngine
    from tianji.engines.ranks import Ranks
    from tianji.engines.remote import RemoteEngine
    from tianji.job import Job
    from tianji.planning.planfile import Plan
    from tianji.resources import Share
    from tianji.resuming import Resumed
    from tianji.run import Run
    from tianji.watch import Limits, Progress
    from tianji.weights import Saved

    Engine: TypeAlias = LocalEngine | RemoteEngine

ENGINES = ("process", "local", "mpi")


def train(
    config: Config,
    engine: str | None = None,
    folder: Path | None = None,
    quiet: bool = False,
    started_at: float | None = None,
    row_seconds: float | None = None,
    dashboard: int | None = None,
    extend: bool = False,
    plan: Plan | None = None,
    planning_seconds: float = 0.0,
) -> Report:
    """Trains one configuration in a run folder of its own, or goes on where it was interrupted.

    Without an `engine` the config's `use_comm_parallel` chooses; `started_at` is the moment that
    times are counted from, now unless given; `row_seconds` is the time from one row of metrics to
    the next, infinity for none but the last; `dashboard` is the port of a live page. With `extend`
    a run that has ended goes on, and the configuration may say anew when it ends. The `plan` that
    the configuration follows is kept beside it, and compared with what is measured; the seconds
    since `started_at` that it took to make are told apart from those to start.
    """
    began = time.monotonic() if started_at is None else started_at
    name = chosen_engine(config, engine)
    _refuse_missing_trackers(config)
    _note(notices.apart(config))
    with Signals() as signals, ExitStack() as stack:
        mpirun.arrive()
        claimed = claim(folder, config, extend)
        stack.callback(claimed.release)
        try:
            if plan is not None:
                planfile.write(plan, claimed.folder / planfile.NAME)
            resumed = _resumed(claimed, config)
            if config.exp.trace_seconds is not None:
                forget(claimed.folder)
            if dashboard is not None:
                _open_dashboard(claimed.folder, dashboard, stack)
            signals.at_once = True
            signals.check()
            make = _MAKERS[name]
            job, runner = make(config, claimed.folder, resumed, stack)
            signals.at_once = False
            signals.check()
            if resumed is not None:
                resumed.take_up(claimed.folder)
        except BaseException:  # nothing has begun: leave nothing behind
            claimed.leave()
            raise
        from tianji.run import ROW_SECONDS, Run

        seconds = row_seconds or ROW_SECONDS
        times = began, seconds, resumed, planning_seconds
        run = Run(job, runner.name, claimed.folder, quiet, *times, shares=runner.shares)
        return _train_and_report(run, runner, signals)


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
        from tianji.sinks import refuse_missing

        refuse_missing(config.exp.track)


def _resumed(claimed: Claim, config: Config) -> Resumed | None:
    """Where the run goes on, if it does; said before anything is started."""
    if not claimed.resumes:
        return None
    from tianji import resuming

    resumed = resuming.find(claimed.folder, config)
    for notice in resumed.notices:
        terminal.say("note", notice)
    return resumed


def _open_dashboard(folder: Path, port: int, stack: ExitStack) -> None:
    from tianji.dashboard import Dashboard

    dashboard = Dashboard(folder, port)
    stack.callback(dashboard.close)
    print(f"dashboard: {dashboard.start()}", file=sys.stderr, flush=True)


def _process_engine(
    config: Config, folder: Path, resumed: Resumed | None, stack: ExitStack
) -> tuple[Job, Engine]:
    """Starts the children first: they load their libraries while sizes are worked out here."""
    cores, usable = resources.available_cores(), resources.usable_here()
    lenient = resources.assign(config, cores, alternates=True, usable=usable)
    crew = Crew(config, folder / "logs")
    stack.callback(crew.dismiss)
    first = role_name(Kind.LEARNER)  # it loads longest: before this process loads anything
    crew.start(first, lenient[first])
    from tianji.engines.process import process_engine
    from tianji.job import load_algorithm

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
    from tianji.engines.mpi import mpi_engine
    from tianji.transports.mpi import world

    ranks, shares = _place_ranks(config, stack)
    ranks.assign(shares, folder / "logs")
    job = _try_out(config)
    identify(folder, config, "mpi", asdict(job.task.hyp))
    saved = None if resumed is None else resumed.saved
    return job, mpi_engine(world(), job, ranks, folder, shares, saved)


def _place_ranks(config: Config, stack: ExitStack) -> tuple[Ranks, dict[str, Share]]:
    """All ranks of the job, and what each may use."""
    from tianji.engines.identity import identity
    from tianji.engines.ranks import Ranks
    from tianji.job import load_algorithm
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
    name = chosen_engine(config, engine)
    _refuse_missing_trackers(config)
    _note(notices.apart(config))
    if name != "mpi":
        return _placement_here(config, name)
    with ExitStack() as stack:
        ranks, shares = _place_ranks(config, stack)
        _try_out(config)
        return ranks.table(shares)


def _placement_here(config: Config, name: str) -> str:
    from tianji.placement import table_of_one, table_of_one_process
    from tianji.roster import homes_of

    cores, usable, here = resources.available_cores(), resources.usable_here(), platform.node()
    job = _try_out(config)
    if name == "local":
        return table_of_one_process(config, here, resources.Share(cores, 1))
    everybody = dict.fromkeys(homes_of(config).values(), resources.Share(cores, 1))
    alternates = job.algorithm.alternates(job.task.hyp, job.task.n_actors)
    shares = resources.assign(config, cores, alternates, usable=usable)
    _note(notices.crowding(shares, alternates, usable))
    return table_of_one(config, here, everybody | shares)


_MAKERS = {"process": _process_engine, "local": _local_engine, "mpi": _mpi_engine}


def _try_out(config: Config) -> Job:
    from tianji.channels import n_bytes_of
    from tianji.trial import try_out

    job = try_out(config)
    resources.refuse_without_memory(n_bytes_of(job), resources.free_bytes())
    return job


def _train_and_report(run: Run, engine: Engine, signals: Signals) -> Report:
    """Trains with a view on it, and writes down how it ended, however it ended."""
    from tianji.examiner import Examiner
    from tianji.keeper import Keeper
    from tianji.rebalance import Rebalancer
    from tianji.watch import Limits

    config, watch = run.job.config, engine.watch
    if run.resumed is not None and run.resumed.facts:
        watch.restore(run.resumed.facts["watch"])

    def facts() -> dict[str, Any]:
        return {"watch": watch.state(), **run.state(watch.progress)}

    version = 0 if run.resumed is None else run.resumed.version
    keeper = Keeper(config, run.folder, engine, facts, run.saved, run.warn, version)
    examiner = Examiner(run.job, run.folder, engine, run.evaluated, run.warn)
    rebalancer = Rebalancer(run.job, run.folder, engine, run.rebalanced)

    def tell_troubles() -> None:
        while engine.troubles:
            run.warn(engine.troubles.pop(0))

    def tick(progress: Progress) -> None:
        run.tick(progress)
        tell_troubles()
        keeper.tick(progress)
        examiner.tick(progress)
        rebalancer.tick(progress)

    status, exit_status, error = _train_to_the_end(engine, Limits(run.job), tick, signals.check)
    signals.ignore()
    mpirun.mind_streams()
    tell_troubles()  # those of the end
    rebalancer.close()
    learned = engine.learned()
    _keep(run, learned)
    saved = keeper.close(watch.progress)
    if saved is None and watch.progress.started_at is not None and status is not Status.FAILED:
        run.warn("what the run has learned last is in no checkpoint: see its logs")
    examiner.close(learned if status in ENDED else None)
    summary = run.finish(status, watch.progress, error, signals.give_back)
    mpirun.leave_status(
        exit_status
    )  # before MPI is left: without its mpirun that may take for ever
    return Report(run.folder, summary, exit_status)


def _keep(run: Run, learned: Saved | None) -> None:
    """Writes `checkpoints/final.safetensors`."""
    if learned is None:
        return
    from tianji.weights import save_final

    name = run.job.config.agent.type
    try:
        save_final(run.folder, learned.weights, learned.version, name, learned.env_steps)
    except OSError as error:
        run.warn(f"the final policy could not be written: {error.strerror or error}")


def _train_to_the_end(
    engine: Engine,
    limits: Limits,
    tick: Callable[[Progress], None],
    check: Callable[[], None],
) -> tuple[Status, int, str | None]:
    """Trains to the end; returns the status, the exit status and what went wrong."""
    try:
        status = engine.train(limits, tick, check)
    except Interrupted as stop:
        engine.stop()
        return Status.INTERRUPTED, stop.exit_status, None
    except RoleFailed as failure:
        engine.stop()
        return Status.FAILED, USER_MISTAKE if failure.users_mistake else 1, str(failure)
    except TianJiError as mistake:
        engine.abandon()
        return Status.FAILED, USER_MISTAKE, str(mistake)
    except Exception:  # the top of the process: what happened is written down and shown
        engine.abandon()
        return Status.FAILED, 1, traceback.format_exc()
    return status, 0, None
