"""Figure 5 of the paper: how fast messages travel on this machine, and what limits them.

Every transport carries messages of 1 KB to 8 MB beside memcpy, plain copies between processes and
raw TCP (parts a and d), and those of 1 to 32 actors beside equation 1 (parts b and c); peers do the
same. What is not installed is left out and named. Parts c and d make several hosts of network
namespaces and need root. Files and tables are written after each part, also where Ctrl-C ends it.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

from options import OUT, Options, count, some_of
from rich.console import Console
from tables import LOUD
from transmission import parts, results
from transmission.plan import KB, PARTS, PEERS, TRANSPORTS, Plan, quick

from tianji.core.errors import TianJiError
from tianji.core.signals import Interrupted, Signals

WIDTH = 120  # columns of what is written into a file or a pipe


def parser() -> Options:
    options = Options(__doc__)
    options.add_argument("--quick", action="store_true", help="fewer points, in half a minute")
    options.add_argument(
        "--parts",
        type=some_of("abcd"),
        default="abcd",
        help="a: message sizes, b: actors, c: actors on several hosts, d: the link's limit",
    )
    for name, known in (("--transports", TRANSPORTS), ("--peers", PEERS)):
        options.add_argument(name, nargs="*", choices=known, default=known)
    options.add_argument("--samples", type=count, help="of each point of part b")
    options.add_argument("--sizes", type=count, nargs="+", help="of messages in a and d, in KB")
    options.add_argument("--actors", type=count, nargs="+", help="numbers of them in b and c")
    options.add_out(OUT / "transmission")
    return options


def plan_of(given: argparse.Namespace) -> Plan:
    """What the options ask for, in our order."""
    names = tuple(part for part in PARTS if part in given.parts)
    plan = quick(names) if given.quick else Plan(names)
    changes: dict[str, tuple[int, ...] | int] = {}
    if given.samples is not None:
        changes |= {
            "samples": given.samples,
            "peer_samples": min(plan.peer_samples, given.samples),
            "host_samples": min(plan.host_samples, given.samples),
        }
    if given.sizes is not None:
        sizes = tuple(n * KB for n in sorted(set(given.sizes)))
        changes |= dict.fromkeys(("sizes", "peer_sizes", "link_sizes"), sizes)
    if given.actors is not None:
        changes |= dict.fromkeys(("actors", "host_actors"), tuple(sorted(set(given.actors))))
    ours = tuple(name for name in TRANSPORTS if name in given.transports)
    peers = tuple(name for name in PEERS if name in given.peers)
    return dataclasses.replace(plan, transports=ours, peers=peers, **changes)


def main() -> int:
    given = parser().parse_args()
    plan = plan_of(given)
    given.out.mkdir(parents=True, exist_ok=True)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    to_do, measured = parts.prepare(plan)
    status = 0
    with Signals() as signals:
        signals.at_once = True  # hosts and processes go with the blocks that made them
        try:
            for part in to_do:
                try:
                    measured.measure(part, lambda words: print(words, file=sys.stderr))
                finally:
                    results.write(given.out, plan, measured)
                    console.print(*results.tables(part.name, measured.rows), sep="\n")
        except Interrupted as stop:
            status = stop.exit_status
        except TianJiError as error:
            print(f"figure5.py: {error}", file=sys.stderr)
            status = 1
    written = results.write(given.out, plan, measured)
    console.print(results.conclusion(measured))
    for name, reason in measured.skipped.items():
        print(f"{name}: {reason}")
    if measured.foreign_load > LOUD:
        share = f"{100 * measured.foreign_load:.0f} %"
        print(f"others used {share} of this machine when the run began: its figures are too low")
    if len(measured.done) < len(to_do):
        print(f"stopped within part {to_do[len(measured.done)].name}; what was measured is kept:")
    print(*written, sep="\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
