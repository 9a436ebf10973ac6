"""The folder of a run: made for one run, and never given to another."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tianji import __version__
from tianji.config import Config
from tianji.errors import TianJiError

ENDED = ("solved", "finished", "stopped")  # as it was asked to
LONGEST_NAME = 100  # characters of a default folder's name


def claim(folder: Path | None, config: Config) -> Path:
    """Makes the folder of a new run, or refuses one that holds anything; overwrites nothing."""
    with _explained(folder):
        made = _make_default(config.name) if folder is None else _make(folder, config)
        (made / "logs").mkdir()
    return made


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
    with _explained(folder), (folder / "config.json").open("x", encoding="utf-8") as file:
        file.write(json.dumps(about, indent=2) + "\n")


@contextmanager
def _explained(folder: Path | None) -> Iterator[None]:
    """Turns what the file system refuses into an error that says what to do."""
    try:
        yield
    except (OSError, ValueError) as error:
        where = getattr(error, "filename", None) or folder or "runs"
        what = getattr(error, "strerror", None) or str(error)
        raise TianJiError(
            f"the run folder cannot be made: {where}: {what}: name another with --run-dir"
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


def _make(folder: Path, config: Config) -> Path:
    if folder.exists() and not folder.is_dir():
        raise TianJiError(f"{folder} is a file, not a folder: name another with --run-dir")
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise _refusal(folder, config)
    return folder


def _refusal(folder: Path, config: Config) -> TianJiError:
    """Why a folder that is not empty cannot be used."""
    advice = "name another with --run-dir"
    there = _read(folder / "config.json").get("config")
    if not isinstance(there, dict):
        return TianJiError(f"{folder} is not empty, and what it holds is not a run: {advice}")
    if changes := _differences(there, json.loads(json.dumps(config.to_json()))):
        more = f", and {len(changes) - 3} more" if len(changes) > 3 else ""
        listed = "; ".join(changes[:3]) + more
        return TianJiError(
            f"{folder} holds the run of another configuration (differs in {listed}): {advice}"
        )
    status = _read(folder / "summary.json").get("status")
    if status in ENDED:
        return TianJiError(f"{folder} holds a run of this configuration that has ended: {advice}")
    return TianJiError(
        f"{folder} holds an unfinished run of this configuration, "
        f"and this version cannot resume yet: {advice}"
    )


def _read(path: Path) -> dict[str, Any]:
    """What a file of a run holds; nothing if there is no such file or it is not ours."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _differences(there: dict[str, Any], here: dict[str, Any], prefix: str = "") -> list[str]:
    """As in `hyp.lr: 0.1 there, 0.2 here`, for every key that is not the same."""
    changes = []
    for key in dict.fromkeys([*here, *there]):
        name, old, new = f"{prefix}{key}", there.get(key), here.get(key)
        if old == new or name == "notices":
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            changes += _differences(old, new, "" if name == "parallel" else f"{name}.")
        else:
            said = [_said(key, old, there), _said(key, new, here)]
            changes.append(f"{name}: {said[0]} there, {said[1]} here")
    return changes


def _said(key: str, value: Any, section: dict[str, Any]) -> str:
    text = json.dumps(value) if key in section else "not set"
    return text if len(text) <= 60 else f"{text[:57]}..."


def versions() -> dict[str, str | None]:
    """Of this package, of Python and of the libraries that count; imports none of them."""
    from importlib import metadata  # late: it takes as long as all the rest of this module

    found: dict[str, str | None] = {"tianji": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "gymnasium"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _commit(folder: str) -> str | None:
    """The commit checked out where the configuration lies, if it is under version control."""
    command = ["git", "-C", folder, "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=2, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
