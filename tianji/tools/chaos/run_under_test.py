"""The run under test: a `tianji train` of its own, and what can be seen of it from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tianji.core.child import command_for
from tianji.core.json_file import number, parsed_row, read_json, whole
from tianji.core.signals import ending_with
from tianji.observe.report.run_files import Tail
from tianji.runs.run import SUMMARY
from tianji.tools.chaos import processes
from tianji.tools.chaos.env_orders import FOLDER
from tianji.tools.chaos.processes import Usage

ROWS = "metrics.jsonl"
OUTPUT = "output.txt"  # what `tianji train` said
USAGE_SECONDS = 1.0  # from one look at memory and descriptors to the next


@dataclass(frozen=True)
class Row:
    """What a row of metrics says, and when it was seen."""

    at: float  # on the clock of `time.monotonic`
    env_steps: int
    updates: int
    ratio: float | None  # samples consumed per sample received, beyond the warm-up
    new: float | None  # share of the consumed samples that had never been consumed before
    staleness: float | None  # the largest so far
    checkpoints: int


def row_of(values: Mapping[str, Any], at: float) -> Row | None:
    """A row of metrics; None for a line that is none."""
    steps, updates = whole(values.get("env_steps")), whole(values.get("updates"))
    if steps is None or updates is None:
        return None
    return Row(
        at,
        steps,
        updates,
        number(values.get("balance/ratio")),
        number(values.get("staleness/new")),
        number(values.get("staleness/max")),
        whole(values.get("checkpoint/n")) or 0,
    )


class RunUnderTest:
    """The run under test. `look` sees what is new; nothing here changes anything."""

    def __init__(self, words: Sequence[str], folder: Path, orders: Path) -> None:
        self.run = folder / "run"
        self._output = (folder / OUTPUT).open("wb")
        self._tail = Tail(self.run / ROWS)
        self._usage_due = 0.0
        self.rows: list[Row] = []
        self.usages: list[tuple[float, Usage]] = []
        self.workers: dict[str, int] = {}
        self.ever: dict[int, str] = {}  # every process that was seen, and what it was
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            [*command_for("tianji.cli.chaos"), "train", *words, "--run-dir", str(self.run)],
            env=os.environ | {FOLDER: str(orders)},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            preexec_fn=ending_with(os.getpid(), signal.SIGTERM),
        )

    @property
    def pid(self) -> int:
        """The launcher."""
        return self.process.pid

    def look(self) -> None:
        """Reads the rows that were written since, and who there is."""
        now = time.monotonic()
        self.workers = processes.children_of(self.pid)
        self.ever |= {pid: home for home, pid in self.workers.items()}
        found = (row_of(parsed_row(line), now) for line in self._tail.lines())
        self.rows += [row for row in found if row is not None]
        if now >= self._usage_due and self.rows:
            self._usage_due = now + USAGE_SECONDS
            self.usages.append((now, processes.usage((self.pid, *self.workers.values()))))

    def has_ended(self) -> bool:
        """Whether the launcher has gone."""
        return self.process.poll() is not None

    def summary(self) -> dict[str, Any]:
        """`summary.json`; empty where there is none."""
        return read_json(self.run / SUMMARY)

    def left(self) -> list[str]:
        """The processes of the run that are still there, and what they have started."""
        found = processes.members_of(self.ever)
        return [f"{self.ever[group]} ({pid})" for pid, group in found.items()]

    def segments(self) -> list[str]:
        """The names of shared memory of the run that are still there."""
        names = frozenset[str]().union(*(usage.names for _, usage in self.usages))
        return [name for name in sorted(names) if Path(name).exists()]

    def words(self) -> str:
        """What the command said."""
        return Path(self._output.name).read_text(errors="replace")

    def close(self) -> None:
        """Kills what is left of the run."""
        self.process.kill()
        self.process.wait()
        self._output.close()
