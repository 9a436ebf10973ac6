"""What all peers have in common: naps, the shape of a message, a process of their own."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tianji.core.channel import Message
from transmission import ranks
from transmission.child import command
from transmission.experiment import Collected, Experiment

CROWD_NAP = 0.0001  # seconds between two probes where processes outnumber cores


def missing(module: str, package: str) -> str | None:
    """What to install; None where it is there."""
    if importlib.util.find_spec(module) is not None:
        return None
    return f"not installed: pip install {package}"


class Unannounced:
    """What nobody has to be told of before a wait."""

    def arm(self) -> None:
        """Nobody would ring."""

    def disarm(self) -> None:
        """Nothing was announced."""


class Naps(Unannounced):
    """What can only be probed: naps where others need the core, and otherwise tries again."""

    def __init__(self, n_processes: int) -> None:
        self._nap = CROWD_NAP if n_processes > (os.cpu_count() or 1) else 0.0

    def wait(self, timeout_seconds: float) -> None:
        """A short nap, or none."""
        time.sleep(self._nap)


def message(number: int, data: Any) -> Message:
    """In the shape that the receiver expects."""
    return Message({"data": data}, number, number)


def nothing() -> None:
    """Whoever would be checked ends with this process; else `most_seconds` ends what hangs."""


def run_alone(module: str, words: Sequence[str], experiment: Experiment) -> Collected:
    """Runs a peer in a process of its own: what it loads and leaves goes with it."""
    with tempfile.TemporaryDirectory(prefix="tianji-peer-") as folder:
        answer = Path(folder) / "answer.json"
        said = [json.dumps(experiment.to_json()), str(answer), *words]
        ranks.run(command(module, *said), dict(os.environ), ranks.most_seconds(experiment))
        return Collected(**json.loads(answer.read_text()))


def asked() -> tuple[Experiment, Path, list[str]]:
    """What the process that `run_alone` has started is to do, and where its answer goes."""
    said, answer, *words = sys.argv[1:]
    return Experiment.from_json(json.loads(said)), Path(answer), words
