"""`tianji chaos CONFIG`: a real run under faults from a seed, and whether it kept its promises."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tianji.cli.common import add_config, add_overrides, new_folder, refuse_ranks, status_of, tell
from tianji.core import terminal
from tianji.core.columns import wrapped

if TYPE_CHECKING:
    from tianji.tools.chaos.chaos_run import ChaosRun
    from tianji.tools.chaos.settings import ChaosSettings

SECONDS, EVERY = 90.0, 3.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `chaos`."""
    add_config(parser)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the schedule of faults (default: 0)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        metavar="S",
        help=f"how long faults come, once the run learns (default: {SECONDS:g})",
    )
    parser.add_argument(
        "--every",
        type=float,
        default=EVERY,
        metavar="S",
        help="seconds from the recovery from one fault to the next, half to one and a half times "
        f"as many (default: {EVERY:g})",
    )
    parser.add_argument(
        "--faults",
        metavar="LIST",
        help="only these, as in kill,hang (default: all that can be had here); there are kill, "
        "stop, actors, segfault, slow, hang, raise, nan and disk",
    )
    add_overrides(parser, "override a key of the configuration")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="a new folder for the run and chaos.json"
    )


def run(options: argparse.Namespace) -> int:
    """Tests the run and says what came of it: 0 every invariant held, 1 one did not."""
    refuse_ranks("chaos")
    from tianji.core.signals import Signals
    from tianji.tools.chaos import chaos_run, results, schedule, settings

    chosen = schedule.chosen(options.faults)
    with Signals() as signals:
        signals.at_once = True
        asked = options.config, options.overrides, options.seed, options.seconds
        settled = settings.settle(*asked, chosen, options.every)
        folder = settings.make_folder(options.out or new_folder("chaos", options.config))
        tell(f"up to {len(settled.strikes)} faults of seed {settled.seed} for {options.config}")
        with chaos_run.facing(settled, folder, lambda trial: tell(results.line(trial))) as subject:
            status = status_of(subject.run)
            signals.at_once = False
            subject.end()
        shown = _show(folder, settled, subject)
    return status or shown


def _show(folder: Path, settled: ChaosSettings, subject: ChaosRun) -> int:
    """The tables, the sentence and the file."""
    from tianji.tools.chaos import results
    from tianji.tools.chaos.invariants import judge

    record, width = subject.record, terminal.width()
    found = judge(record)
    print(results.faults(record.trials, settled.faults, width), end="\n\n")
    print(results.verdicts(found, width), end="\n\n")
    print("\n".join(wrapped(results.sentence(found, record, settled), width)))
    print(results.write(folder, settled, record, found), flush=True)
    return 0 if results.holds(found) else 1


def _with_faulty_workers() -> int:
    """`python -m tianji.cli.chaos train ...`: as `tianji train`, with children of another kind."""
    from tianji.cli.main import main
    from tianji.engines import worker_processes
    from tianji.tools.chaos.processes import WORKER

    worker_processes.WORKER = WORKER
    return main()


if __name__ == "__main__":
    sys.exit(_with_faulty_workers())
