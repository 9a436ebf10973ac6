"""The runs that are compared, one after the other, each in a folder of its own."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tianji.core import atomic_file
from tianji.core.counts import Count, Histogram
from tianji.core.errors import TianJiError
from tianji.core.json_file import read_json
from tianji.core.wording import number
from tianji.job import serial
from tianji.job.job import Job
from tianji.observe import episode_file
from tianji.observe.panel import span
from tianji.runs.run import SUMMARY
from tianji.tools import child_run
from tianji.tools.verify.compare import Pair
from tianji.tools.verify.run_figures import Training, return_after
from tianji.tools.verify.settings import Settings

SERIAL = "serial"


def train_all(
    settings: Settings,
    folder: Path,
    environment: Mapping[str, str],
    tell: Callable[[str], None],
    done: Callable[[list[Pair]], None],
) -> list[Pair]:
    """Trains with every seed, serially and distributed; goes on where it was interrupted.

    `tell` gets a line for each run, `done` all pairs so far whenever another is complete.
    """
    engines, pairs = (SERIAL, settings.engine), list[Pair]()
    estimate = Estimate(dict.fromkeys(engines, len(settings.seeds)))
    for seed in settings.seeds:
        both = []
        for engine in engines:
            place = folder / f"{engine}-seed-{seed}"
            began, known = time.monotonic(), child_run.is_done(place)
            if not known:
                _train(settings, engine, seed, place, environment)
            training = read(place, engine, seed)
            if not pairs and not training.episodes.steps.size:
                raise TianJiError(
                    f"no episode ended within {settings.steps:,} steps (seed {seed}, {engine}): "
                    "there is nothing to compare; give more with --steps"
                )
            both.append(training)
            estimate.add(engine, None if known else time.monotonic() - began)
            tell(f"{_line(training, settings)}; {estimate.left()}")
        pairs.append((both[0], both[1]))
        done(pairs)
    return pairs


class Estimate:
    """How long the rest will take: each kind of run as long as it took on average."""

    def __init__(self, n_left: dict[str, int]) -> None:
        self._n_left = n_left  # runs of each engine
        self._took: dict[str, list[float]] = {engine: [] for engine in n_left}

    def add(self, engine: str, seconds: float | None) -> None:
        """Another run is there; None: it was there before."""
        self._n_left[engine] -= 1
        if seconds is not None:
            self._took[engine].append(seconds)

    def left(self) -> str:
        """In words."""
        n = sum(self._n_left.values())
        known = [seconds for took in self._took.values() for seconds in took]
        if not n:
            return "that was the last"
        if not known:
            return f"{n} left"
        seconds = 0.0
        for engine, took in self._took.items():
            alike = took or known
            seconds += self._n_left[engine] * sum(alike) / len(alike)
        return f"{n} left, about {span(seconds)}"


def _line(training: Training, settings: Settings) -> str:
    mean = return_after(training.episodes, settings.steps)
    said = "no episode" if mean is None else f"return {number(mean)}"
    return (
        f"seed {training.seed}, {training.engine}: {training.received:,} steps and "
        f"{training.updates:,} updates in {span(training.seconds)}, {said}"
    )


def _train(
    settings: Settings, engine: str, seed: int, place: Path, environment: Mapping[str, str]
) -> None:
    shutil.rmtree(place, ignore_errors=True)  # what an interrupted comparison left of this run
    if engine == SERIAL:
        place.mkdir()
        _train_serially(settings.job(seed), place)
    else:
        overrides = settings.overrides_of(seed)
        child_run.train(settings.config, overrides, engine, place, environment)


def _train_serially(job: Job, place: Path) -> None:
    began = time.monotonic()
    outcome = serial.train(job, n_actors=1)
    seconds = time.monotonic() - began
    lines = [
        episode_file.Line(
            each.ended_at - began, 0, each.steps, each.version, *each[:2], each.learned
        )
        for each in outcome.episodes
    ]
    episode_file.write(place, lines)
    said = outcome.consumption.report()
    balance, consumed = outcome.balance, outcome.counts[Count.CONSUMED]
    beyond = balance.received - balance.warmup
    summary = {  # in the words of a run's summary
        "status": "finished",
        "engine": SERIAL,
        "seed": job.config.exp.seed,
        "received": outcome.received,
        "updates": outcome.version,
        "production_per_second": outcome.received / seconds,
        "replay_ratio": {
            "target": job.ratio,
            "measured": balance.consumed / beyond if beyond > 0 else None,
        },
        "freshness": {"target": job.sampling.freshness, "measured": outcome.freshness},
        "new": outcome.counts[Count.NEW] / consumed if consumed else None,
        "histograms": {
            "staleness_updates": Histogram(said["staleness"]).rows(),
            "age_steps": Histogram(said["age"]).rows(),
        },
    }
    atomic_file.write(place / SUMMARY, json.dumps(summary, indent=2) + "\n")  # last: now it is done


def _episodes(place: Path) -> episode_file.History:
    """Those of a finished run, which has no file where none ended."""
    if (place / episode_file.FILE).exists():
        return episode_file.read(place)
    return episode_file.History(*np.zeros((4, 0)))


def read(place: Path, engine: str, seed: int) -> Training:
    """A finished run."""
    summary = read_json(place / SUMMARY)
    histograms, made = summary["histograms"], summary["received"]
    rate = summary.get("production_per_second") or 0.0
    return Training(
        engine=engine,
        seed=seed,
        received=made,
        updates=summary["updates"],
        seconds=made / rate if rate else 0.0,
        ratio=summary["replay_ratio"]["measured"],
        freshness=summary["freshness"]["measured"],
        new=summary["new"],
        staleness=[(edge, count) for edge, count in histograms["staleness_updates"]],
        age=[(edge, count) for edge, count in histograms["age_steps"]],
        episodes=_episodes(place),
    )
