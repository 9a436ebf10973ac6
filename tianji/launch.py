"""From a configuration to a finished run: what is behind the command line."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import traceback
from contextlib import ExitStack
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
    from tianji.run import Run
    from tianji.topology import Job
    from tianji.watch import Progress

    Engine: TypeAlias = LocalEngine | ProcessEngine

NUMBERS = (signal.SIGINT, signal.SIGTERM)
ENGINES = ("process", "local")
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


class Signals:
    """What SIGINT and SIGTERM mean to a run: the first ends it in order, a second one at once.

    The first is only noted, and `check` raises it where that does no harm: an exception out of the
    blue could end in the middle of an import or of a lock. While the process engine is set up it is
    raised at once, because trying out a user's environment may take for ever.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():  # nobody else gets signals
            self._before = {number: signal.signal(number, self._note) for number in NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        for other in NUMBERS:
            signal.signal(other, signal.SIG_DFL)
        if self.at_once:
            raise Interrupted(number)

    def check(self) -> None:
        """Raises what has come."""
        if self.number is not None:
            raise Interrupted(self.number)

    def ignore(self) -> None:
        """The run is over: nothing may keep its end from being written down."""
        if self.number is None:
            for number in self._before:
                signal.signal(number, signal.SIG_IGN)


def train(
    config: Config,
    engine: str | None = None,
    folder: Path | None = None,
    quiet: bool = False,
    started_at: float | None = None,
) -> Report:
    """Trains one configuration in a run folder of its own.

    Without an `engine` the config's `use_comm_parallel` chooses; `started_at` is the moment that
    times are counted from, now unless given.
    """
    began = time.monotonic() if started_at is None else started_at
    name = engine or ("process" if config.parallel.global_cfg.use_comm_parallel else "local")
    if name not in ENGINES:
        raise TianJiError(f"engine: want one of {ENGINES}, got {name!r}")
    if name == "process":
        refuse_platform()
    was_there = folder is not None and folder.is_dir()
    with Signals() as signals, ExitStack() as stack:
        claimed = claim(folder, config)
        try:
            signals.at_once = name == "process"
            make = _process_engine if name == "process" else _local_engine
            job, runner = make(config, claimed, stack)
            signals.at_once = False
            signals.check()
        except BaseException:  # nothing has begun: leave nothing behind
            shutil.rmtree(claimed, ignore_errors=True)
            if was_there:
                claimed.mkdir()
            raise
        from tianji.run import Run

        run = Run(job, runner.name, claimed, quiet, began)
        return _watched(run, runner, signals)


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
    """Everything in this process, with as many threads as the learner has cores."""
    before = dict(os.environ)
    stack.callback(os.environ.update, before)
    stack.callback(os.environ.clear)  # first: what is pushed last is called first
    for name in resources.THREAD_VARIABLES:  # before numpy and torch are loaded, where they are not
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


def _watched(run: Run, engine: Engine, signals: Signals) -> Report:
    """Trains with a view on it, and writes down how it ended, however it ended."""
    from tianji.watch import Limits

    def tick(progress: Progress) -> None:
        signals.check()
        run.tick(progress)

    error: str | None = None
    try:
        status = engine.train(Limits(run.job), tick)
        exit_status = EXIT_STATUS[status]
    except Interrupted as stop:
        engine.stop()
        status, exit_status = "interrupted", 128 + stop.number
    except RoleFailed as failure:
        engine.stop()
        status, error = "failed", str(failure)
        exit_status = USER_MISTAKE if failure.users_mistake else 1
    except TianJiError as mistake:
        status, error, exit_status = "failed", str(mistake), USER_MISTAKE
    except Exception:  # the top of the process: what happened is written down and shown
        status, error, exit_status = "failed", traceback.format_exc(), 1
    signals.ignore()
    summary = run.finish(status, engine.watch.progress, error)
    return Report(run.folder, summary, exit_status)
