"""The command line: `tianji train CONFIG` trains what one configuration file describes."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tianji import __version__


def parser() -> argparse.ArgumentParser:
    """Every verb and option."""
    top = argparse.ArgumentParser(prog="tianji", description="Distributed reinforcement learning.")
    top.add_argument("--version", action="version", version=f"tianji {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    train = verbs.add_parser("train", help="train what a configuration file describes")
    train.add_argument("config", help="configuration file, as in configs/cartpole_ppo.py")
    train.add_argument(
        "--engine",
        choices=["local", "process"],
        help="local: all roles in this process, the same every time; "
        "process: each role in a process of its own (default)",
    )
    train.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the configuration, as in --set hyp.lr=0.001; may be repeated",
    )
    train.add_argument("--run-dir", type=Path, metavar="DIR", help="folder of this run")
    train.add_argument("--max-seconds", type=float, metavar="S", help="train for S seconds at most")
    train.add_argument("--stop-return", type=float, metavar="R", help="end at a mean return of R")
    train.add_argument("--seed", type=int, metavar="N", help="seed of everything random")
    train.add_argument("--quiet", action="store_true", help="show nothing while training")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a run begins there is nothing to tidy up
    from tianji.errors import USER_MISTAKE, TianJiError
    from tianji.launch import Interrupted

    options = parser().parse_args(arguments)
    try:
        return _train(options)
    except TianJiError as error:
        print(f"tianji: {error}", file=sys.stderr)
        return USER_MISTAKE
    except Interrupted as stop:
        return 128 + stop.number
    except BrokenPipeError:  # whoever read our output has gone; the run itself is on disk
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for the interpreter's last flush
        return 0


def _train(options: argparse.Namespace) -> int:
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


if __name__ == "__main__":
    sys.exit(main())
