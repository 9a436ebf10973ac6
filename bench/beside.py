"""Runs of an experiment side by side, each on cores of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from experiment import OutOfTime, Sheet, Trial, attempt, keep, refuse_late
from options import Options, count
from trainings import Row

CPUS = Path("/sys/devices/system/cpu")


def add_cores_each(parser: Options) -> None:
    """`--cores-each 2`."""
    meaning = "runs side by side, each on so many cores of its own; default: one after the other"
    parser.add_argument("--cores-each", type=count, help=meaning)


def conduct_trials(sheet: Sheet, trials: Iterable[Trial], cores_each: int | None) -> None:
    """Runs all trials one after the other, or as many at a time as there are cores for."""
    if cores_each is None:
        for row, run, arguments in trials:
            attempt(sheet, row, run, *arguments)
        return
    found = places(cores_each)
    if not found:
        raise SystemExit(f"--cores-each {cores_each}: fewer cores than that are there")
    print(f"side by side on the cores {found}", flush=True)
    context = get_context("spawn")
    seats = context.SimpleQueue()
    for cores in found:
        seats.put(cores)
    pool = ProcessPoolExecutor(len(found), context, _sit, (seats,))
    try:
        running = {pool.submit(_run, sheet.ends_at, *each[1:]): each[0] for each in trials}
        late = None
        for done in as_completed(running):
            if isinstance(done.exception(), OutOfTime):
                late = done.exception()  # others that were begun in time come to their end
            else:
                keep(sheet, running[done], done.result)
        if late is not None:
            raise late
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGINT)  # it ends the run that it has begun
        raise
    pool.shutdown()


def places(n: int, siblings: Callable[[int], str] | None = None) -> list[list[int]]:
    """Groups of `n` cores that may be used; of the threads of one core the first alone counts."""
    siblings = siblings or _siblings
    firsts = {siblings(core): core for core in sorted(os.sched_getaffinity(0), reverse=True)}
    cores = sorted(firsts.values())
    return [cores[i : i + n] for i in range(0, len(cores) - n + 1, n)]


def _siblings(core: int) -> str:
    try:
        return (CPUS / f"cpu{core}" / "topology" / "thread_siblings_list").read_text()
    except OSError:
        return str(core)


def _sit(seats: Any) -> None:
    """A process for runs takes its cores, and may be interrupted."""
    os.sched_setaffinity(0, seats.get())
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background


def _run(ends_at: float, run: Callable[..., Row], arguments: Sequence[Any]) -> Row:
    """One run, unless the time is over."""
    refuse_late(ends_at)
    return run(*arguments)
