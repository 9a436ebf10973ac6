"""What several verbs have in common on the command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tianji.core import terminal
from tianji.core.columns import wrapped
from tianji.observe.report import LIVE_PORT

TRACE_SECONDS = 2.0  # recorded unless said otherwise: hundreds of updates in most runs

if TYPE_CHECKING:
    from tianji.config import Config
    from tianji.runs.outcome import Report


def add_config(parser: argparse.ArgumentParser) -> None:
    """The configuration file."""
    parser.add_argument(
        "config", metavar="CONFIG", help="configuration file, as in configs/cartpole_ppo.py"
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """When the run ends."""
    parser.add_argument(
        "--max-seconds", type=float, metavar="S", help="train for S seconds in all at most"
    )
    parser.add_argument(
        "--stop-return",
        type=float,
        metavar="R",
        help="end at a mean return of R, of the last 100 episodes",
    )


def add_engine(parser: argparse.ArgumentParser, default: str) -> None:
    """Where the roles live."""
    parser.add_argument(
        "--engine",
        choices=["local", "process", "mpi"],
        help="local: all roles in this process, the same every time; process: each role in a "
        f"process of its own; mpi: each in a rank, on many machines (default: {default})",
    )


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """`--hostfile FILE`, as mpirun has it."""
    parser.add_argument(
        "--hostfile",
        type=Path,
        metavar="FILE",
        help="machines for --engine mpi, a line for each, as in `node1 slots=4`; "
        "without it, those of the Slurm allocation, or this one",
    )


def refuse_idle_hostfile(options: argparse.Namespace, engine: str | None) -> None:
    """Only `--engine mpi` starts anything on other machines."""
    from tianji.core.errors import TianJiError

    if options.hostfile is not None and engine != "mpi":
        raise TianJiError(
            f"--hostfile {options.hostfile}: only --engine mpi uses other machines: add that, or "
            "leave --hostfile out"
        )


def refuse_ranks(verb: str) -> None:
    """Raises within mpirun, for a verb that starts runs in processes of their own."""
    from tianji.core.errors import TianJiError
    from tianji.machine import mpirun

    if mpirun.inside() is not None:
        raise TianJiError(f"{verb} starts its own runs: call it without mpirun")


def start_ranks(config: Config, options: argparse.Namespace) -> int:
    """Starts this command again, in as many ranks as it needs; returns the run's exit status."""
    from tianji.core.child import command_for
    from tianji.machine.mpirun_process import start
    from tianji.machine.placement import n_ranks

    program = [*command_for("tianji"), *options.given]
    link_seconds = config.parallel.global_cfg.link_seconds
    n, hosts, quiet = n_ranks(config), options.hostfile, options.quiet
    return start(n, program, hosts, link_seconds=link_seconds, quiet=quiet)


def add_tracking(parser: argparse.ArgumentParser) -> None:
    """`--track NAME`, as often as one likes."""
    parser.add_argument(
        "--track",
        action="append",
        choices=["wandb", "trackio"],
        help="send the metrics to a tracker too; may be repeated",
    )


def add_tracing(parser: argparse.ArgumentParser) -> None:
    """`--trace [SECONDS]`."""
    parser.add_argument(
        "--trace",
        type=float,
        nargs="?",
        const=TRACE_SECONDS,
        metavar="SECONDS",
        help="record what every role does, for `tianji trace`: the last SECONDS of the run, "
        f"{TRACE_SECONDS:g} unless given",
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    """`--trust`, where a run's own config.json says what is imported."""
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import the classes that the run's config.json names, though it was not you here who "
        "recorded it",
    )


def add_overrides(parser: argparse.ArgumentParser, example: str) -> None:
    """`--set KEY=VALUE`, as often as one likes."""
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"{example}; may be repeated",
    )


def add_watching(parser: argparse.ArgumentParser) -> None:
    """What is shown meanwhile."""
    parser.add_argument(
        "--dashboard",
        type=int,
        nargs="?",
        const=LIVE_PORT,
        metavar="PORT",
        help=f"serve a live page of the run on this machine, at port {LIVE_PORT} unless given",
    )
    parser.add_argument("--quiet", action="store_true", help="show nothing while training")


def new_folder(verb: str, config: str) -> Path:
    """A folder named after a verb, its configuration and the time."""
    return Path("runs") / f"{verb}-{Path(config).stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def tell(line: str) -> None:
    """Says on standard error how far a long command is."""
    lines = wrapped(line, terminal.width(sys.stderr), indent=2)
    print("\n".join(lines), file=sys.stderr, flush=True)


def status_of(deed: Callable[[], object]) -> int:
    """Makes runs; the exit status of a command that was interrupted, or of which a run failed."""
    from tianji.core.signals import Interrupted
    from tianji.tools.child_run import RunFailed

    try:
        deed()
    except Interrupted as stop:
        return stop.exit_status
    except RunFailed as failure:
        terminal.say("tianji", str(failure))
        return 1
    return 0


def finish(report: Report) -> int:
    """Says how a run ended; returns its exit status."""
    from tianji.machine import mpirun
    from tianji.observe.summary import describe

    mpirun.mind_streams()
    if report.error:
        terminal.say("tianji", report.error)
    print(describe(report.summary, report.folder, report.exit_status, terminal.width()))
    return report.exit_status
