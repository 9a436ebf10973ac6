"""Runs of `tianji train` whose metrics are looked at over time: summary, rows, and what follows."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from trainings import START_SECONDS, command, execute, read_summary

SECONDS, STEPS = "time/time_elapsed", "env_steps"
TARGET = "rollout/ep_rew_mean"  # the true points of whole games


class Training(NamedTuple):
    """What a run left behind."""

    summary: dict[str, Any]
    metrics: list[dict[str, Any]]  # rows of metrics.jsonl

    def curve(self, name: str = TARGET, over: str = SECONDS) -> list[tuple[float, float]]:
        """(seconds of training, value) wherever the metric has one; or over another column."""
        found = ((row[over], row.get(name)) for row in self.metrics)
        return [(at, value) for at, value in found if value is not None]

    def best(self) -> float:
        """The highest mean return of the last 100 games; NaN if none was finished."""
        last = self.summary["mean_return_100"]
        means = [value for _, value in self.curve()] + ([] if last is None else [last])
        return max(means, default=math.nan)

    @property
    def final_seconds(self) -> float:
        """From all roles ready to the target; infinite if it was not reached."""
        seconds = self.summary["final_time_seconds"]
        return math.inf if seconds is None else float(seconds)

    @property
    def process_seconds(self) -> float:
        """The same from the start of the process."""
        return float(self.summary["startup_seconds"]) + self.final_seconds


def training_of(
    config: Path, settings: Iterable[str], seconds: float, seed: int, start: float = START_SECONDS
) -> Training:
    """Trains for so many seconds at most; it is killed `start` seconds after that."""
    said = [*settings, f"exp.max_seconds={seconds}", "exp.save_seconds=None"]
    said += ["exp.save_replay='never'"]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        words = command(config, run_dir, said, "--quiet", "--seed", str(seed))
        execute(words, seconds + start)
        return read_training(run_dir)


def read_training(run_dir: Path) -> Training:
    """Out of a run's folder."""
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return Training(read_summary(run_dir), [json.loads(line) for line in lines if line])


def has_atari() -> bool:
    """Whether ale-py is there; a line says so if not."""
    try:
        import ale_py  # noqa: F401  # GPL: an extra that not everybody has
    except ImportError:
        print("ale-py is not installed: pip install 'tianji[atari]'", file=sys.stderr)
        return False
    return True
