"""How wide the place is that a command prints to."""

from __future__ import annotations

import os
import shutil
import sys


def columns(otherwise: int) -> int:
    """Of the terminal, or of `COLUMNS`; `otherwise` where it is a file or a pipe."""
    is_known = sys.stdout.isatty() or "COLUMNS" in os.environ
    return shutil.get_terminal_size().columns if is_known else otherwise
