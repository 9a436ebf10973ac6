"""The command line: `tianji VERB ...`, with a module of `tianji.verbs` behind every verb."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from tianji import __version__, mpirun

WORD_SECONDS = 2.0  # for rank 0 to say what is wrong: mpirun ends all at the first that fails

VERBS = {
    "train": "train what a configuration file describes",
    "resume": "go on with a run where it was interrupted, or give it more to do",
    "eval": "play whole games with a trained policy and say how good it is",
    "report": "draw one page about a run, or about several side by side",
    "export": "write a trained policy as a file that other programs run",
    "slurm": "write a job that trains over several nodes of a Slurm cluster",
    "doctor": "say what this machine offers, and what to do about what it lacks",
    "bench": "measure what this machine and our channels can do",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    try:
        status = _main(arguments)
    except SystemExit as stop:  # of argparse
        if not isinstance(stop.code, int):
            raise
        status = stop.code
    if status and (mpirun.inside() or (0, 1))[0]:
        time.sleep(WORD_SECONDS)
    mpirun.leave_status(status)
    if mpirun.inside() is not None:
        mpirun.vanish(status)
    return status


def _main(arguments: Sequence[str] | None) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a run begins there is nothing to tidy up
    from tianji.errors import USER_MISTAKE, TianJiError
    from tianji.signals import Interrupted

    rank = (mpirun.inside() or (0, 1))[0]
    if rank:
        _be_quiet()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given:
        parser().print_help(sys.stderr)
        return USER_MISTAKE
    options, unknown = parser(given).parse_known_args(given)
    options.given = given
    if unknown:  # the usage of the verb helps, that of `tianji` does not
        _alone(options.verb).error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        return _run(options, rank)
    except TianJiError as error:
        print(f"tianji: {error}", file=sys.stderr)
        return USER_MISTAKE
    except Interrupted as stop:
        return stop.exit_status
    except BrokenPipeError:  # whoever read our output has gone; the run itself is on disk
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for the interpreter's last flush
        return 0


def _be_quiet() -> None:
    """Rank 0 speaks for all: nobody wants to read a message as often as there are ranks."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _run(options: argparse.Namespace, rank: int) -> int:
    """Runs a verb; in an MPI job the other ranks train with rank 0 and leave all else to it."""
    verb = _module(options.verb)
    if mpirun.inside() is None or options.verb not in ("train", "resume"):
        return 0 if rank else int(verb.run(options))
    from tianji.engines import rank as ranks

    with ranks.among_others():
        return ranks.serve() if rank else int(verb.run(options))


def parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Every verb, with the options of the one that is `given`."""
    top = argparse.ArgumentParser(prog="tianji", description="Distributed reinforcement learning.")
    top.add_argument("--version", action="version", version=f"tianji {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, purpose in VERBS.items():
        verb = verbs.add_parser(name, help=purpose, description=f"tianji {name}: {purpose}.")
        if given[:1] == [name]:
            _module(name).arguments(verb)
    return top


def _alone(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb."""
    made = argparse.ArgumentParser(prog=f"tianji {verb}")
    _module(verb).arguments(made)
    return made


def _module(verb: str) -> Any:
    return import_module(f"tianji.verbs.{verb}")


if __name__ == "__main__":
    sys.exit(main())
