"""Where the rows of a run go: a file of JSON and TensorBoard always, trackers where asked for."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from tianji.config import Config
from tianji.core import atomic_file, terminal
from tianji.core.append_log import AppendLog, open_lines
from tianji.core.child import command_for
from tianji.core.errors import TianJiError
from tianji.core.json_file import number, parsed_row, read_end, read_json, read_lines, text
from tianji.core.status import Status
from tianji.observe.tensorboard_events import Events

Values = Mapping[str, float | int | None]

MOST_BEHIND = 16_000_000  # bytes that a tracker may have left unread
PATIENCE_SECONDS = 30.0  # for a tracker to send the rest, when a run has ended
HURRY_SECONDS = 4.0  # the same, when a run was interrupted
LAST_WORDS_SECONDS = 1.0  # for a tracker that has closed its input to end


class SinkFailed(Exception):
    """A sink is of no more use; the text says why."""


class Sink(Protocol):
    """Somewhere to write rows.

    An OSError means that it may work again later, `SinkFailed` that it will not.
    """

    name: str

    def add(self, values: Values, step: int) -> None:
        """Writes one row, `step` environment steps into the run; returns at once."""

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Writes what is left, and how the run ended where the sink has a place for that."""


class Jsonl:
    """`metrics.jsonl`: a line of JSON for every row, there when `add` returns."""

    def __init__(self, folder: Path) -> None:
        self.name = "metrics.jsonl"
        self._file = AppendLog(lambda: open_lines(folder / "metrics.jsonl"))

    def add(self, values: Values, step: int) -> None:
        """Adds a line."""
        self._file.add(json.dumps(values, allow_nan=False).encode() + b"\n")

    def close(self, summary: Mapping[str, Any] | None = None) -> None:
        """Closes the file."""
        self._file.close()


def read_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run as they led to where it is.

    A run that was resumed from a checkpoint has rows about what it did after that checkpoint and
    then forgot; those are left out, and so is half a line at the end.
    """
    rows: list[tuple[float, dict[str, Any]]] = []
    try:
        for line in read_lines(folder / "metrics.jsonl"):
            row = parsed_row(line) if line.endswith(b"\n") else {}
            if (steps := number(row.get("env_steps"))) is not None:
                while rows and rows[-1][0] > steps:
                    rows.pop()
                rows.append((steps, row))
    except FileNotFoundError:
        return []
    return [row for _, row in rows]


class Tracking:
    """A tracker in a process of its own, which starts with the first row."""

    def __init__(self, library: str, folder: Path, config: Config) -> None:
        self.name = library
        self._folder = folder
        self._config = config
        self._log = folder / "logs" / f"{library}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._unsent = bytearray()

    def add(self, values: Values, step: int) -> None:
        """Hands the tracker a row as soon as it reads."""
        if self._process is None:
            self._process = self._start()
            about = {"id": identity(self._folder), "name": self._folder.resolve().name}
            self._send({**about, "folder": str(self._folder), "config": self._config.to_json()})
        there = {name: value for name, value in values.items() if value is not None}
        self._send({"values": there, "step": step})

    def _start(self) -> subprocess.Popen[bytes]:
        self._log.parent.mkdir(exist_ok=True)
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*command_for("tianji.observe.tracker"), self.name],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the run: this ends when its input does
            )
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def _send(self, message: dict[str, Any]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        if len(self._unsent) > MOST_BEHIND:
            raise self._given_up("it does not read what it is sent")
        self._drain()

    def _drain(self) -> None:
        """Writes what the pipe takes."""
        assert self._process is not None and self._process.stdin is not None
        try:
            while self._unsent:
                del self._unsent[: os.write(self._process.stdin.fileno(), self._unsent[:65536])]
        except BlockingIOError:
            pass  # it is busy; the rest goes with the next row
        except BrokenPipeError:
            with suppress(subprocess.TimeoutExpired):  # its last words may be on their way
                self._process.wait(LAST_WORDS_SECONDS)
            raise self._given_up(self._last_words()) from None

    def _given_up(self, why: str) -> SinkFailed:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        return SinkFailed(why)

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Waits for the tracker to send everything, but not for ever."""
        if self._process is None or self._process.stdin is None:
            return
        hurry = summary is None or summary["status"] == Status.INTERRUPTED
        patience = HURRY_SECONDS if hurry else PATIENCE_SECONDS
        deadline = time.monotonic() + patience
        try:
            self._send({"summary": summary})
            while self._unsent and (left := deadline - time.monotonic()) > 0:
                select.select([], [self._process.stdin], [], left)
                self._drain()
        finally:
            self._process.stdin.close()
        try:
            status = self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            said = f"it has more to send after {patience:g} s"
            raise SinkFailed(f"{said}, and goes on as process {self._process.pid}") from None
        if status:
            raise SinkFailed(self._last_words())

    def _last_words(self) -> str:
        """The last line of its log, which is what a Python program says of its end."""
        lines = read_end(self._log).strip().splitlines()
        return f"{lines[-1] if lines else 'it left no word'} (all of it in {self._log})"


