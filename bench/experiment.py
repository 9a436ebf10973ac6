"""What the experiments share: options, runs in processes of their own, rows, tables and files."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from figures import Panel, draw
from measures import Spread

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
JOBS = BENCH / "jobs"
SIMULATED, REAL = "simulated", "real"
START_SECONDS = 90.0  # for a run to begin and to end, besides the seconds that it trains

Row = dict[str, Any]
Settings = Mapping[str, Any]


def parser(name: str, description: str | None, seconds: float) -> argparse.ArgumentParser:
    """The options that every experiment has; `seconds` is the default bound of one run."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--quick", action="store_true", help="a small part of it, with one seed")
    options.add_argument("--seeds", type=int, nargs="+", default=None, help="default: 1 2 3")
    options.add_argument("--repeats", type=int, help="the same as --seeds 1 .. N")
    options.add_argument(
        "--seconds", type=float, default=seconds, help=f"most that one run trains ({seconds:g})"
    )
    options.add_argument(
        "--total", type=float, default=math.inf, help="seconds after which no run is begun any more"
    )
    options.add_argument(
        "--out", type=Path, default=BENCH / "out" / name, help="folder of table, CSV and plot"
    )
    return options


def seeds_of(options: argparse.Namespace) -> list[int]:
    """Those given, `--repeats` of them, or three; one with `--quick`."""
    if options.seeds:
        return list(options.seeds)
    return list(range(1, 1 + (options.repeats or (1 if options.quick else 3))))


# --------------------------------------------------------------------------------------------- runs


def busy_share(seconds: float = 0.5) -> float:
    """Share of all cores that is in use while this process sleeps: others' work."""

    def ticks() -> tuple[int, int]:
        values = [int(v) for v in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(values), values[3] + values[4]

    total, idle = ticks()
    time.sleep(seconds)
    total_after, idle_after = ticks()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def execute(words: list[str], timeout: float) -> tuple[str, float]:
    """Runs a command in its own process group; returns its stdout and its wall clock."""
    paths = [str(ROOT), str(JOBS), *filter(None, [os.environ.get("PYTHONPATH")])]
    began = time.perf_counter()
    child = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    try:
        stdout, stderr = child.communicate(timeout=timeout)
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        raise
    seconds = time.perf_counter() - began
    if child.returncode:
        raise RuntimeError(f"exit status {child.returncode}: {stderr.strip()[-600:]}")
    return stdout, seconds


def train(config: Path, settings: Settings, seed: int, seconds: float) -> Row:
    """One run of `tianji train`: what its summary says, in the columns of `measured`."""
    foreign = round(busy_share(), 3)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        words = [sys.executable, "-m", "tianji.cli", "train", str(config), "--seed", str(seed)]
        words += ["--run-dir", str(run_dir), "--set", f"exp.max_seconds={seconds}"]
        words += ["--set", "global_cfg.rebalance=False"]  # the split is what is measured
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        execute(words, seconds + START_SECONDS)
        summary = json.loads((run_dir / "summary.json").read_text())
    return measured(summary) | {"foreign_load": foreign}


def measured(summary: Mapping[str, Any]) -> Row:
    """What experiments need of a `summary.json`; a target that was not reached took for ever."""
    final, roles = summary["final_time_seconds"], summary["roles"]
    learners = [role for name, role in roles.items() if name.startswith("learner")]
    return {
        "final_seconds": math.inf if final is None else final,
        "env_steps": summary["env_steps"],
        "updates": summary["updates"],
        "production": summary["production_per_second"],
        "offered": offered(summary),
        "receiving": summary["receiving_per_second"],
        "consumption": summary["consumption_per_second"],
        "dropped": summary["dropped"],
        "learner_idle": statistics.fmean(role["idle"] for role in learners),
        "staleness_mean": summary["staleness"]["mean"],
        "staleness_p95": summary["staleness"]["p95"],
        "freshness": summary["freshness"]["measured"],
        "startup_seconds": summary["startup_seconds"],
        "histograms": summary["histograms"],
    }


def offered(summary: Mapping[str, Any]) -> float:
    """Steps per second that the actors would make if none was ever paced.

    What they made, over the share of their time in which they were at it.
    """
    actors = [role for name, role in summary["roles"].items() if name.startswith("actor")]
    produced = sum(role["produced"] for role in actors)
    if not produced:
        return 0.0
    per_second = summary["production_per_second"] / produced
    return sum(per_second * role["produced"] / max(role["busy"], 1e-3) for role in actors)


# ----------------------------------------------------------------------------------- rows and files


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
        print("  " + "  ".join(f"{k}={_brief(row.get(k))}" for k in self._columns), flush=True)

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
        self, table: Callable[[list[Row]], str], panels: Callable[[list[Row]], Sequence[Panel]]
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
        loud = sum(row.get("foreign_load", 0.0) > 0.1 for row in self.rows)
        if not loud:
            return ""
        return (
            f"\n{loud} of {len(self.rows)} runs began while others used over 10 % of the machine."
        )


def _plain(value: Any) -> Any:
    return "never" if value == math.inf else value


def _brief(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as Markdown reads it."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join([f"| {' | '.join(header)} |", "|---" * len(header) + "|", *lines])


def spread(rows: Iterable[Row], column: str) -> Spread:
    """Median and range of a column."""
    return Spread.of(row[column] for row in rows)


def cells(rows: Sequence[Row], columns: Mapping[str, int]) -> list[str]:
    """One cell for each column, shown with so many digits."""
    return [spread(rows, column).text(digits) for column, digits in columns.items()]


def where(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def attempt(sheet: Sheet, row: Row, run: Callable[..., Row], *arguments: Any) -> Row | None:
    """Adds what `run` measures to the sheet; a failure is said, and is no row."""
    if time.monotonic() > sheet.ends_at:
        raise OutOfTime
    try:
        found = row | run(*arguments)
    except (subprocess.TimeoutExpired, RuntimeError, OSError, KeyError, ValueError) as problem:
        print(f"  {row} did not finish: {problem}", flush=True)
        return None
    sheet.add(found)
    return found


def kind_of(is_real: bool) -> str:
    """The label of every table, file and plot."""
    return REAL if is_real else SIMULATED


def machine(kind: str) -> str:
    """What stands over a table."""
    cores = len(os.sched_getaffinity(0))
    how = "costs are slept" if kind == SIMULATED else "real costs"
    return f"{kind} ({how}), {cores} cores"
