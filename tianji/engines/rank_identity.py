"""What a rank of an MPI job says of itself, so that no other run's is taken for one of this."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tianji import __version__


def identity(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """What must be the same for all ranks of a run."""
    words = _beyond_hosts(sys.argv[1:] if arguments is None else arguments)
    files = {word: digest for word in words if (digest := _digest(word)) is not None}
    return {"version of tianji": __version__, "command line": words, "configuration": files}


def _beyond_hosts(words: Sequence[str]) -> list[str]:
    """Words that say what is trained: the file with the machines need not lie on all of them."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--hostfile")
    try:
        return parser.parse_known_args(words)[1]
    except argparse.ArgumentError:
        return list(words)


def _digest(word: str) -> str | None:
    """Of the file that a word of the command line names, if it names one."""
    try:
        return hashlib.sha256(Path(word).read_bytes()).hexdigest()[:12]
    except (OSError, ValueError):
        return None
