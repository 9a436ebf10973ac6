"""`tianji resume RUN`: goes on with a run where its newest checkpoint was taken."""

from __future__ import annotations

import argparse
from pathlib import Path

from tianji.cli.common import (
    add_engine,
    add_hosts,
    add_limits,
    add_overrides,
    add_tracing,
    add_tracking,
    add_trust,
    add_watching,
    finish,
    refuse_idle_hostfile,
    start_ranks,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `resume`."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the run")
    add_engine(parser, "the one it was trained with")
    add_hosts(parser)
    add_limits(parser)
    add_overrides(
        parser, "say anew when the run ends or what it saves, as in exp.train_steps=1_000_000"
    )
    add_tracking(parser)
    add_tracing(parser)
    add_watching(parser)
    add_trust(parser)


def run(options: argparse.Namespace) -> int:
    """Trains on; returns the run's exit status."""
    import tianji
    from tianji.config.keywords import as_overrides
    from tianji.machine import mpirun
    from tianji.machine.resources import process_started_at
    from tianji.runs import resume

    names = ("stop_return", "max_seconds", "track", "trace")
    named = {name: value for name in names if (value := vars(options)[name]) is not None}
    if options.engine in (None, "mpi") and mpirun.inside() is None:
        changes = [*options.overrides, *as_overrides(named, "resume")]
        config, before = resume.reopen(options.run, changes, options.trust)
        if "mpi" in (options.engine, before):
            return start_ranks(config, options)
    refuse_idle_hostfile(options, options.engine)
    report = tianji.resume(
        options.run,
        *options.overrides,
        engine=options.engine,
        quiet=options.quiet,
        dashboard=options.dashboard,
        trust=options.trust,
        started_at=process_started_at(),
        **named,
    )
    return finish(report)
