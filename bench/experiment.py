"""What the experiments share: options, the loop over seeds, rows, tables and files."""

from __future__ import annotations

import argparse
import csv
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from figures import Course, Panel, draw
from options import OUT, SEEDS, Options, count, positive
from tables import warning
from trainings import FAILURES, Row

SIMULATED, REAL = "simulated", "real"
PACED, UNPACED = "paced", "unpaced"  # actors wait for their learner, or run ahead of it


def parser(name: str, description: str | None, seconds: float) -> Options:
    """The options that every experiment has; `seconds` is the default bound of one run."""
    options = Options(description)
    options.add_argument("--quick", action="store_true", help="a small part of it, with one seed")
    options.add_seeds(default=None)
    options.add_argument("--repeats", type=count, help="the same as --seeds 1 .. N")
    options.add_argument(
        "--seconds", type=positive, default=seconds, help=f"most that one run trains ({seconds:g})"
    )
    options.add_argument(
        "--total",
        type=positive,
        default=math.inf,
        help="seconds after which no run is begun any more",
    )
    options.add_out(OUT / name, "folder of table, CSV and plot")
    return options


def seeds_of(given: argparse.Namespace) -> list[int]:
    """Those given, `--repeats` of them, or three; one with `--quick`."""
    if given.seeds:
        return list(given.seeds)
    return list(range(1, 1 + (given.repeats or (1 if given.quick else len(SEEDS)))))


Panels = Callable[[list[Row]], Sequence[Panel | Course]]
"""What makes drawings of rows."""

Trial = tuple[Row, Callable[..., Row], tuple[Any, ...]]
"""What is known of a run before it begins, what measures the rest, and its arguments."""


def conduct(
    name: str,
    columns: Sequence[str],
    given: argparse.Namespace,
    trials: Callable[[int], Iterator[Trial]],
    table: Callable[[list[Row]], str],
    panels: Panels,
) -> int:
    """Runs all trials of one seed after the other; writes rows, table and plot.

    Seeds are the outer loop, so that a noisy minute hits every setting. Returns an exit status.
    """
    sheet = Sheet(given.out, name, columns, given.total)
    with sheet:
        for each in seeds_of(given):
            for row, run, arguments in trials(each):
                attempt(sheet, row | {"seed": each}, run, *arguments)
    return sheet.finish(table, panels)


class OutOfTime(Exception):
    """`--total` seconds are over."""


class Sheet:
    """The rows of an experiment: printed and written to its CSV file as they come.

        with sheet:
            ... attempt(sheet, row, run, ...)
        return sheet.finish(table, panels)

    What runs within ends early after `total` seconds, and by Ctrl-C or SIGTERM; the table is
    then made of what there is.
    """

    def __init__(
        self, folder: Path, name: str, columns: Sequence[str], total: float = math.inf
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rows: list[Row] = []
        self.ends_at = time.monotonic() + total
        self._handlers: dict[signal.Signals, Any] = {}
        self._folder, self._name, self._columns = folder, name, columns
        self._file = (folder / f"{name}.csv").open("w", newline="")
        self._writer = csv.DictWriter(self._file, columns, extrasaction="ignore", restval="")
        self._writer.writeheader()
        self._file.flush()

    def add(self, row: Row) -> None:
        """One run."""
        self.rows.append(row)
        self._writer.writerow({k: _plain(row.get(k)) for k in self._columns})
        self._file.flush()
        there = [k for k in self._columns if k in row]
        print("  " + "  ".join(f"{k}={_brief(row[k])}" for k in there), flush=True)

    def __enter__(self) -> Sheet:
        """Runs may begin."""
        stops = (signal.SIGINT, signal.SIGTERM)  # the first is ignored in a shell's background
        self._handlers = {s: signal.signal(s, signal.default_int_handler) for s in stops}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        """Goes on with the table after a signal, and where the time was over."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._file.close()
        stopped = kind is not None and issubclass(kind, KeyboardInterrupt | OutOfTime)
        if stopped:
            print("  stopped: the table is of what there is", flush=True)
        return stopped

    def finish(
        self,
        table: Callable[[list[Row]], str],
        panels: Panels,
    ) -> int:
        """Prints the table, writes it and the plot beside the CSV file; returns an exit status."""
        self._file.close()
        if not self.rows:
            print("nothing was measured")
            return 1
        text = f"{table(self.rows)}\n{self._warning()}".rstrip()
        (self._folder / f"{self._name}.md").write_text(text + "\n")
        (self._folder / f"{self._name}.svg").write_text(draw(panels(self.rows)))
        print(f"\n{text}\n\nwritten to {self._folder}", flush=True)
        return 0

    def _warning(self) -> str:
        said = warning(row.get("foreign_load", 0.0) for row in self.rows)
        return said and f"\n{said}"


def _plain(value: Any) -> Any:
    return "never" if value == math.inf else value


def _brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def attempt(sheet: Sheet, row: Row, run: Callable[..., Row], *arguments: Any) -> Row | None:
    """Adds what `run` measures to the sheet; a failure is said, and is no row."""
    refuse_late(sheet.ends_at)
    return keep(sheet, row, run, *arguments)


def refuse_late(ends_at: float) -> None:
    """Raises where no run is to be begun any more."""
    if time.monotonic() > ends_at:
        raise OutOfTime


def keep(sheet: Sheet, row: Row, run: Callable[..., Row], *arguments: Any) -> Row | None:
    """The same as `attempt`, however late it is."""
    try:
        found = row | run(*arguments)
    except FAILURES as problem:
        print(f"  {row} did not finish: {problem}", flush=True)
        return None
    sheet.add(found)
    return found


def fits(what: object, n_cores: int, is_real: bool) -> bool:
    """Whether a run has the cores it wants; what has not is named. Slept costs want none."""
    there = len(os.sched_getaffinity(0))
    if is_real and n_cores > there:
        print(f"{what} is left out: it wants {n_cores} cores, {there} are there", flush=True)
        return False
    return True


def kind_of(is_real: bool) -> str:
    """The label of every table, file and plot."""
    return REAL if is_real else SIMULATED


def machine(kind: str) -> str:
    """What stands over a table."""
    cores = len(os.sched_getaffinity(0))
    how = "costs are slept" if kind == SIMULATED else "real costs"
    return f"{kind} ({how}), {cores} cores"
