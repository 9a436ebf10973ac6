"""From a configuration to a finished run: what is behind the command line."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from tianji import resources
from tianji.config import Config
from tianji.engines.crew import Crew, RoleFailed, refuse_platform
from tianji.errors import USER_MISTAKE, TianJiError
from tianji.folder import claim, identify
from tianji.roster import Kind, role_name

if TYPE_CHECKING:  # numpy is not loaded before the first child has been started
    from tianji.engines.local import LocalEngine
    from tianji.engines.process import ProcessEngine
    from tianji.topology import Job

    Engine: TypeAlias = LocalEngine | ProcessEngine

NUMBERS = (signal.SIGINT, signal.SIGTERM)
EXIT_STATUS = {"solved": 0, "finished": 0, "stopped": 0, "failed": 1}


class Interrupted(BaseException):
    """SIGINT or SIGTERM asked the run to end; no user's `except Exception` may swallow it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@dataclass(frozen=True)
class Report:
    """What a run did."""

    folder: Path
    summary: dict[str, Any]
    exit_status: int


def train(config: Config, engine: str, folder: Path | None = None, quiet: bool = False) -> Report:
    """Trains one configuration in a run folder of its own."""
    if engine == "process":
        refuse_platform()
    was_there = folder is not None and folder.is_dir()
    claimed = claim(folder, config)
    with _signals(), ExitStack() as stack:
        try:
            make = _process_engine if engine == "process" else _local_engine
            job, runner = make(config, claimed, stack)
        except BaseException:  # nothing has begun: leave nothing behind
            shutil.rmtree(claimed, ignore_errors=True)
            if was_there:
                claimed.mkdir()
            raise
        return _watched(job, runner, claimed, quiet)


def _process_engine(config: Config, folder: Path, stack: ExitStack) -> tuple[Job, Engine]:
    """Starts the children first: they load their libraries while sizes are worked out here."""
    cores = resources.available_cores()
    lenient = resources.assign(config, cores, alternates=True)
    crew = Crew(config, folder / "logs")
    stack.callback(crew.dismiss)
    first = role_name(Kind.LEARNER)  # it loads longest: before this process loads anything
    crew.start(first, lenient[first])
    from tianji.engines.process import ProcessEngine
    from tianji.topology import load_algorithm

    algorithm, hyp = load_algorithm(config)
    identify(folder, config, "process", asdict(hyp))
    alternates = algorithm.alternates(hyp, config.parallel.actor_cfg.num)
    shares = resources.assign(config, cores, alternates)
    for home in crew.homes[1:]:
        crew.start(home, shares[home])
    job = _tried(config)
    return job, ProcessEngine(job, crew, folder, shares)


def _local_engine(config: Config, folder: Path, stack: ExitStack) -> tuple[Job, Engine]:
    """Everything in this process."""
    for name in resources.THREAD_VARIABLES:  # before numpy and torch are loaded
        os.environ.setdefault(name, str(config.parallel.learner_cfg.cores or 1))
    from tianji.engines.local import LocalEngine

    job = _tried(config)
    identify(folder, config, "local", asdict(job.task.hyp))
    return job, LocalEngine(job, folder)


def _tried(config: Config) -> Job:
    from tianji.trial import try_out

    job = try_out(config)
    resources.refuse_without_memory(job.n_bytes, resources.free_bytes())
    return job


def _watched(job: Job, engine: Engine, folder: Path, quiet: bool) -> Report:
    """Trains with a view on it, and writes down how it ended, however it ended."""
    from tianji.run import Run
    from tianji.watch import Limits

    run = Run(job, engine.name, folder, quiet, resources.process_started_at())
    error: str | None = None
    try:
        status = engine.train(Limits(job), run.tick)
        exit_status = EXIT_STATUS[status]
    except Interrupted as stop:
        engine.stop()
        status, exit_status = "interrupted", 128 + stop.number
    except RoleFailed as failure:
        _ignore_signals()
        engine.stop()
        status, error = "failed", str(failure)
        exit_status = USER_MISTAKE if failure.users_mistake else 1
    except TianJiError as mistake:
        status, error, exit_status = "failed", str(mistake), USER_MISTAKE
    except Exception:  # the top of the process: what happened is written down and shown
        status, error, exit_status = "failed", traceback.format_exc(), 1
    _ignore_signals()
    summary = run.finish(status, engine.watch.progress, error)
    return Report(folder, summary, exit_status)


def _ignore_signals() -> None:
    """The run is over anyway: nothing may keep its end from being written down.

    Unless one has come before: then a second one ends the process, as promised.
    """
    for number in NUMBERS:
        if signal.getsignal(number) is _interrupt:
            signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    for other in NUMBERS:
        signal.signal(other, signal.SIG_DFL)
    raise Interrupted(number)


@contextmanager
def _signals() -> Iterator[None]:
    """Within it the first SIGINT or SIGTERM raises `Interrupted`; a second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread of a program gets signals, and it may be somebody else's
        return
    before = {number: signal.signal(number, _interrupt) for number in NUMBERS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
