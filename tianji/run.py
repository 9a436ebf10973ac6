"""What is shown and written while a run goes on, and the summary of how it ended."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any, TextIO

from tianji import metrics, resources
from tianji.counts import Count
from tianji.folder import versions
from tianji.roster import Kind, roles_of
from tianji.topology import Job
from tianji.view import Scene, View, span, view_for
from tianji.watch import Progress

FRAME_SECONDS = 0.25  # from one picture of the run to the next
ROW_SECONDS = 1.0  # from one row of metrics to the next
RATE_FRAMES = 8  # pictures that a shown rate is taken over
LONGEST_HISTORY = 400  # mean returns kept for the picture; beyond it every second one goes

COUNTS_OF_KIND = {
    "actor": {"produced": Count.PRODUCED, "weights_taken": Count.WEIGHTS_TAKEN},
    "buffer": {"received": Count.RECEIVED, "dropped": Count.DROPPED},
    "learner": {"consumed": Count.CONSUMED},
}
COUNTS_OF_ALL = {"version": Count.VERSION, "pushed": Count.PUSHED, "refused": Count.REFUSED}


class Run:
    """Shows a run and writes it down; an engine calls `tick` as often as it likes."""

    def __init__(
        self,
        job: Job,
        engine: str,
        folder: Path,
        quiet: bool = False,
        started_at: float = 0.0,
    ) -> None:
        self.job = job
        self.engine = engine
        self.folder = folder
        self._began = started_at
        self._cores = _cores(job, engine)
        self._view: View | None = None if quiet else view_for()
        self._ticked_at: float | None = None  # when training was last seen going on
        self._frame_due = math.inf if quiet else -math.inf
        self._frame_meter = metrics.Meter(metrics.homes_in(job, engine), RATE_FRAMES)
        self._shown_rates = metrics.Rates()
        self._history: list[float] = []
        self._row_due = -math.inf
        self._row_meter = metrics.Meter(metrics.homes_in(job, engine), 1, ROW_SECONDS / 2)
        self._rows: TextIO | None = None
        self._events: metrics.Events | None = None

    def tick(self, progress: Progress) -> None:
        """Shows and writes what is due, which is nearly always nothing."""
        now = self._ticked_at = time.monotonic()
        if now >= self._frame_due:
            self._frame_due = now + FRAME_SECONDS
            self._show(progress, now)
        if now >= self._row_due and progress.updates:
            self._row_due = now + ROW_SECONDS
            self._write(progress, now)

    def finish(self, status: str, progress: Progress, error: str | None = None) -> dict[str, Any]:
        """Writes the last row and `summary.json`; returns what that holds.

        Training ended with the last tick: what came after it was stopping.
        """
        now = time.monotonic() if self._ticked_at is None else self._ticked_at
        if progress.started_at is not None:
            self._write(progress, now)
        if self._rows is not None:
            self._rows.close()
        if self._events is not None:
            self._events.close()
        self._show(progress, now, status)
        summary = self._summary(status, progress, error, now)
        _replace(self.folder / "summary.json", json.dumps(summary, indent=2) + "\n")
        return summary

    def _show(self, progress: Progress, now: float, status: str | None = None) -> None:
        if self._view is None:
            return
        if progress.mean_return is not None and math.isfinite(progress.mean_return):
            self._history.append(progress.mean_return)
            if len(self._history) > LONGEST_HISTORY:
                del self._history[1::2]
        if status is None:  # the last picture keeps its rates: by then the roles have stopped
            self._shown_rates = self._frame_meter.read(progress, now)
        rates, elapsed = self._shown_rates, _elapsed(progress, now)
        scene = Scene(self.job, self.engine, progress, rates, elapsed, self._history, status)
        try:
            if status is None:
                self._view.show(scene)
            else:
                self._view.close(scene)
        except OSError:
            self._view = None  # whoever looked on has gone; that is no reason to stop

    def _write(self, progress: Progress, now: float) -> None:
        if self._rows is None or self._events is None:
            self._rows = (self.folder / "metrics.jsonl").open("a", encoding="utf-8")
            self._events = metrics.Events(self.folder)
        rates = self._row_meter.read(progress, now)
        values = metrics.row(progress, self.job, rates, now - self._began, _elapsed(progress, now))
        self._rows.write(json.dumps(values, allow_nan=False) + "\n")
        self._rows.flush()
        scalars = {name: value for name, value in values.items() if "/" in name}
        self._events.add(scalars, progress.produced)

    def _summary(
        self, status: str, progress: Progress, error: str | None, now: float
    ) -> dict[str, Any]:
        job, started, solved = self.job, progress.started_at, progress.solved_at
        seconds = _elapsed(progress, now)
        first = float(progress.total(Count.FIRST_CONSUMED_AT, Kind.LEARNER))
        summary = {
            "status": status,
            "error": error,
            "config": job.config.name,
            "engine": self.engine,
            "seed": job.config.exp.seed,
            "startup_seconds": _between(self._began, started),
            "first_consumed_seconds": _between(self._began, first or None),
            "final_time_seconds": None if started is None else _between(started, solved),
            "wall_seconds": _between(self._began, time.monotonic()),
            "env_steps": progress.produced,
            "episodes": progress.n_episodes,
            "updates": progress.updates,
            "mean_return_100": progress.mean_return,
            "stop_return": job.stop_return,
            "produced": progress.produced,
            "received": progress.received,
            "consumed": progress.consumed,
            "dropped": progress.dropped,
            "restarts": 0,  # a role that ends early ends the run
            "production_per_second": _per_second(progress.produced, seconds),
            "receiving_per_second": _per_second(progress.received, seconds),
            "consumption_per_second": _per_second(progress.consumed, seconds),
            "replay_ratio": {"target": job.ratio, "measured": metrics.ratio_of(progress, job)},
            "staleness": progress.staleness.summary(),
            "age": progress.age.summary(),
            "freshness": {
                "target": job.sampling.freshness,
                "measured": progress.freshness if progress.consumed else None,
            },
            "new": progress.new if progress.consumed else None,
            "bottleneck": metrics.bottleneck(progress, job, self.engine),
            "roles": self._roles(progress),
            "memory_bytes": job.n_bytes,
            "histograms": {  # rows of [lower edge, count]
                "staleness_updates": progress.staleness.rows(),
                "age_steps": progress.age.rows(),
                "new_percent_of_batch": progress.new_percent.rows(),
            },
            "versions": versions(),
        }
        clean: dict[str, Any] = _finite(summary)
        return clean

    def _roles(self, progress: Progress) -> dict[str, dict[str, Any]]:
        spent = metrics.shares(
            metrics.at_start(progress), progress.counts, metrics.homes_in(self.job, self.engine)
        )
        roles: dict[str, dict[str, Any]] = {}
        for name, counts in progress.counts.items():
            said = COUNTS_OF_KIND[metrics.kind_of(name)] | COUNTS_OF_ALL
            counted = {key: int(counts[place]) for key, place in said.items()}
            roles[name] = spent[name]._asdict() | {"cores": self._cores[name]} | counted
        return roles


def _elapsed(progress: Progress, now: float) -> float:
    """Seconds of training: from the moment all roles were ready to the target, or until now."""
    if progress.started_at is None:
        return 0.0
    end = now if progress.solved_at is None else progress.solved_at
    return max(0.0, end - progress.started_at)


def _between(began: float, ended: float | None) -> float | None:
    return None if ended is None else round(ended - began, 3)


def _per_second(count: int, seconds: float) -> float:
    return round(count / seconds, 1) if seconds > 0 else 0.0


def _cores(job: Job, engine: str) -> dict[str, tuple[int, ...]]:
    """The cores of each role; in the local engine they share what there is."""
    cores, roles = resources.available_cores(), roles_of(job.config)
    if engine == "local":
        return {role.name: cores for role in roles}
    given = resources.assign(
        job.config, cores, job.algorithm.alternates(job.task.hyp, job.task.n_actors)
    )
    return {role.name: given[role.home].cores for role in roles}


def _finite(value: Any) -> Any:
    """`value` as JSON can hold it, at any depth."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return metrics.finite(value)


