"""`tianji bench transmission`: how fast messages travel on this machine, and what limits them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tianji.core import terminal

BUSY = 0.1  # of the machine in use by others, above which a run says so
WIDTH = 120  # columns of what is written into a file or a pipe


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `bench`."""
    parser.add_argument(
        "what", choices=["transmission"], help="the paper's Figure 5 for every transport"
    )
    parser.add_argument("--quick", action="store_true", help="fewer points, in half a minute")
    parser.add_argument(
        "--parts",
        default="a,b,c,d",
        metavar="LIST",
        help="a: message sizes, b: actors, c: actors on several hosts, d: the link's limit",
    )
    parser.add_argument("--transports", default="all", metavar="LIST", help="local, shm, mpi")
    parser.add_argument(
        "--peers",
        default="all",
        metavar="LIST",
        help="pickled-mpi, queue, zeromq-ipc, zeromq-tcp, ray; none",
    )
    parser.add_argument("--samples", type=int, metavar="N", help="of each point of part b")
    parser.add_argument("--sizes", metavar="LIST", help="of messages in parts a and d, in KB")
    parser.add_argument("--actors", metavar="LIST", help="numbers of actors in parts b and c")
    parser.add_argument(
        "--out", type=Path, default=Path("transmission"), metavar="DIR", help="CSV, JSON and plot"
    )


def run(options: argparse.Namespace) -> int:
    """Writes files and prints tables after every part; the exit status is 0 whatever was found.

    What has been measured is written and printed also where the rest is not to be: after Ctrl-C,
    and after a transport that has failed.
    """
    from tianji.core.signals import Signals
    from tianji.transmission import files, parts
    from tianji.transmission.options import plan_of
    from tianji.transmission.progress import Progress
    from tianji.transmission.table import conclusion, of_part

    plan = plan_of(options)
    folder = files.make_folder(options.out)
    width = terminal.columns(WIDTH)
    with Signals() as signals:
        signals.at_once = True  # hosts and processes go with the blocks that made them
        to_do, measured = parts.prepare(plan)
        progress = Progress([step for part in to_do for step in part.steps], sys.stderr)
        written: list[Path] = []
        try:
            for part in to_do:
                try:
                    measured.measure(part, progress)
                finally:
                    progress.clear()
                    try:  # first: who reads what we print may go away
                        written = files.write(folder, plan, measured)
                    finally:
                        _say(of_part(part.name, measured.rows, width))
        finally:
            written = written or files.write(folder, plan, measured)
            _say(conclusion(measured.rows, measured.skipped))
            _say_what_is_wrong(measured.foreign_load, progress.n_over, progress.n_steps)
            print(*written, sep="\n", flush=True)
    return 0


def _say(lines: list[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()  # the next part takes a while


def _say_what_is_wrong(foreign_load: float, n_over: int, n_steps: int) -> None:
    """Of the figures as a whole: disturbed by others, or not complete."""
    if foreign_load > BUSY:
        share = f"{100 * foreign_load:.0f} %"
        print(f"others used {share} of this machine when the run began: its figures are too low")
    if n_over < n_steps:
        print(f"stopped after {n_over} of {n_steps} measurements; these are kept:")
