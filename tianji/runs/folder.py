"""The folder of a run: made for one run, and never given to another."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tianji.config import Config, from_json
from tianji.core import atomic_file
from tianji.core.append_log import set_aside
from tianji.core.checkpoint import Checkpoint
from tianji.core.errors import TianJiError
from tianji.core.json_file import number, parsed_row, read_json, refuse_ways_out, text
from tianji.core.status import ENDED, Status
from tianji.core.versions import versions
from tianji.runs.older_config import config_of
from tianji.runs.trust import seal

Json = dict[str, Any]

LONGEST_NAME = 100  # characters of a default folder's name
LOCK = ".lock"
LIMITS = (  # that a run may be given more of when it is resumed
    "exp.train_steps",
    "exp.episodes",
    "exp.stop_return",
    "exp.stop_return_of",
    "exp.stop_win_ratio",
    "exp.max_seconds",
    "exp.save_seconds",
    "exp.save_freq",
    "exp.save_keep",
    "exp.save_replay",
    "exp.track",
    "exp.record",
    "exp.trace_seconds",
    "global_cfg.save_freq",
    "global_cfg.exit_val",
    "learner_cfg.finish_reward",
    "learner_cfg.exit_val",
)

OPTIONS = {"exp.max_seconds": "--max-seconds", "exp.stop_return": "--stop-return"}
"""Those of them that have an option of their own."""

MORE = {  # to do, for a run that has ended
    Status.SOLVED: "--stop-return R",
    Status.FINISHED: "--set exp.train_steps=1_000_000",
    Status.STOPPED: "--max-seconds S",
}


@dataclass(frozen=True)
class Claim:
    """A folder that belongs to this process until `release`."""

    folder: Path
    resumes: bool  # it holds a run that is not finished
    was_there: bool
    lock: int  # descriptor of the locked file: the system frees it with the process

    def release(self) -> None:
        """Lets others have it."""
        os.close(self.lock)

    def leave(self) -> None:
        """Undoes a claim for a run that never began; what was there before stays."""
        if self.resumes:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.was_there:
            self.folder.mkdir()


def claim(folder: Path | None, config: Config, extend: bool = False) -> Claim:
    """Makes the folder of a new run, or takes up an unfinished run of the same configuration.

    Everything else is refused, and nothing is overwritten. With `extend` the configuration may
    differ in when the run ends, and a run that has ended goes on.
    """
    with _explained(folder):
        was_there = folder is not None and folder.is_dir()
        made = _make_default(config.name) if folder is None else _make(folder)
        resumes = not _is_unused(made)
        if resumes:
            refuse_unfit(made, config, extend)
        lock = _lock(made)
        resumes = not _is_unused(made)  # another may have come and gone in between
        _refuse_locked(made, config if resumes else None, extend, lock)
        (made / "logs").mkdir(exist_ok=True)
        (made / "checkpoints").mkdir(exist_ok=True)
    return Claim(made, resumes, was_there, lock)


def _refuse_locked(folder: Path, config: Config | None, extend: bool, lock: int) -> None:
    try:
        if config is not None:
            refuse_unfit(folder, config, extend)
        refuse_ways_out(folder)
    except BaseException:
        os.close(lock)
        raise


def refuse_checkpoint(saved: Checkpoint, config: Config) -> None:
    """Raises unless a checkpoint was taken by a run of this configuration."""
    there = config_of(saved.json("config.json"))
    here = json.loads(json.dumps(config.to_json()))
    changes = _differences(_completed(there), here)
    changes = {name: words for name, words in changes.items() if name not in LIMITS}
    if changes:
        listed = "; ".join(list(changes.values())[:3])
        raise TianJiError(
            f"{saved.folder} is a checkpoint of another configuration (differs in {listed}): take "
            "it out of the run's folder"
        )


def _is_unused(folder: Path) -> bool:
    """Whether no run ever began there; whoever died before that left the lock and empty folders."""
    names = {path.name for path in folder.iterdir()}
    found = {name for name in names if not atomic_file.LEFT_OVER.fullmatch(name)}
    if LOCK not in found:
        return not found
    ours = {LOCK, "logs", "checkpoints"}
    saved = folder / "checkpoints"
    return found <= ours and not (saved.is_dir() and any(saved.iterdir()))


def _lock(folder: Path) -> int:
    """Makes sure that no two processes train in one folder, as a requeued job might try to."""
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise TianJiError(
            f"{folder} is in use: another process is training there; wait for its end, or name "
            "another with --run-dir"
        ) from None
    return descriptor


def identify(folder: Path, config: Config, engine: str, hyp: dict[str, Any]) -> None:
    """Writes `config.json`: all that is needed to know what a run was."""
    about = {
        "config": config.to_json(),
        "hyp": hyp,  # with every default
        "engine": engine,
        "seed": config.exp.seed,
        "versions": versions(),
        "commit": _commit(config.folder),
    }
    if (sealed := seal(config)) is not None:
        about["seal"] = sealed
    with _explained(folder):
        atomic_file.write(folder / "config.json", json.dumps(about, indent=2) + "\n")


def rewind(folder: Path, env_steps: int) -> None:
    """Takes the rows after `env_steps` out of `metrics.jsonl`: that work was lost with the process.

    They are kept in `metrics.lost.jsonl`.
    """
    path, lost = folder / "metrics.jsonl", folder / "metrics.lost.jsonl"
    set_aside(path, lost, lambda line: _steps_of(line) > env_steps)


def _steps_of(line: bytes) -> float:
    """The environment steps of a row; infinity if it is not a whole row."""
    steps = number(parsed_row(line).get("env_steps"))
    return math.inf if steps is None else steps


@contextmanager
def _explained(folder: Path | None) -> Iterator[None]:
    """Turns what the file system refuses into an error that says what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        where = getattr(error, "filename", None) or folder or "runs"
        what = getattr(error, "strerror", None) or str(error)
        raise TianJiError(
            f"the run folder cannot be used: {where}: {what}: name another with --run-dir"
        ) from error


