"""`tianji verify CONFIG`: the same seeds, serial against distributed training, and a verdict."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tianji.cli.common import (
    add_config,
    add_engine,
    add_overrides,
    new_folder,
    refuse_ranks,
    status_of,
    tell,
)
from tianji.core import terminal
from tianji.core.columns import command, wrapped
from tianji.tools.verify import MARGIN, QUICK_SEEDS, QUICK_STEPS, SEEDS, STEPS, STEPS_MARGIN

if TYPE_CHECKING:
    from tianji.tools.verify.compare import Equivalence, Pair
    from tianji.tools.verify.settings import Settings


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `verify`."""
    add_config(parser)
    add_engine(parser, "process")
    add_overrides(parser, "override a key of the configuration for both kinds of training")
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help=f"pairs of runs (default: {SEEDS}, with --quick {QUICK_SEEDS})",
    )
    parser.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help=f"environment steps of each run (default: exp.train_steps, {STEPS:,} at most)",
    )
    parser.add_argument(
        "--margin",
        type=float,
        default=MARGIN,
        metavar="SHARE",
        help="difference in return that is none, as a share of what serial training gained "
        f"(default: {MARGIN:g})",
    )
    parser.add_argument(
        "--steps-margin",
        type=float,
        default=STEPS_MARGIN,
        metavar="SHARE",
        help="the same for the steps to the target, as a share of serial's "
        f"(default: {STEPS_MARGIN:g})",
    )
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_SEEDS} seeds of {QUICK_STEPS:,} steps"
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="runs, JSON, CSV and plot; a comparison that was interrupted there goes on",
    )


def run(options: argparse.Namespace) -> int:
    """Trains, compares and says what came of it: 0 it does not hurt, 1 it does or may."""
    refuse_ranks("verify")
    before = dict(os.environ)  # for the runs, which share the cores out by themselves
    from tianji.machine.resources import THREAD_VARIABLES

    for name in THREAD_VARIABLES:  # before numpy and torch are loaded: serial is one thread
        os.environ.setdefault(name, "1")
    from tianji.core.signals import Signals
    from tianji.tools.verify import paired_runs
    from tianji.tools.verify.settings import make_folder, settle

    pairs: list[Pair] = []
    with Signals() as signals:
        signals.at_once = True
        settings = settle(
            options.config,
            options.overrides,
            options.engine or "process",
            options.seeds,
            options.steps,
            options.quick,
            options.margin,
            options.steps_margin,
        )
        folder = make_folder(options.out or new_folder("verify", options.config), settings)

        def done(so_far: list[Pair]) -> None:
            pairs[:] = so_far
            _write(folder, settings, pairs)

        _write(folder, settings, pairs)
        status = status_of(lambda: paired_runs.train_all(settings, folder, before, tell, done))
        signals.at_once = False  # what there is, is told: `timeout` sends its signal twice
        found = _show(folder, settings, pairs)
        if status:
            again = ["tianji", *options.given]
            again += [] if options.out else ["--out", str(folder)]
            kept = f"{len(pairs)} of {len(settings.seeds)} pairs are kept; to go on: "
            print("\n".join(command(again, terminal.width(), kept)))
        sys.stdout.flush()
    return status or (1 if found is None else found.exit_status)


def _compared(settings: Settings, pairs: list[Pair]) -> Equivalence:
    from tianji.tools.verify.compare import compare

    return compare(
        pairs,
        settings.steps,
        settings.target,
        settings.ratio,
        settings.margin,
        settings.steps_margin,
    )


def _write(folder: Path, settings: Settings, pairs: list[Pair]) -> list[Path]:
    from tianji.tools.verify import results

    return results.write(folder, settings, pairs, _compared(settings, pairs))


def _show(folder: Path, settings: Settings, pairs: list[Pair]) -> Equivalence | None:
    """The tables, the sentence and the files of all pairs that there are."""
    from tianji.tools.verify import results

    if not pairs:
        return None
    found, width = _compared(settings, pairs), terminal.width()
    print(results.outcomes(found, settings, width), end="\n\n")
    print(results.ages(found, pairs, settings, width), end="\n\n")
    for note in results.notes(found):
        print("\n".join(wrapped(note, width, len("note: "), "note: ")))
    print("\n".join(wrapped(results.sentence(found, settings), width)))
    for path in _write(folder, settings, pairs):
        print(path)
    return found
