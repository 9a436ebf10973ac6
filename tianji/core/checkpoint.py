"""Checkpoints on disk: a folder that is whole or not there, and tells whether it is intact.

    checkpoints/
      0007-step-120000/          the seventh checkpoint, taken after 120,000 environment steps
        learner-0.0.safetensors  one file per role: arrays, and the rest as JSON in its header
        buffer-0.0.safetensors   ...
        buffer-0.0.store.safetensors   the samples, where they were kept
        run.json                 what the launcher knew: returns, episodes, times
        config.json              of the run
        manifest.json            size and SHA-256 of every file, versions, counters
        manifest.sha256          of the manifest itself

The roles write their files into a folder whose name begins with a dot; each file is complete when
its `.sha256` lies beside it. `seal` writes the manifest and renames the folder, so that a process
that dies at any moment leaves either a whole checkpoint or none. Nothing here is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tianji.core import atomic_file, json_file
from tianji.core.disk import FILES, Files
from tianji.core.errors import TianJiError
from tianji.core.state import State
from tianji.core.tensorfile import Corrupt, chunks, read

FORMAT = 1
NAME = re.compile(r"\d+-step-\d+", re.ASCII)
PLAIN_NAME = re.compile(r"\w[\w.-]{0,200}", re.ASCII)
LEFT_OVER = re.compile(r"\.(writing-\d+|last|old-\d+-step-\d+)", re.ASCII)


class OutOfTime(Exception):
    """What was to be written did not fit into the time there was."""


def write_part(
    folder: Path,
    name: str,
    state: State,
    files: Files = FILES,
    is_late: Callable[[], bool] = lambda: False,
) -> None:
    """Writes one part of a checkpoint, and its checksum beside it when it is complete.

    Once it `is_late` it gives up, and leaves nothing.
    """
    path = folder / f"{name}.safetensors"
    try:
        digest = files.write(path, _until(is_late, chunks(state)))
    except BaseException:
        files.remove(path)
        raise
    files.note(path.with_suffix(".sha256"), f"{digest}  {path.name}\n")


def _until(
    is_late: Callable[[], bool], pieces: Iterator[memoryview | bytes]
) -> Iterator[memoryview | bytes]:
    for piece in pieces:
        if is_late():
            raise OutOfTime
        yield piece


def read_written(folder: Path, name: str) -> State:
    """A part that was written and is not sealed yet."""
    return read(folder / f"{name}.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest has been read."""

    folder: Path
    manifest: dict[str, Any]

    @property
    def version(self) -> int:
        """Updates behind its weights, which are those of the first group."""
        return int(self.manifest["version"])

    @property
    def updates(self) -> int:
        """Updates of all groups."""
        return int(self.manifest.get("updates", self.version))

    @property
    def env_steps(self) -> int:
        """Environment steps that had been made."""
        return int(self.manifest["env_steps"])

    @property
    def score(self) -> float | None:
        """Mean return when it was taken, by which the best one is kept."""
        return json_file.number(self.manifest.get("score"))

    def part(self, name: str) -> State | None:
        """What one role wrote, or None where it wrote nothing."""
        if f"{name}.safetensors" not in self.manifest["files"]:
            return None
        return read(self.folder / f"{name}.safetensors")

    def json(self, name: str) -> dict[str, Any]:
        """The content of one of its JSON files, if that is what was written."""
        path = self.folder / name
        data = _bytes_of(path)
        if hashlib.sha256(data).hexdigest() != self.manifest["files"][name].get("sha256"):
            raise Corrupt(f"{path} is not what was written: its checksum differs")
        try:
            return json_file.parsed(data, str(path))
        except TianJiError as error:
            raise Corrupt(str(error)) from error


