"""What every role of a run did and when: recorded in its process, read and drawn afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path

FOLDER = "trace"  # in the folder of a run, with a file for each of its processes
ENDING = ".trace"


def forget(folder: Path) -> None:
    """Removes what an earlier process of the same run recorded: the two would not fit together."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