def identity(folder: Path) -> str:
    """The name by which trackers know a run: made once, the same whenever it is resumed."""
    path = folder / "tracking.json"
    if (known := text(read_json(path).get("id"))) is not None:
        return known
    word = re.sub(r"[^A-Za-z0-9_-]+", "-", folder.resolve().name).strip("-")[:64] or "run"
    unique = hashlib.blake2b(f"{folder.resolve()} {time.time_ns()}".encode(), digest_size=4)
    made = f"{word}-{unique.hexdigest()}"
    atomic_file.write(path, json.dumps({"id": made}) + "\n")
    return made


def refuse_missing(libraries: Sequence[str]) -> None:
    """Raises if a tracker was asked for that is not installed; loads none."""
    for library in libraries:
        spec = importlib.util.find_spec(library)
        if spec is None or spec.origin is None:  # such as the folder that wandb leaves behind
            raise TianJiError(
                f"--track {library} needs the package {library}: pip install 'tianji[{library}]'"
            )


class Sinks:
    """All sinks of a run: what fails in one neither ends the run nor touches the others."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        self._failing: set[str] = set()

    @classmethod
    def of(cls, folder: Path, config: Config, resumed_at: int | None = None) -> Sinks:
        """The sinks that a configuration asks for; `resumed_at` is the step a run goes on from."""
        tracked = [Tracking(library, folder, config) for library in config.exp.track]
        return cls([Jsonl(folder), Events(folder, resumed_at), *tracked])

    def add(self, values: Values, step: int) -> None:
        """Writes a row to every sink."""
        for sink in tuple(self._sinks):
            try:
                sink.add(values, step)
            except OSError as error:
                self._say_once(sink, error)
            except SinkFailed as failure:
                self._sinks.remove(sink)
                warn(f"{sink.name} failed, and training goes on without it: {failure}")
            else:
                if sink.name in self._failing:
                    self._failing.remove(sink.name)
                    warn(f"{sink.name} is written again")

    def _say_once(self, sink: Sink, error: OSError) -> None:
        if sink.name not in self._failing:
            self._failing.add(sink.name)
            what = error.strerror or error
            warn(f"{sink.name} cannot be written ({what}); training goes on, and rows wait")

    def close(self, summary: Mapping[str, Any] | None) -> None:
        """Closes every sink."""
        for sink in self._sinks:
            try:
                sink.close(summary)
            except OSError as error:
                warn(f"{sink.name}: its last rows are lost: {error.strerror or error}")
            except SinkFailed as failure:
                warn(f"{sink.name}: {failure}")


def warn(text: str) -> None:
    """Says on standard error what a user should know, if there is anybody to hear it."""
    note(f"warning: {text}")


def note(text: str) -> None:
    """Says on standard error what a user may like to know, if there is anybody to hear it."""
    with suppress(OSError, ValueError, AttributeError):
        terminal.say("tianji", text)