def _replace(path: Path, text: str) -> None:
    """Writes a file so that nobody ever sees half of it."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def describe(summary: dict[str, Any], folder: Path) -> str:
    """What happened, in a few plain lines."""
    lines = [_outcome(summary)]
    if summary["startup_seconds"] is not None:
        startup, whole = span(summary["startup_seconds"]), span(summary["wall_seconds"])
        lines.append(_line("time", f"{whole} in all, {startup} of it to start"))
    if summary["updates"]:
        lines += _measured(summary)
    return "\n".join([*lines, _line("run", str(folder))])


def _outcome(summary: dict[str, Any]) -> str:
    mean, target = summary["mean_return_100"], summary["stop_return"]
    reached = "no episode ended"
    if mean is not None:
        reached = f"mean return {mean:,.1f} over {min(100, summary['episodes'])} episodes"
    if summary["status"] == "solved":
        return f"Solved in {span(summary['final_time_seconds'])}: {reached} (target {target:,g})."
    short = "" if target is None else f" (target {target:,g}, not reached)"
    verb = {
        "finished": "Finished",
        "stopped": "Stopped at the time limit",
        "interrupted": "Interrupted",
        "failed": "Failed",
    }[summary["status"]]
    return f"{verb}: {reached}{short}."


def _measured(summary: dict[str, Any]) -> list[str]:
    ratio, stale = summary["replay_ratio"], summary["staleness"]
    made, learned = summary["production_per_second"], summary["consumption_per_second"]
    measured = "-" if ratio["measured"] is None else f"{ratio['measured']:#.3g}"
    used = f"{measured} samples learned from per sample made (target {ratio['target']:#.3g})"
    steps, episodes, updates = (summary[n] for n in ("env_steps", "episodes", "updates"))
    old = f"samples were {stale['p50']:g} updates old (median), {stale['max']:g} at most"
    lines = [
        _line("work", f"{steps:,} steps, {episodes:,} episodes, {updates:,} updates"),
        _line("rates", f"{made:,.0f} steps/s made, {learned:,.0f} samples/s learned from"),
        _line("replay", used),
        _line("staleness", old),
    ]
    if summary["dropped"]:
        lines.append(_line("dropped", f"{summary['dropped']:,} samples for their age"))
    return [*lines, _line("limit", summary["bottleneck"])]


def _line(label: str, text: str) -> str:
    return f"  {label:<11}{text}"
