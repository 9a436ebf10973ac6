"""One process of the benchmark: `python child.py MODULE WORDS ...` calls `main` of a module.

A file beside the modules, because these lie in no package that Python would find by itself.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path

from tianji.core.signals import ending_with

PARENT = "TIANJI_PARENT"  # in the environment of a child


def command(module: str, *words: str) -> list[str]:
    """What starts a module in a process of its own."""
    return [sys.executable, str(Path(__file__).resolve()), module, *words]


def child_environment() -> dict[str, str]:
    """Of a child that says `die_with_parent`: one thread for numpy, and who its parent is."""
    return os.environ | {"OMP_NUM_THREADS": "1", PARENT: str(os.getpid())}


def die_with_parent() -> None:
    """Ends a child with its parent: it may be waiting for a word that nobody would ever say."""
    ending_with(int(os.environ.get(PARENT, os.getppid())), signal.SIGKILL)()


if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    import_module(sys.argv.pop(1)).main()
