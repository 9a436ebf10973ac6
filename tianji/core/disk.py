"""Every change that a checkpoint makes on disk goes through here; tests break in between."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tianji.core import atomic_file

SYNC_BYTES = 64 << 20  # written from one fsync to the next, so that a deadline means something


class Files:
    """The changes, one by one."""

    def make_folder(self, path: Path) -> None:
        """Makes a folder and its parents."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, pieces: Iterator[memoryview | bytes]) -> str:
        """Writes a file through to the disk; returns its SHA-256."""
        digest, unsynced = hashlib.sha256(), 0
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
                digest.update(piece)
                unsynced += len(piece)
                if unsynced >= SYNC_BYTES:
                    self.sync(file.fileno())
                    unsynced = 0
            file.flush()
            self.sync(file.fileno())
        return digest.hexdigest()

    def note(self, path: Path, text: str) -> None:
        """Writes a small file that only has to last until the checkpoint is sealed."""
        atomic_file.write(path, text)  # it says that something is complete

    def sync(self, descriptor: int) -> None:
        """Returns when what was written is on the disk."""
        os.fsync(descriptor)

    def sync_folder(self, path: Path) -> None:
        """The same for the names in a folder."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Gives a folder its final name, at once or not at all."""
        os.rename(source, target)

    def remove(self, path: Path) -> None:
        """Removes a file or a folder; one that is not there is no error."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


FILES = Files()