def seal(
    writing: Path,
    target: Path,
    documents: dict[str, dict[str, Any]],
    about: dict[str, Any],
    files: Files = FILES,
) -> Checkpoint:
    """Turns a folder of complete parts into a checkpoint called `target`.

    `documents` are JSON files to add; `about` goes into the manifest.
    """
    listed: dict[str, dict[str, Any]] = {}
    sums = sorted(writing.glob("*.sha256"))
    for path in sums:
        digest, name = path.read_text(encoding="utf-8").split()
        listed[name] = {"bytes": (writing / name).stat().st_size, "sha256": digest}
    for path in writing.iterdir():
        if path.suffix != ".sha256" and path.name not in listed:
            files.remove(path)  # half written by a role that was killed
    for name, content in documents.items():
        text = (json.dumps(content, indent=2) + "\n").encode()
        listed[name] = {"bytes": len(text), "sha256": files.write(writing / name, iter([text]))}
    manifest = {"format": FORMAT, "created": time.time(), **about, "files": listed}
    text = (json.dumps(manifest, indent=2) + "\n").encode()
    digest = files.write(writing / "manifest.json", iter([text]))
    for path in sums:
        files.remove(path)
    seal_text = f"{digest}  manifest.json\n".encode()
    files.write(writing / "manifest.sha256", iter([seal_text]))
    files.sync_folder(writing)
    files.rename(writing, target)
    files.sync_folder(target.parent)
    return Checkpoint(target, manifest)


def folders_of(run: Path) -> list[Path]:
    """The folders of a run's checkpoints, the oldest first; whether they are intact is not said."""
    found = (run / "checkpoints").glob("*-step-*")
    return sorted(
        (path for path in found if NAME.fullmatch(path.name) and path.is_dir()), key=number
    )


def folder_for(run: Path, number: int, env_steps: int) -> Path:
    """Where the checkpoint with this number belongs."""
    return run / "checkpoints" / f"{number:04d}-step-{env_steps}"


def number(folder: Path) -> int:
    """The place of a checkpoint in the sequence, from its folder's name."""
    return int(folder.name.partition("-")[0]) if NAME.fullmatch(folder.name) else 0


def open_checkpoint(folder: Path) -> Checkpoint:
    """Reads the manifest, after checking it against its own checksum."""
    text, want = _bytes_of(folder / "manifest.json"), _bytes_of(folder / "manifest.sha256")
    if want != f"{hashlib.sha256(text).hexdigest()}  manifest.json\n".encode():
        raise Corrupt(f"{folder}/manifest.json is not what was written: its checksum differs")
    try:
        manifest = json_file.parsed(text, f"{folder}/manifest.json")
        newer = manifest["format"] > FORMAT
    except (TianJiError, KeyError, TypeError) as error:
        raise Corrupt(f"{folder}/manifest.json is none of ours: {error}") from error
    if newer:
        raise TianJiError(
            f"{folder} has format {manifest['format']}, made by tianji "
            f"{manifest.get('tianji', 'of a later version')}; this version reads up to {FORMAT}: "
            "use a newer version"
        )
    if (flaw := _flaw(manifest)) is not None:
        raise Corrupt(f"{folder}/manifest.json is none of ours: {flaw}")
    return Checkpoint(folder, manifest)


def _bytes_of(path: Path) -> bytes:
    """What a small file holds; `Corrupt` where it is missing or none of ours, and `Busy`."""
    try:
        return json_file.read_bytes(path)
    except json_file.Busy:
        raise
    except TianJiError as error:
        raise Corrupt(f"{path.parent} is no whole checkpoint: {error}") from error


def _flaw(manifest: dict[str, Any]) -> str | None:
    """What a manifest lacks, so that whoever reads it later need not ask."""
    for name, default in (("version", None), ("env_steps", None), ("updates", 0)):
        if json_file.whole(manifest.get(name, default)) is None:
            return f"{name} is missing or no count"
    if not isinstance(manifest.get("replay"), str) or not isinstance(manifest.get("files"), dict):
        return "replay or files is missing or of another type"
    if not isinstance(manifest.get("score", 0), int | float | None):
        return "score is no number"
    for name, about in manifest["files"].items():
        if not PLAIN_NAME.fullmatch(name):
            return f"it names a file {name!r}"
        if not isinstance(about, dict) or not isinstance(about.get("bytes"), int):
            return f"it says nothing of {name}"
    needed = ("learner-0.0.safetensors", "run.json", "config.json")
    lacking = [name for name in needed if name not in manifest["files"]]
    return f"it lists no {lacking[0]}" if lacking else None


