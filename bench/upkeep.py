"""Measures what a run pays for being looked after: metrics and table, checkpoints, evaluation.

Two runs of one job differ more from each other than any of these costs, so each is switched on and
off within one run: windows with it and without it take turns, in the order off-on-on-off, and the
samples learned from in a window are compared with those of its neighbour. The noise of a shared
machine is still of the size of these costs, so in a window that has them they come many times as
often as they would: pictures and rows ten times, a checkpoint (with the samples in it) and ten
games every window instead of once a minute. What that costs, divided by how much too often it came,
is the cost at the usual rate. A second table says what each takes of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from options import CONFIGS, Options, at_least, number_from
from trainings import environment

CONFIG = CONFIGS / "paper_dqn_cartpole.py"
TABLE, CHECKPOINTS, BOTH = "metrics and live table", "checkpoints", "checkpoints, evaluation"
MOST = {TABLE: 0.02, CHECKPOINTS: 0.02, BOTH: 0.03}  # share of consumption, asked
FASTER = 10  # times that pictures and rows come in a window that has them
USUAL_SECONDS = 60.0  # from one checkpoint to the next, and from one evaluation to the next
SETTLING_SECONDS = 3.0  # before the first window
PATTERN = (False, True, True, False)


class Windows:
    """Says what is on at the moment, and keeps the count of samples at every change."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun: float | None = None
        self._index = -1
        self._ordered: set[tuple[str, int]] = set()
        self.marks: list[tuple[float, int]] = []  # clock and samples, where a window begins

    def look(self, progress: Any) -> None:
        """Notes the beginning of a window."""
        now = time.monotonic()
        if progress.started_at is None or now < progress.started_at + SETTLING_SECONDS:
            return
        self._begun = self._begun or now
        if (index := int((now - self._begun) / self._seconds)) > self._index:
            self._index = index
            self.marks.append((now, progress.consumed))

    @property
    def is_on(self) -> bool:
        """Whether this window has what is measured."""
        return self._index >= 0 and PATTERN[self._index % len(PATTERN)]

    def once(self, what: str) -> bool:
        """True once in each window that is on."""
        if not self.is_on or (what, self._index) in self._ordered:
            return False
        self._ordered.add((what, self._index))
        return True

    def pairs(self) -> list[tuple[float, float]]:
        """(with, without) of neighbouring windows, in samples per second."""
        rates = [
            (later[1] - earlier[1]) / (later[0] - earlier[0])
            for earlier, later in zip(self.marks, self.marks[1:], strict=False)
        ]
        found = []
        for i in range(0, len(rates) - 1, 2):
            first_is_on = PATTERN[i % len(PATTERN)]
            found.append((rates[i], rates[i + 1]) if first_is_on else (rates[i + 1], rates[i]))
        return found


def child(what: str, seconds: float, n_windows: int, folder: Path) -> None:
    """Trains once with the switches in place; the launcher is this process."""
    from tianji.config import load
    from tianji.runs import launch
    from tianji.runs import run as shows
    from tianji.runs.checkpoint_schedule import CheckpointSchedule
    from tianji.runs.evaluation_schedule import EvaluationSchedule
    from tianji.runs.run import Run

    windows = Windows(seconds)
    shown, saved, examined = Run.tick, CheckpointSchedule._is_due, EvaluationSchedule.tick

    def run_tick(run: Run, progress: Any) -> None:
        windows.look(progress)
        if what != TABLE or windows.is_on:
            shown(run, progress)

    def is_due(keeper: CheckpointSchedule, progress: Any) -> bool:
        return saved(keeper, progress) and "checkpoints" in what and windows.once("checkpoint")

    def examiner_tick(examiner: EvaluationSchedule, progress: Any) -> None:
        if "evaluation" in what and windows.once("evaluation"):
            examined(examiner, progress)
        else:
            examiner._take_all()

    Run.tick, CheckpointSchedule._is_due, EvaluationSchedule.tick = run_tick, is_due, examiner_tick  # type: ignore
    whole = SETTLING_SECONDS + (n_windows + 0.5) * seconds
    settings = [f"exp.max_seconds={whole}", "exp.stop_return=1e9", "exp.save_freq=1"]
    settings += ["exp.train_steps=1_000_000_000", "exp.save_keep=1000"]
    if "evaluation" in what:
        settings.append("exp.eval_step=1")
    faster = FASTER if what == TABLE else 1
    shows.FRAME_SECONDS /= faster
    asked = launch.TrainRequest("process", folder, row_seconds=1.0 / faster)
    launch.train(load(CONFIG, settings), asked)
    (folder / "pairs.json").write_text(json.dumps(windows.pairs()))


