"""Processes of our own, which are of this very TianJi and look for no module in the current folder.

    subprocess.Popen([*command_for("tianji.engines.worker"), home])

`python -m` looks there first, and a folder that a stranger made may hold a `numpy.py`. This file is
also what such a process begins with.
"""

from __future__ import annotations

import os
import sys

THIS = os.path.realpath(__file__)


def command_for(module: str) -> list[str]:
    """The first words of a command line that does what `python -m` does for one of our modules."""
    return [sys.executable, "-P", THIS, module]


def _begin() -> None:
    """Runs the module that the command line names, of the package that this file is part of."""
    import runpy
    from importlib.util import find_spec

    package = os.path.dirname(os.path.dirname(THIS))
    found = find_spec("tianji")
    origin = "" if found is None else os.path.realpath(found.origin or "")
    if os.path.dirname(origin) != package:  # a checkout that is not installed
        sys.path.insert(0, os.path.dirname(package))
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _begin()
