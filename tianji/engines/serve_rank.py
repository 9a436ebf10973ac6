"""What a rank other than the first does: says hello, hears what it is, runs its roles, leaves."""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tianji import __version__
from tianji.core.errors import SAYS_MISTAKE, SAYS_SPENT, BudgetSpent, TianJiError
from tianji.core.json_file import read_bytes
from tianji.core.signals import NUMBERS
from tianji.machine import mpirun, resources

if TYPE_CHECKING:
    from tianji.config import Config
    from tianji.job.job import Job
    from tianji.transports.courier import Courier
    from tianji.transports.mpi import NewcomerWorld, World

LATER_SECONDS = 5.0  # that rank 0 has to notice first what it can notice
STAND_SECONDS = 20.0  # for others to say where a process stood that this one replaces
WAIT_SECONDS = 600.0  # for rank 0, which may try out an environment for long


@contextmanager
def among_others() -> Iterator[None]:
    """What every rank of an MPI job does before and after its work, also where that fails."""
    for name in resources.THREAD_VARIABLES:
        os.environ[name] = "1"
    try:
        from tianji.transports import mpi
    except ImportError as error:
        raise TianJiError(f"engine mpi: {error}: pip install 'tianji[mpi]'") from error
    mpi.refuse_mixed(mpirun.inside())
    try:
        yield
    finally:
        mpi.leave()


def live() -> NoReturn:
    """The life of a rank other than the first; its exit status says nothing, rank 0's does."""
    for number in NUMBERS:  # sent to all: rank 0 decides what it means
        signal.signal(number, signal.SIG_IGN)
    from tianji.transports.mpi import leave, world

    offer = {"cores": resources.unbound_cores(), "usable": resources.usable_here()}
    serve(world(), identity() | offer)
    leave()
    mpirun.vanish(0)


def serve(world: World | NewcomerWorld, about: dict[str, Any]) -> None:
    """Tells rank 0 of itself, and runs what it says."""
    world.say(0, about)
    order = _next_order(world)
    if order is None:
        return
    _become(order)
    briefing = world.hear(0, WAIT_SECONDS, _watch_parent())
    if briefing is None or "brief" not in briefing:
        return
    job, trouble = _prepared(briefing["brief"])
    world.say(0, {"trouble": trouble})
    begins = world.hear(0, WAIT_SECONDS, _watch_parent())
    if job is not None and begins is not None and "begin" in begins:
        _run(world, job, order, briefing["brief"])


def _next_order(world: World | NewcomerWorld) -> dict[str, Any] | None:
    """What this rank is to be; answers questions about its clock meanwhile."""
    while True:
        order = world.hear(0, WAIT_SECONDS, _watch_parent())
        if order is None or "leave" in order:
            return None
        if "home" in order:
            return order
        world.say(0, {"clock": time.monotonic()})


def _watch_parent() -> Callable[[], None]:
    """Ends the process when whoever started it has gone, before there are couriers to tell."""
    parent = os.getppid()

    def check() -> None:
        if os.getppid() != parent:
            os._exit(1)

    return check


def _become(order: dict[str, Any]) -> None:
    """Log, cores and libraries of the process that this rank is to be."""
    from tianji.engines.run_roles import preload, yield_to_others

    os.sched_setaffinity(0, order["cores"])
    os.environ.update(resources.Share(tuple(order["cores"]), order["threads"]).environment())
    try:
        log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError:
        log = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    yield_to_others(order["home"])
    preload(order["home"])


def _prepared(description: dict[str, Any]) -> tuple[Job | None, str]:
    """The job, or what keeps this rank from taking part in it."""
    from tianji.config import from_json
    from tianji.job.job import from_json as job_from_json

    folder = Path(description["checkpoints"]).parent
    if not folder.is_dir():
        return None, (
            f"there is no {folder} here: the folder of a run must be on a file system that all "
            "machines see (--run-dir)"
        )
    try:
        return job_from_json(description, from_json(description["config"])), ""
    except TianJiError as error:
        return None, str(error)