def _make_default(name: str) -> Path:
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:LONGEST_NAME] or "run"
    parent, stem = Path("runs"), f"{word}-{time.strftime('%Y%m%d-%H%M%S')}"
    parent.mkdir(exist_ok=True)
    attempt = 1
    while True:
        folder = parent / (stem if attempt == 1 else f"{stem}-{attempt}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            attempt += 1


def _make(folder: Path) -> Path:
    if folder.exists() and not folder.is_dir():
        raise TianJiError(f"{folder} is a file, not a folder: name another with --run-dir")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def refuse_unfit(folder: Path, config: Config, extend: bool) -> None:
    """Raises unless the folder holds a run that may go on with this configuration."""
    advice = "name another with --run-dir"
    there = config_of(read_json(folder / "config.json"))
    if not there:
        raise TianJiError(f"{folder} is not empty, and what it holds is not a run: {advice}")
    status = text(read_json(folder / "summary.json").get("status"))
    here = json.loads(json.dumps(config.to_json()))
    changes = _differences(_completed(there), here)
    others = {name: words for name, words in changes.items() if name not in LIMITS}
    if extend:
        changes = others
    if changes:
        more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
        listed = "; ".join(list(changes.values())[:3]) + more
        if extend:
            advice = (
                "only when it ends and what it saves can be said anew; "
                f"for another {next(iter(changes))} begin a new run"
            )
        elif others and status not in ENDED:  # it may have had a plan, or keys of a command line
            advice += (
                f", or go on with it as it is: {shlex.join(['tianji', 'resume', str(folder)])}"
            )
        elif not others:
            advice += f", or go on with it: {_resume_with(folder, list(changes), here)}"
        raise TianJiError(
            f"{folder} holds the run of another configuration (differs in {listed}): {advice}"
        )
    if status in ENDED and not extend:
        raise TianJiError(
            f"{folder} holds a run of this configuration that has ended ({status}): {advice}, or "
            f"give it more to do, as in: tianji resume {folder} {MORE[Status(status)]}"
        )


def _resume_with(folder: Path, names: list[str], config: Json) -> str:
    """The command that says these keys anew."""
    words = ["tianji", "resume", str(folder)]
    for name in names:
        section, _, key = name.partition(".")
        value = (config.get(section) or config["parallel"][section]).get(key)
        option = OPTIONS.get(name) if value is not None else None
        words += [option, f"{value:g}"] if option else ["--set", f"{name}={value!r}"]
    return shlex.join(words)


def _completed(config: Json) -> Json:
    """A configuration of an older version with the defaults of the keys that are new since."""
    try:
        completed: Json = json.loads(json.dumps(from_json(config).to_json()))
    except TianJiError:
        return config
    return completed


def _differences(there: Json, here: Json, prefix: str = "") -> dict[str, str]:
    """As in `hyp.lr: 0.1 there, 0.2 here`, by name, for every key that is not the same."""
    changes: dict[str, str] = {}
    for key in dict.fromkeys([*here, *there]):
        name, old, new = f"{prefix}{key}", there.get(key), here.get(key)
        if old == new or name == "notices":
            continue
        if isinstance(old, dict) and isinstance(new, dict) and name not in LIMITS:
            changes |= _differences(old, new, "" if name == "parallel" else f"{name}.")
        else:
            said = [_said(key, old, there), _said(key, new, here)]
            changes[name] = f"{name}: {said[0]} there, {said[1]} here"
    return changes


def _said(key: str, value: Any, section: dict[str, Any]) -> str:
    text = json.dumps(value) if key in section else "not set"
    return text if len(text) <= 60 else f"{text[:57]}..."


@cache
def _commit(folder: str) -> str | None:
    """The commit checked out where the configuration lies, if it is under version control."""
    command = ["git", "-C", folder, "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
