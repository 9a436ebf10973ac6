"""`tianji bench CONFIG`: trains with several seeds, one after the other, and sums them up."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from tianji.cli.common import (
    add_config,
    add_engine,
    add_overrides,
    new_folder,
    refuse_ranks,
    status_of,
)
from tianji.core import terminal
from tianji.core.columns import wrapped

SEEDS = "1-5"
MOST_SEEDS = 1_000


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `bench`."""
    add_config(parser)
    parser.add_argument(
        "--seeds",
        type=_seeds,
        default=_seeds(SEEDS),
        metavar="LIST",
        help=f"a run for each, as in 1-5 or 1,4,7 (default: {SEEDS})",
    )
    add_engine(parser, "process")
    add_overrides(parser, "override a key of the configuration for all runs")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="runs, JSON and CSV; what was interrupted there goes on",
    )


def _seeds(said: str) -> list[int]:
    found: list[int] = []
    for part in said.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + MOST_SEEDS:
            raise argparse.ArgumentTypeError(f"want seeds as in 1-5 or 1,4,7, got {said}")
        found += range(first, last + 1)
    return sorted(set(found))


def run(options: argparse.Namespace) -> int:
    """Trains and prints what came of it; the exit status is 0 where every run came to its end."""
    refuse_ranks("bench")
    from tianji.core.signals import Signals
    from tianji.tools import bench

    rows, written = list[bench.Row](), list[Path]()
    folder = options.out or new_folder("bench", options.config)
    with Signals() as signals:
        signals.at_once = True
        engine = options.engine or "process"
        settings = bench.make_folder(folder, options.config, options.overrides, engine)

        def done(so_far: list[bench.Row]) -> None:
            rows[:], written[:] = so_far, bench.write(folder, settings, so_far)
            print(f"{len(rows)} of {len(options.seeds)} seeds", file=sys.stderr, flush=True)

        told = settings, options.overrides, options.seeds, folder, done
        status = status_of(lambda: bench.train_all(*told))
        signals.at_once = False  # what there is, is told: `timeout` sends its signal twice
        if rows:
            print(bench.table(rows, terminal.width()), end="\n\n")
            print("\n".join(wrapped(bench.sentence(rows), terminal.width())))
        print(*written, sep="\n", flush=True)
    return status
