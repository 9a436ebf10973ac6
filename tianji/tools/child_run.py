"""One run of `tianji train` in a process of its own, as a user would start it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tianji.core.child import command_for
from tianji.core.errors import USER_MISTAKE, TianJiError
from tianji.core.json_file import read_json, text
from tianji.core.signals import Interrupted, ending_with
from tianji.core.status import ENDED
from tianji.runs.run import SUMMARY

OUTPUT = "output.txt"  # what `tianji train` said
STOP_SECONDS = 30.0  # for a run to end in order once it was asked to
LAST_LINES = 12  # of a run that failed


class RunFailed(Exception):
    """A run ended in a way that is not the user's mistake."""


def is_done(place: Path) -> bool:
    """Whether the folder holds a run that came to its end."""
    return text(read_json(place / SUMMARY).get("status")) in ENDED


def opened(folder: Path) -> list[str]:
    """Makes the folder that `--out` names, or takes it; the names of what is in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path.name for path in folder.iterdir()]
    except OSError as error:
        raise TianJiError(f"--out {folder}: {error.strerror}: name a folder to write to") from error


def train(
    config: str,
    overrides: Sequence[str],
    engine: str,
    place: Path,
    environment: Mapping[str, str],
) -> None:
    """Trains in the folder `place`; raises where the run did not come to its end."""
    words = [*command_for("tianji"), "train", config, "--quiet"]
    words += ["--engine", engine, "--run-dir", str(place)]
    words += [word for override in overrides for word in ("--set", override)]
    output = place.with_name(f"{place.name}.{OUTPUT}")
    with output.open("wb") as file:
        child = subprocess.Popen(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            preexec_fn=ending_with(os.getpid(), signal.SIGTERM),
        )
        status = _awaited(child)
    if status != 0 or not is_done(place):
        said = "\n".join(output.read_text(errors="replace").rstrip().splitlines()[-LAST_LINES:])
        if status == USER_MISTAKE:
            raise TianJiError(said.removeprefix("tianji: "))
        raise RunFailed(f"{place.name} failed with status {status}:\n{said}")
    output.unlink()


def _awaited(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait()
    except Interrupted as stop:
        child.send_signal(stop.number)  # Ctrl-C has reached it already; twice is the same wish
        raise
    finally:
        try:
            child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
