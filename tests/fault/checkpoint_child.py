"""Writes checkpoints in processes that kill themselves, each before another change on disk.

    python checkpoint_child.py FOLDER

Makes FOLDER/n for n = 0, 1, 2, ...: a run with checkpoint 1, and a process that died before its
n-th change while it wrote checkpoint 2 and removed checkpoint 1. Ends with the first that lived.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from tianji.core import checkpoint, disk
from tianji.core.disk import Files
from tianji.roles.saving import writing

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
PARTS = {
    "learner-0.0": {"weights": np.arange(5.0), "version": 3},
    "actor-0.0": {"obs": np.arange(3.0), "counts": {"produced": 7.0}},
    "buffer-0.0.store": {"rows": np.arange(6).reshape(2, 3)},
}


class Countdown:
    """Kills its process before the n-th change."""

    left = 0

    def count(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, event, arguments):
        """What Python itself says about every file that is opened, renamed or removed."""
        flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else 0
        if event in CHANGES or flags & (os.O_WRONLY | os.O_RDWR):
            self.count()


class Counted(Files):
    """Counts what Python does not announce: bytes that are written and synced."""

    def __init__(self, countdown):
        self.countdown = countdown

    def write(self, path, pieces):
        return super().write(path, self._each(pieces))

    def _each(self, pieces):
        for piece in pieces:
            self.countdown.count()
            yield piece
        self.countdown.count()

    def sync(self, descriptor):
        self.countdown.count()
        super().sync(descriptor)
        self.countdown.count()


def make(run, n, files=disk.FILES):
    """Writes checkpoint `n` and removes the one before."""
    folder = run / "checkpoints" / writing(n)
    files.make_folder(folder)
    for name, state in PARTS.items():
        checkpoint.write_part(folder, name, state, files)
    about = {"version": n, "env_steps": 10 * n, "replay": "kept"}
    documents = {"run.json": {}, "config.json": {}}
    checkpoint.seal(folder, checkpoint.folder_for(run, n, 10 * n), documents, about, files)
    checkpoint.prune(run, 1, files)


def main():
    countdown = Countdown()
    sys.addaudithook(countdown.hear)
    n = 0
    while True:
        n += 1
        run = Path(sys.argv[1]) / str(n)
        make(run, 1)
        child = os.fork()
        if child == 0:
            countdown.left = n
            make(run, 2, Counted(countdown))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            return


if __name__ == "__main__":
    main()
