"""`tianji train CONFIG`: trains what one configuration file describes."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `train`."""
    parser.add_argument("config", help="configuration file, as in configs/cartpole_ppo.py")
    parser.add_argument(
        "--engine",
        choices=["local", "process"],
        help="local: all roles in this process, the same every time; "
        "process: each role in a process of its own (default)",
    )
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the configuration, as in --set hyp.lr=0.001; may be repeated",
    )
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="folder of this run")
    parser.add_argument(
        "--max-seconds", type=float, metavar="S", help="train for S seconds at most"
    )
    parser.add_argument("--stop-return", type=float, metavar="R", help="end at a mean return of R")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    parser.add_argument("--quiet", action="store_true", help="show nothing while training")


def run(options: argparse.Namespace) -> int:
    """Trains; returns the run's exit status."""
    from tianji import launch
    from tianji.config import load
    from tianji.resources import process_started_at

    config = load(options.config, _overrides(options))
    for notice in config.notices:
        print(f"note: {notice}", file=sys.stderr)
    began = process_started_at()
    report = launch.train(config, options.engine, options.run_dir, options.quiet, began)
    if report.summary["error"]:
        print(f"tianji: {report.summary['error']}", file=sys.stderr)
    from tianji.run import describe

    print(describe(report.summary, report.folder))
    return report.exit_status


def _overrides(options: argparse.Namespace) -> list[str]:
    named = {
        "exp.stop_return": options.stop_return,
        "exp.seed": options.seed,
        "exp.max_seconds": options.max_seconds,
    }
    given = [f"{name}={value}" for name, value in named.items() if value is not None]
    return [*options.overrides, *given]
