"""The command line: `tianji VERB ...`, with a module of `tianji.verbs` behind every verb."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tianji import __version__

VERBS = {
    "train": "train what a configuration file describes",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a run begins there is nothing to tidy up
    from tianji.errors import USER_MISTAKE, TianJiError
    from tianji.launch import Interrupted

    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser(given).parse_args(given)
    try:
        return int(_module(options.verb).run(options))
    except TianJiError as error:
        print(f"tianji: {error}", file=sys.stderr)
        return USER_MISTAKE
    except Interrupted as stop:
        return 128 + stop.number
    except BrokenPipeError:  # whoever read our output has gone; the run itself is on disk
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for the interpreter's last flush
        return 0


def parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Every verb, with the options of the one that is `given`."""
    top = argparse.ArgumentParser(prog="tianji", description="Distributed reinforcement learning.")
    top.add_argument("--version", action="version", version=f"tianji {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, purpose in VERBS.items():
        verb = verbs.add_parser(name, help=purpose, description=f"tianji {name}: {purpose}.")
        if name in given:
            _module(name).arguments(verb)
    return top


def _module(verb: str) -> Any:
    return import_module(f"tianji.verbs.{verb}")


if __name__ == "__main__":
    sys.exit(main())