def measure(what: str, seconds: float, n_windows: int, parent: Path) -> str:
    """One run in a process of its own whose output is a terminal; a row of the table."""
    folder = Path(tempfile.mkdtemp(dir=parent)) / "run"
    outer, inner = pty.openpty()
    reader = threading.Thread(target=drained, args=(outer,))
    reader.start()
    sizes = ["--seconds", str(seconds), "--windows", str(n_windows)]
    command = [sys.executable, __file__, "--only", what, "--folder", str(folder), *sizes]
    subprocess.run(command, stdout=inner, env=environment(TERM="xterm-256color"), check=True)
    os.close(inner)
    reader.join()
    os.close(outer)
    return row(what, seconds, folder)


def row(what: str, seconds: float, folder: Path) -> str:
    """What one run showed."""
    ratios = sorted(a / b for a, b in json.loads((folder / "pairs.json").read_text()))
    times = FASTER if what == TABLE else USUAL_SECONDS / seconds
    low, middle, high = interval(ratios)
    usual = [f"{(1 - ratio) / times:.2%}" for ratio in (middle, high, low)]
    saved = len(list((folder / "checkpoints").glob("*-step-*"))) - 1  # without the one at the end
    rows = folder / "evaluations.jsonl"
    played = len(rows.read_text().splitlines()) if rows.exists() else 0
    measured = f"{middle:.3f} ({low:.3f} to {high:.3f})"
    counts = f"{len(ratios)} | {saved} | {played} | {times:g} x | {measured}"
    return f"| {what} | {counts} | {usual[0]} ({usual[1]} to {usual[2]}) | < {MOST[what]:.0%} |"


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """The median, between the ends of its 95 % interval (a bootstrap with a fixed seed)."""
    draw, n = random.Random(0), len(ratios)
    medians = sorted(statistics.median(draw.choices(ratios, k=n)) for _ in range(2_000))
    return medians[50], statistics.median(ratios), medians[-51]


def direct(folder: Path) -> list[str]:
    """CPU time of one checkpoint and of one evaluation of this job, with its store half full."""
    from tianji.config import load
    from tianji.core.state import copied
    from tianji.engines.local import LocalEngine
    from tianji.job.factory import make_games_env
    from tianji.job.preflight import try_out
    from tianji.roles import role_state, saving
    from tianji.roles.evaluation import Games

    engine = LocalEngine(try_out(load(CONFIG, ["exp.train_steps=1_000_000"])), folder)
    for _ in range(20_000):
        engine._round()
    began = time.perf_counter()
    states = {role.name: role_state.state(role) for role in engine._training}
    parts = {n: copied(part) for n, part in saving._parts(states, saving.ANY_SIZE).items()}
    copying, used = time.perf_counter() - began, time.thread_time()
    assert engine._saver is not None
    engine._saver._write_parts(folder / "checkpoints" / "one", parts, lambda: False)
    writing = time.thread_time() - used
    size = sum(path.stat().st_size for path in (folder / "checkpoints" / "one").iterdir())
    actor = engine._training[-1]
    games = Games(make_games_env(engine._config, 10), actor.policy, 10)  # type: ignore[attr-defined]
    games.reset(0)
    used = time.thread_time()
    while not games.step():
        pass
    playing = time.thread_time() - used
    steps = int(games.lengths.sum())
    costs = {
        f"a checkpoint ({size / 1e6:.1f} MB): copying, which training waits for": copying,
        "a checkpoint: writing, in a thread beside training": writing,
        f"an evaluation (10 episodes, {steps:,} steps), at the lowest priority": playing,
    }
    return [f"| {what} | {seconds * 1e3:.1f} ms |" for what, seconds in costs.items()]


def drained(descriptor: int) -> None:
    """Reads a terminal until nobody writes to it any more."""
    try:
        while os.read(descriptor, 65536):
            pass
    except OSError:
        pass


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--seconds", type=number_from(1), default=4.0, help="of a window")
    parser.add_argument("--windows", type=at_least(2), default=24)
    parser.add_argument("--only", choices=list(MOST), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        child(options.only, options.seconds, options.windows, options.folder)
        return
    print(f"DQN of Table 2, windows of {options.seconds:g} s with and without, in one run each\n")
    print(
        "| what | pairs | checkpoints | evaluations | how often | consumption with / without, "
        "median (95 %) | cost at the usual rate | asked |\n|---|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as parent:
        for what in MOST:
            print(measure(what, options.seconds, options.windows, Path(parent)), flush=True)
        print("\n| CPU time | |\n|---|---|")
        print("\n".join(direct(Path(parent))))


if __name__ == "__main__":
    main()
