"""`tianji bench transmission`: how fast messages travel on this machine, and what limits them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

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
    """Prints the tables and writes the files; the exit status is 0 whatever was found."""
    from rich.console import Console

    from tianji.signals import Signals
    from tianji.transmission import files, parts
    from tianji.transmission.options import plan_of
    from tianji.transmission.table import to_tables

    plan = plan_of(options)
    folder = files.made(options.out)
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(highlight=False, width=None if is_known else WIDTH)
    with Signals() as signals, Console(stderr=True).status("starting") as status:
        signals.at_once = True  # hosts and processes go with the blocks that made them
        measured = parts.measure(plan, status.update)
    for part in to_tables(measured.rows, measured.skipped, console.width):
        console.print(part)
    if measured.foreign_load > BUSY:
        share = f"{100 * measured.foreign_load:.0f} %"
        print(f"others used {share} of this machine when the run began: its figures are too low")
    for path in files.write(folder, plan, measured):
        print(path)
    return 0
