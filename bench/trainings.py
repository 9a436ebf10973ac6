"""Runs of `tianji train` and of peers in processes of their own, and what came of them."""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from options import BENCH, ROOT
from transmission.parts import foreign_load

JOBS = BENCH / "jobs"
START_SECONDS = 90.0  # for a run to begin and to end, besides the seconds that it trains
ENDLESS = ("exp.stop_return=1e9", "exp.train_steps=1_000_000_000", "exp.save_seconds=None")
FAILURES = (subprocess.TimeoutExpired, RuntimeError, OSError, KeyError, ValueError)
"""What a run that did not come to its end raises."""

Row = dict[str, Any]
Summary = dict[str, Any]


def busy_share(seconds: float = 0.5) -> float:
    """Share of all cores that is in use while this process sleeps: others' work."""
    return round(foreign_load(seconds), 3)


def environment(**more: str) -> dict[str, str]:
    """Of a child: it finds this package, and the environments and algorithms in `jobs/`."""
    paths = [str(ROOT), str(JOBS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | more


def execute(words: list[str], timeout: float, **variables: str) -> tuple[str, float]:
    """Runs a command in its own process group; returns its stdout and its wall clock."""
    began = time.perf_counter()
    child = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True, env=environment(**variables),
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


def command(config: Path | str, run_dir: Path, settings: Iterable[str], *more: str) -> list[str]:
    """The words of `tianji train`; a setting is `key=value`."""
    words = [sys.executable, "-m", "tianji", "train", str(config), "--run-dir", str(run_dir)]
    return [*words, *more, *(word for setting in settings for word in ("--set", setting))]


def summary_of(
    config: Path | str, settings: Iterable[str], seconds: float, *more: str, **variables: str
) -> Summary:
    """Trains for so many seconds at most; returns what the run's `summary.json` says."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        settings = [*settings, f"exp.max_seconds={seconds}"]
        words = command(config, run_dir, settings, "--quiet", *more)
        execute(words, seconds + START_SECONDS, **variables)
        return read_summary(run_dir)


def read_summary(run_dir: Path) -> Summary:
    """What a run left behind."""
    found: Summary = json.loads((run_dir / "summary.json").read_text())
    return found


def train(config: Path, settings: Mapping[str, Any], seed: int, seconds: float) -> Row:
    """One run with a split that stays as it is: its summary, in the columns of `measured`."""
    foreign = busy_share()
    said = [f"{key}={value}" for key, value in settings.items()]
    said.append("global_cfg.rebalance=False")  # the split is what is measured
    summary = summary_of(config, said, seconds, "--seed", str(seed))
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


def peer_line(stdout: str) -> dict[str, Any]:
    """The JSON line that a peer ends with; times are infinite where it did not arrive."""
    line: dict[str, Any] = json.loads(stdout.strip().splitlines()[-1])
    if not line["solved"]:
        clocks = ("seconds_from_process_start", "seconds_from_training_start")
        line |= dict.fromkeys(clocks, math.inf)
    return line
