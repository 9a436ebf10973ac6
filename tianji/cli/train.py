"""`tianji train CONFIG`: trains what one configuration file describes."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tianji.cli.common import (
    add_config,
    add_engine,
    add_hosts,
    add_limits,
    add_overrides,
    add_tracing,
    add_tracking,
    add_watching,
    finish,
    refuse_idle_hostfile,
    start_ranks,
)

if TYPE_CHECKING:
    from tianji.strategy.plan.plan_file import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `train`."""
    add_config(parser)
    add_engine(parser, "process")
    add_hosts(parser)
    add_overrides(parser, "override a key of the configuration, as in hyp.lr=0.001")
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="folder of this run; an unfinished run of the same configuration there is resumed",
    )
    add_limits(parser)
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    add_tracking(parser)
    add_tracing(parser)
    parser.add_argument(
        "--record",
        action="store_true",
        default=None,
        help="write down who took what and when, so that `tianji replay` can repeat the run",
    )
    add_watching(parser)
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="split the cores as `tianji plan` found best: its file, or `auto` to plan first",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show which role would run where, and stop"
    )


def run(options: argparse.Namespace) -> int:
    """Trains; returns the run's exit status."""
    import tianji
    from tianji.config import load
    from tianji.config.keywords import SHORT, as_overrides
    from tianji.core import terminal
    from tianji.core.errors import TianJiError
    from tianji.machine import mpirun
    from tianji.machine.resources import process_started_at
    from tianji.runs import start

    if (Path(options.config) / "config.json").is_file():
        raise TianJiError(
            f"{options.config} is the folder of a run, not a configuration file: "
            f"to go on with it: tianji resume {options.config}"
        )
    refuse_idle_hostfile(options, options.engine)
    named = {name: value for name in SHORT if (value := vars(options)[name]) is not None}
    overrides = [*options.overrides, *as_overrides(named)]
    starts_ranks = options.engine == "mpi" and mpirun.inside() is None
    if starts_ranks:
        mpirun.find()  # where it is missing, that is said before anything is measured
    advice = None
    if options.plan is not None and (options.dry_run or starts_ranks):
        keys, advice = _planned(options, overrides)
        overrides += keys
    if starts_ranks:
        with _plan_for_ranks(options):
            status = start_ranks(load(options.config, overrides), options)
    elif options.dry_run:
        print(start.placement(load(options.config, overrides), options.engine), flush=True)
        status = 0
    else:
        report = tianji.train(
            options.config,
            *options.overrides,
            engine=options.engine,
            run_dir=options.run_dir,
            quiet=options.quiet,
            dashboard=options.dashboard,
            started_at=process_started_at(),
            plan=options.plan,
            **named,
        )
        return finish(report)
    if advice is not None:
        terminal.say("note", advice)
    return status


def _planned(options: argparse.Namespace, overrides: list[str]) -> tuple[list[str], str | None]:
    """The keys that the plan sets, and how to keep one that was made for nothing but a look.

    A plan that was made now takes the place of the word.
    """
    from tianji.config.keywords import as_overrides
    from tianji.strategy.probe import plan_for_run

    where, advice = (options.run_dir, options.engine, options.hostfile), None
    is_new = plan_for_run.is_made_now(options.plan, options.run_dir)
    plan = plan_for_run.for_run(
        options.plan, options.config, overrides, *where, quiet=options.quiet
    )
    options.plan = plan if options.plan == plan_for_run.AUTO else options.plan
    if is_new and options.dry_run:
        words = ["tianji", "plan", options.config]
        words += [part for word in options.overrides for part in ("--set", word)]
        words += _machines(plan, options.hostfile)
        advice = f"a dry run keeps no plan: to have one for --plan FILE, {shlex.join(words)}"
    return as_overrides(plan.overrides), advice


def _machines(plan: Plan, hostfile: Path | None) -> list[str]:
    """The options of `tianji plan` for the machines that a plan was made for."""
    from tianji.machine.resources import usable_here

    split, used = plan.split, plan.split.cores_per_host(plan.profile.work)
    hosts = ["--hosts", str(split.hosts)] if split.hosts > 1 else []
    is_smaller = hostfile is not None and used < usable_here()  # its machines have fewer places
    return [*hosts, *(["--cores", str(used)] if is_smaller else [])]


@contextmanager
def _plan_for_ranks(options: argparse.Namespace) -> Iterator[None]:
    """A plan that was made here, in a file for as long as the ranks run."""
    from tianji.strategy.plan import plan_file

    with TemporaryDirectory(prefix="tianji-plan-") as folder:
        if isinstance(options.plan, plan_file.Plan):
            path = Path(folder) / plan_file.NAME
            plan_file.write(options.plan, path)
            options.given = [*options.given, "--plan", str(path)]  # of two the last one counts
        yield
