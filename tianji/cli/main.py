"""The command line: `tianji VERB ...`, with a module of `tianji.cli` behind every verb."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from typing import Any, NoReturn

from tianji import __version__
from tianji.machine import mpirun

VERBS = {
    "train": "train what a configuration file describes",
    "plan": "measure a job, and say how to split the cores between actors and learners",
    "resume": "go on with a run where it was interrupted, or give it more to do",
    "eval": "play whole games with a trained policy and say how good it is",
    "verify": "compare distributed training with serial training of the same seeds",
    "report": "draw one page about a run, or about several side by side",
    "trace": "draw what every role of a run did and when, and say who waited for what",
    "replay": "train a recorded run again in one process, bit for bit",
    "export": "write a trained policy as a file that other programs run",
    "slurm": "write a job that trains over several nodes of a Slurm cluster",
    "doctor": "say what this machine offers, and what to do about what it lacks",
    "chaos": "give a run faults on purpose, and say whether it keeps its promises",
    "bench": "train with several seeds, and say how good and how fast that is",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until a run begins there is nothing to tidy up
    given = list(sys.argv[1:] if arguments is None else arguments)
    rank = (mpirun.inside() or (0, 1))[0]
    try:
        status = _follow(given) if rank else _lead(given)
    except SystemExit as stop:  # of argparse
        if not isinstance(stop.code, int):
            raise
        status = stop.code
    mpirun.leave_status(status)
    _flush()
    if mpirun.inside() is not None:
        mpirun.vanish(status)
    return status


def _lead(given: list[str]) -> int:
    """Reads the words and does what they say; in an MPI job that is for rank 0 alone."""
    from tianji.core import terminal
    from tianji.core.errors import USER_MISTAKE, TianJiError
    from tianji.core.signals import Interrupted

    try:
        with _company(given):
            return _run(given)
    except TianJiError as error:
        terminal.say("tianji", str(error))
        return USER_MISTAKE
    except Interrupted as stop:
        if stop.words is not None:
            terminal.say("tianji", stop.words)
        return stop.exit_status
    except BrokenPipeError:  # whoever read our output has gone; what was made is on disk
        _speak_to_nobody()
        return 0


def _flush() -> None:
    """Sends off what was printed; that nobody reads it any more is no failure."""
    try:
        print(end="", flush=True)
    except BrokenPipeError:
        _speak_to_nobody()


def _speak_to_nobody() -> None:
    """Lets the interpreter's last flush succeed."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def _company(given: list[str]) -> AbstractContextManager[None]:
    """The other ranks, if there are any: whatever is wrong, they are let go when it was said."""
    if mpirun.inside() is None or not _trains(given):
        return nullcontext()
    from tianji.engines.serve_rank import among_others

    return among_others()


def _follow(given: list[str]) -> int:
    """What the other ranks do: they read no options, and hear from rank 0 what becomes of them."""
    _be_quiet()
    if not _trains(given):
        return 0
    from tianji.core.errors import TianJiError
    from tianji.engines.serve_rank import among_others, live

    with suppress(TianJiError), among_others():  # rank 0 has the same trouble, and says it
        live()
    return 0  # also then: mpirun ends all ranks at once when one fails


def _trains(given: list[str]) -> bool:
    """Whether these words are for all ranks of an MPI job."""
    return given[:1] in (["train"], ["resume"])


def _be_quiet() -> None:
    """Rank 0 speaks for all: nobody wants to read a message as often as there are ranks."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _run(given: list[str]) -> int:
    """Runs a verb."""
    from tianji.core.errors import USER_MISTAKE

    if not given:
        parser().print_help(sys.stderr)
        return USER_MISTAKE
    if given[0] not in VERBS and not given[0].startswith("-"):
        from tianji.config.section import nearest

        near = nearest(given[0], VERBS, "There are")
        parser().error(f"argument VERB: invalid choice: {given[0]!r}. {near}")
    options, unknown = parser(given).parse_known_args(given)
    options.given = given
    if unknown:  # the help of the verb helps, that of `tianji` does not
        _alone(options.verb).error(f"unrecognized arguments: {' '.join(unknown)}")
    return int(_module(options.verb).run(options))


def parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Every verb, with the options of the one that is `given`."""
    top = _Parser(prog="tianji", description="Distributed reinforcement learning.")
    top.add_argument("--version", action="version", version=f"tianji {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, purpose in VERBS.items():
        verb = verbs.add_parser(name, help=purpose, description=f"tianji {name}: {purpose}.")
        if given[:1] == [name]:
            _module(name).arguments(verb)
    return top


class _Parser(argparse.ArgumentParser):
    """Answers a mistake in an option with the mistake, not with all options there are.

    The parsers of the verbs, which it makes, are of the same kind.
    """

    def error(self, message: str) -> NoReturn:
        """Ends the command, with the usual status."""
        from tianji.core import terminal
        from tianji.core.errors import USER_MISTAKE

        terminal.say(self.prog, f"{message}\nsee {self.prog} --help")
        self.exit(USER_MISTAKE)


def _alone(verb: str) -> argparse.ArgumentParser:
    """The parser of one verb."""
    made = _Parser(prog=f"tianji {verb}")
    _module(verb).arguments(made)
    return made


def _module(verb: str) -> Any:
    return import_module(f"tianji.cli.{verb}")


if __name__ == "__main__":
    sys.exit(main())