def _run(
    world: World | NewcomerWorld, job: Job, order: dict[str, Any], description: dict[str, Any]
) -> None:
    """Trains until the stream ends, and says goodbye."""
    from tianji.core.alarm import Alarm, HangAlarm
    from tianji.engines.hang_watch import HangWatch
    from tianji.engines.rank_supervisor import replaced_homes
    from tianji.engines.run_roles import train
    from tianji.engines.worker_loop import ProcessPorts, shared_channels
    from tianji.roles.role_specs import homes_of
    from tianji.transports.cluster import ClusterTransport
    from tianji.transports.mpi import NewcomerWorld

    home, homes, newcomer = order["home"], homes_of(job.config), description.get("newcomer")
    if newcomer is not None and isinstance(world, NewcomerWorld):
        world.learn(newcomer)
    specs, host = shared_channels(job), None if newcomer is None else newcomer["host"]
    away, ranks = replaced_homes(job.config), description["ranks"]
    transport = ClusterTransport(world, specs, homes, ranks, home, away, host)
    leave, seconds = _leave_with(job.config), job.config.environment.step_seconds
    mended = home in away and world.replaces  # no signal comes from another machine
    alarm: HangAlarm = HangWatch(seconds) if mended else Alarm(seconds).armed()

    def check(courier: Courier) -> None:
        alarm.look()
        leave(courier)

    transport.start(check, _die)
    if newcomer is not None and not transport.stand(STAND_SECONDS):
        raise TianJiError("those who let this process in did not say where the lost one stood")
    offset, status = float(order["clock"]), 0
    try:
        ports = ProcessPorts(home, job, transport)
        train(home, job, ports, description, lambda: time.monotonic() + offset, alarm)
    except TianJiError as error:
        print(f"{home}: {error}", file=sys.stderr)
        status = SAYS_MISTAKE
    except BudgetSpent as error:
        print(f"{home}: {error}", file=sys.stderr)
        status = SAYS_SPENT
    except BaseException:  # the top of the process: rank 0 shows what stands in the log
        traceback.print_exc()
        status = 1
    alarm.cancel()
    sys.stderr.flush()
    transport.close(status, job.config.parallel.global_cfg.link_seconds)


def _die() -> None:
    """Without a courier nobody hears of this rank: rank 0 finds it lost, with its last words."""
    os._exit(1)


def _leave_with(config: Config) -> Callable[[Courier], None]:
    """Ends the process when rank 0 has gone, or when the link to another peer is lost.

    Rank 0 sees the links to itself; of one between two others it hears by their going.
    """
    link_seconds = config.parallel.global_cfg.link_seconds

    def check(courier: Courier) -> None:
        if 0 in courier.left or 0 in courier.lost or courier.is_silent(0, link_seconds):
            _end("rank 0 has gone: so does this rank")
        gone = courier.left.keys() | courier.lost
        for peer in courier.heard_at.keys() - gone:
            if courier.is_silent(peer, link_seconds + LATER_SECONDS):
                _end(f"rank {peer} did not answer for {link_seconds:g} s: the link to it is lost")

    return check


def _end(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
    os._exit(0)


def identity(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """What must be the same for all ranks of a run, so that none of another is taken for one."""
    words = _beyond_hosts(sys.argv[1:] if arguments is None else arguments)
    files = {word: digest for word in words if (digest := _digest(word)) is not None}
    return {"version of tianji": __version__, "command line": words, "configuration": files}


def _beyond_hosts(words: Sequence[str]) -> list[str]:
    """Words that say what is trained: the file with the machines need not lie on all of them."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--hostfile")
    try:
        return parser.parse_known_args(words)[1]
    except argparse.ArgumentError:
        return list(words)


def _digest(word: str) -> str | None:
    """Of the file that a word of the command line names, if it names one."""
    try:
        return hashlib.sha256(read_bytes(word)).hexdigest()[:12]
    except TianJiError:
        return None
