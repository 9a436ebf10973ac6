"""From a configuration to a finished run: what is behind the command line."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tianji.config import Config
from tianji.core import terminal
from tianji.core.errors import USER_MISTAKE, TianJiError
from tianji.core.lazy import loading
from tianji.core.signals import Interrupted, Signals
from tianji.core.status import ENDED, Status
from tianji.engines.lost_process import RoleFailed
from tianji.machine import mpirun
from tianji.observe.trace import forget
from tianji.runs import start
from tianji.runs.folder import Claim, claim
from tianji.runs.outcome import Report
from tianji.strategy.plan import plan_file

if TYPE_CHECKING:  # numpy is not loaded before the first child has been started
    from tianji.core.algorithm import Saved
    from tianji.observe.limits import Limits
    from tianji.observe.watch import Progress
    from tianji.runs.resume import Resumed
    from tianji.runs.run import Run
    from tianji.runs.start import Engine
    from tianji.strategy.plan.plan_file import Plan


@dataclass(frozen=True)
class TrainRequest:
    """How a configuration is to be trained: where, in whose sight and by which plan."""

    engine: str | None = None  # None: the config's `use_comm_parallel` chooses
    folder: Path | None = None  # of the run; an unfinished one there is resumed
    quiet: bool = False
    started_at: float | None = None  # moment that times are counted from; None: now
    dashboard: int | None = None  # port of a live page
    extend: bool = False  # a run that has ended goes on, the config may say anew when it ends
    plan: Plan | None = None  # that the config follows, to compare with what is measured
    planning_seconds: float = 0.0  # since `started_at`, told apart from those to start
    row_seconds: float | None = None  # longest from row to row of metrics; inf: none but the last


def train(config: Config, asked: TrainRequest) -> Report:
    """Trains one configuration in a run folder of its own, or goes on where it was interrupted."""
    began = time.monotonic() if asked.started_at is None else asked.started_at
    name = start.check(config, asked.engine)
    with Signals() as signals, ExitStack() as stack:
        mpirun.arrive()
        claimed = claim(asked.folder, config, asked.extend)
        stack.callback(claimed.release)
        undone = stack.enter_context(ExitStack())  # after all that holds files of the folder
        undone.callback(claimed.leave)
        resumed = _prepare(claimed, config, asked, stack)
        with signals.raised_at_once(), loading():
            job, engine = start.start(name, config, claimed.folder, resumed, stack)
        if resumed is not None:
            resumed.take_up(claimed.folder)
        undone.pop_all()  # it has begun: from now on the folder stays
        from tianji.runs.row_schedule import ROW_SECONDS
        from tianji.runs.run import Run

        run = Run(
            job,
            engine.name,
            claimed.folder,
            asked.quiet,
            started_at=began,
            row_seconds=asked.row_seconds or ROW_SECONDS,
            resumed=resumed,
            planning_seconds=asked.planning_seconds,
            shares=engine.shares,
        )
        return _train_and_report(run, engine, signals)


def _prepare(
    claimed: Claim, config: Config, asked: TrainRequest, stack: ExitStack
) -> Resumed | None:
    """All that the folder needs before a process is started; returns where the run goes on."""
    if asked.plan is not None:
        plan_file.write(asked.plan, claimed.folder / plan_file.NAME)
    resumed = _resumed(claimed, config)
    if config.exp.trace_seconds is not None:
        forget(claimed.folder)
    if config.exp.record and resumed is not None:
        _mind_the_record(claimed.folder, resumed)
    if asked.dashboard is not None:
        _open_dashboard(claimed.folder, asked.dashboard, stack)
    return resumed


def _resumed(claimed: Claim, config: Config) -> Resumed | None:
    """Where the run goes on, if it does; said before anything is started."""
    if not claimed.resumes:
        return None
    from tianji.runs import resume

    resumed = resume.find(claimed.folder, config)
    for notice in resumed.notices:
        terminal.say("note", notice)
    return resumed


def _mind_the_record(folder: Path, resumed: Resumed) -> None:
    """Says what a replay of a resumed run will be of; one that begins again is recorded anew."""
    from tianji.observe import replay_record

    if resumed.saved is None:
        replay_record.forget(folder)
    else:
        terminal.say("note", "exp.record: `tianji replay` repeats a run up to where it is resumed")


def _open_dashboard(folder: Path, port: int, stack: ExitStack) -> None:
    from tianji.observe.dashboard import Dashboard

    dashboard = Dashboard(folder, port)
    stack.callback(dashboard.close)
    print(f"dashboard: {dashboard.start()}", file=sys.stderr, flush=True)


def _train_and_report(run: Run, engine: Engine, signals: Signals) -> Report:
    """Trains with a view on it, and writes down how it ended, however it ended."""
    from tianji.observe.limits import Limits
    from tianji.runs.checkpoint_schedule import CheckpointSchedule
    from tianji.runs.evaluation_schedule import EvaluationSchedule
    from tianji.strategy.rebalance.rebalancer import Rebalancer

    config, watch = run.job.config, engine.watch
    if run.resumed is not None and run.resumed.facts:
        watch.restore(run.resumed.facts["watch"])

    def facts() -> dict[str, Any]:
        return {"watch": watch.state(), **run.state(watch.progress)}

    version = 0 if run.resumed is None else run.resumed.version
    keeper = CheckpointSchedule(config, run.folder, engine, facts, run.saved, run.warn, version)
    examiner = EvaluationSchedule(run.job, run.folder, engine, run.evaluated, run.warn)
    rebalancer = Rebalancer(run.job, run.folder, engine, run.rebalanced)

    def tell_troubles() -> None:
        for told in (engine.troubles, watch.mishaps):
            while told:
                run.warn(told.pop(0))

    def tick(progress: Progress) -> None:
        run.tick(progress)
        tell_troubles()
        keeper.tick(progress)
        examiner.tick(progress)
        rebalancer.tick(progress)

    status, exit_status, error = _train_to_the_end(engine, Limits(run.job), tick, signals.check)
    signals.only_note()
    mpirun.mind_streams()
    tell_troubles()  # those of the end
    rebalancer.close()
    learned = engine.learned()
    _keep(run, learned)
    saved = keeper.close(watch.progress)
    if saved is None and watch.progress.started_at is not None and status is not Status.FAILED:
        run.warn("what the run has learned last is in no checkpoint: see its logs")
    examiner.close(learned if status in ENDED else None, lambda: signals.number is not None)
    summary = run.finish(status, watch.progress, error, signals.give_back)
    # Before MPI is left, which may take for ever if mpirun has gone.
    mpirun.leave_status(exit_status)
    return Report(run.folder, summary, exit_status)


def _keep(run: Run, learned: Saved | None) -> None:
    """Writes `checkpoints/final.safetensors`."""
    if learned is None:
        return
    from tianji.runs.weights_file import save_final

    name = run.job.config.agent.type
    try:
        save_final(run.folder, learned.weights, learned.version, name, learned.env_steps)
    except OSError as error:
        run.warn(f"the final policy could not be written: {error.strerror or error}")


def _train_to_the_end(
    engine: Engine, limits: Limits, tick: Callable[[Progress], None], check: Callable[[], None]
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