def verify(checkpoint: Checkpoint, only: Collection[str] | None = None) -> None:
    """Raises unless every file, or each of `only` these, is byte for byte what was written."""
    for name, about in checkpoint.manifest["files"].items():
        if only is not None and name not in only:
            continue
        path = checkpoint.folder / name
        try:
            if path.is_symlink():
                raise Corrupt(f"{path} is no plain file")
            with json_file.opened(path) as file:
                if (size := os.fstat(file.fileno()).st_size) != about["bytes"]:
                    raise Corrupt(f"{path} has {size:,} bytes instead of {about['bytes']:,}")
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            refused = json_file.refusal(path, error)
            raise (
                refused if isinstance(refused, json_file.Busy) else Corrupt(str(refused))
            ) from error
        if digest != about.get("sha256"):
            raise Corrupt(f"{path} is not what was written: its checksum differs")


def load(folder: Path) -> Checkpoint:
    """An intact checkpoint, or an error that says what is wrong with it."""
    checkpoint = open_checkpoint(folder)
    verify(checkpoint)
    for name in ("run.json", "config.json"):
        checkpoint.json(name)  # to find later that it is no object would be too late to fall back
    return checkpoint


def newest(
    run: Path, check: Callable[[Checkpoint], object] = lambda _: None
) -> tuple[Checkpoint | None, list[str]]:
    """The newest intact checkpoint of a run, and a line about each newer one that is not.

    `check` may find one `Corrupt` that is otherwise intact. Raises if there are checkpoints and
    none of them is intact: to begin anew without a word would hide the loss.
    """
    broken: list[str] = []
    for folder in reversed(folders_of(run)):
        try:
            found = load(folder)
            check(found)
            return found, broken
        except Corrupt as error:
            broken.append(str(error))
    if broken:
        listed = "\n  ".join(broken)
        raise TianJiError(
            f"{run}: none of its checkpoints is intact:\n  {listed}\n"
            "Restore one from a copy, or begin a new run with another --run-dir."
        )
    return None, []


def prune(run: Path, keep: int, files: Files = FILES) -> None:
    """Removes all checkpoints but the last `keep` and the best."""
    found = _readable(run)
    for checkpoint in found[:-keep]:
        if checkpoint != _best(found):
            doomed = checkpoint.folder.with_name(f".old-{checkpoint.folder.name}")
            files.rename(checkpoint.folder, doomed)  # never seen half removed
            files.remove(doomed)


def best(run: Path) -> Path | None:
    """The folder of the best checkpoint, if any has a score."""
    found = _best(_readable(run))
    return None if found is None else found.folder


def _best(found: list[Checkpoint]) -> Checkpoint | None:
    """The one with the highest score; of equal ones the newest."""
    scored = [c for c in found if c.score is not None]
    return max(scored, key=lambda c: (c.score, number(c.folder)), default=None)


def _readable(run: Path) -> list[Checkpoint]:
    """The checkpoints with a manifest that is in order; others are not ours to judge, and stay."""
    found = []
    for folder in folders_of(run):
        try:
            found.append(open_checkpoint(folder))
        except TianJiError:
            continue
    return found


def sweep(run: Path, files: Files = FILES) -> None:
    """Removes what a process that died left half written."""
    for path in (run / "checkpoints").glob(".*"):
        if LEFT_OVER.fullmatch(path.name) or atomic_file.LEFT_OVER.fullmatch(path.name):
            files.remove(path)
