"""What is shown and written while a run goes on, and when it ends."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tianji.core import atomic_file
from tianji.core.errors import TianJiError
from tianji.core.status import Status
from tianji.job.job import Job
from tianji.machine.resources import Share
from tianji.observe import metrics
from tianji.observe.episode_file import EpisodeFile
from tianji.observe.pace import Steady
from tianji.observe.panel import Scene
from tianji.observe.rates import Counts, Meter, Rates, homes_in, message_bytes, updates_since
from tianji.observe.sinks import Sinks, note, warn
from tianji.observe.summary import elapsed, summarise
from tianji.observe.times import Times
from tianji.observe.view import View, view_for
from tianji.observe.watch import Progress
from tianji.roles.evaluation import Evaluation
from tianji.runs.resume import Resumed
from tianji.runs.row_schedule import ROW_SECONDS, RowSchedule
from tianji.strategy.plan import plan_file
from tianji.strategy.plan.plan_file import Plan, compare

SUMMARY = "summary.json"  # how a run ended
PROGRESS = "progress.json"  # the same of a run in progress, or of one that was killed
FRAME_SECONDS = 0.25  # from one picture of the run to the next
RATE_SECONDS = 2.0  # that a shown rate is taken over
LIMIT_FRAMES = 40  # pictures that what limits the run is taken over
MOST_DECISIONS = 200  # of `balance.jsonl` that the summary repeats, the last ones
LONGEST_HISTORY = 400  # mean returns kept for the picture; beyond it every second one goes


@dataclass
class Evaluated:
    """What the evaluations of a run, resumed or not, have shown."""

    n: int = 0
    best: float | None = None  # mean return
    last: tuple[float, int] | None = None  # mean return, and the environment steps by then
    best_won: float | None = None  # share of won games, where anybody can win
    last_won: float | None = None

    def add(self, evaluation: Evaluation, env_steps: int) -> None:
        """Another one has come."""
        mean, won = evaluation.mean, evaluation.win_ratio
        self.n += 1
        self.best = mean if self.best is None else max(self.best, mean)
        self.last, self.last_won = (mean, env_steps), won
        if won is not None:
            self.best_won = max(won, self.best_won or 0.0)

    def summary(self) -> dict[str, Any] | None:
        """As `summary.json` has it; None if there was none."""
        if self.last is None:
            return None
        wins = {"best_win_ratio": self.best_won, "last_win_ratio": self.last_won}
        return {"n": self.n, "best": self.best, "last": self.last[0], **wins}


class Run:
    """Shows a run and writes it down; an engine calls `tick` as often as it likes."""

    def __init__(
        self,
        job: Job,
        engine: str,
        folder: Path,
        quiet: bool = False,
        started_at: float = 0.0,
        row_seconds: float = ROW_SECONDS,
        resumed: Resumed | None = None,
        planning_seconds: float = 0.0,
        *,
        shares: Mapping[str, Share] | None = None,
    ) -> None:
        self.job = job
        self._shares = shares or {}  # by process
        self.engine = engine
        self.folder = folder
        self.resumed = resumed
        self.warnings: list[str] = []
        earlier = resumed.facts.get("run", {}) if resumed else {}
        self.times = Times(started_at, earlier, planning_seconds)
        self._view: View | None = None if quiet else view_for()
        self._ticked_at: float | None = None  # when training was last seen going on
        self._frame_due = math.inf if quiet else -math.inf
        self._frame_meter = Meter(homes_in(job, engine), RATE_SECONDS)
        self._shown_rates = Rates()
        self._past: deque[Counts] = deque(maxlen=LIMIT_FRAMES)  # of the last pictures
        self._history: list[float] = []
        self._rows = RowSchedule(row_seconds, resumed is not None)
        self._row_meter = Meter(homes_in(job, engine), row_seconds, message_bytes(job))
        self._keep_due, self._keep_seconds = -math.inf, row_seconds  # of `progress.json`
        self._upkeep = metrics.Upkeep(self.times.resumes)
        self._plan = self._read_plan()
        self._steady = Steady()
        self._evaluated = Evaluated(**(resumed.facts.get("evaluated", {}) if resumed else {}))
        self._decisions = list(resumed.facts.get("rebalancing", []) if resumed else [])
        self._sinks = Sinks.of(folder, job.config, resumed.env_steps if resumed else None)
        before = resumed.facts.get("watch", {}).get("episodes", 0) if resumed else 0
        self._episodes = EpisodeFile(folder, before)  # written only where they are kept
        self._missed_episodes = False

    def _read_plan(self) -> Plan | None:
        """What the run is compared with; that it cannot be read is no reason not to train."""
        try:
            return plan_file.of_run(self.folder)
        except TianJiError as error:
            self.warn(f"{error}; without it nothing is compared")
            return None

    def tick(self, progress: Progress) -> None:
        """Shows and writes what is due, which is nearly always nothing."""
        now = self._ticked_at = time.monotonic()
        if self._plan is not None:
            done = progress.produced, progress.consumed
            self._steady.read(now, updates_since(progress), *done)
        self._keep_episodes(progress)
        if now >= self._frame_due:
            self._frame_due = now + FRAME_SECONDS
            self._show(progress, now)
        if self._rows.due(progress, now):
            self._write(progress, now)
            if now >= self._keep_due:
                self._keep_due = now + self._keep_seconds
                self._keep(PROGRESS, self._summary(Status.RUNNING, progress, now))

    def evaluated(self, evaluation: Evaluation, env_steps: int) -> float:
        """An evaluation has come: the next row tells of it. Returns the time of the run."""
        self._upkeep.evaluation = evaluation
        self._evaluated.add(evaluation, env_steps)
        return round(self.times.wall(time.monotonic()), 3)

    def state(self, progress: Progress) -> dict[str, Any]:
        """What must be known of this process when the run goes on in another."""
        return {
            "run": self.times.state(progress),
            "evaluated": asdict(self._evaluated),
            "rebalancing": list(self._decisions),
        }

    def warn(self, text: str) -> None:
        """Says that something went wrong which training survives, now and in the summary."""
        self.warnings.append(text)
        warn(text)

    def rebalanced(self, decision: dict[str, Any]) -> None:
        """Who works was changed: it is said now, and again in the summary."""
        self._decisions.append(decision)
        del self._decisions[:-MOST_DECISIONS]
        before, after = decision["before"], decision["after"]
        change = f"stays at {after}" if before == after else f"{before} -> {after}"
        note(f"{decision['kind']} {change} {decision['unit']}: {decision['why']}")

    def saved(self, seconds: float) -> None:
        """Another checkpoint is whole, `seconds` after it was asked for."""
        self._upkeep.checkpoints += 1
        self._upkeep.checkpoint_seconds = seconds

    def finish(
        self,
        status: Status,
        progress: Progress,
        error: str | None = None,
        written: Callable[[], None] = lambda: None,
    ) -> dict[str, Any]:
        """Writes the last row and `summary.json`; returns what that holds.

        Training ended with the last tick: what came after it was stopping. `written` is called when
        all is on disk, before trackers take their time to send what they have.
        """
        now = time.monotonic() if self._ticked_at is None else self._ticked_at
        self._keep_episodes(progress)
        with suppress(OSError):  # said before
            self._episodes.close()
        if progress.started_at is not None:
            self._write(progress, now)
        self._show(progress, now, status)
        summary = self._summary(status, progress, now, error)
        self._keep(SUMMARY, summary)
        with suppress(OSError):
            (self.folder / PROGRESS).unlink(missing_ok=True)
        written()
        self._sinks.close(summary)
        return summary

    def _summary(
        self, status: Status, progress: Progress, ticked_at: float, error: str | None = None
    ) -> dict[str, Any]:
        moments = ticked_at, time.monotonic()
        measured = summarise(
            self.job, self.engine, progress, self.times, *moments, shares=self._shares
        )
        return {
            "status": status,
            "error": error,
            **measured,
            "plan": self._plan and compare(self._plan, self._steady.pace()).to_json(),
            "evaluation": self._evaluated.summary(),
            "rebalancing": self._decisions,
            "warnings": self.warnings,
        }

    def _keep_episodes(self, progress: Progress) -> None:
        """Writes those that have ended since; what the disk refuses waits for the next time."""
        if not progress.unwritten:
            return
        try:
            self._episodes.add(progress.unwritten)
        except OSError as refusal:
            if not self._missed_episodes:
                warn(f"episodes.csv cannot be written, and lines wait: {refusal}")
            self._missed_episodes = True
        progress.unwritten.clear()

    def _keep(self, name: str, content: dict[str, Any]) -> None:
        """Writes a file so that nobody ever sees half of it."""
        try:
            atomic_file.write(self.folder / name, json.dumps(content, indent=2) + "\n")
        except OSError as refusal:
            if name == SUMMARY:
                warn(f"{name} cannot be written: {refusal}")

    def _show(self, progress: Progress, now: float, status: Status | None = None) -> None:
        if self._view is None:
            return
        if progress.mean_return is not None and math.isfinite(progress.mean_return):
            self._history.append(progress.mean_return)
            if len(self._history) > LONGEST_HISTORY:
                del self._history[1::2]
        if status is None:  # the last picture keeps its rates: by then the roles have stopped
            self._shown_rates = self._frame_meter.read(progress, now)
            if progress.started_at is not None:
                self._past.append(dict(progress.counts))
        rates, seconds = self._shown_rates, elapsed(progress, now)
        scene = Scene(
            self.job,
            self.engine,
            progress,
            rates,
            seconds,
            self._history,
            status,
            self._evaluated.last,
            self._past[0] if len(self._past) == LIMIT_FRAMES else None,
            self._evaluated.last_won,
        )
        try:
            if status is None:
                self._view.show(scene)
            else:
                self._view.close(scene)
        except OSError:
            self._view = None  # whoever looked on has gone; that is no reason to stop

    def _write(self, progress: Progress, now: float) -> None:
        rates = self._row_meter.read(progress, now)
        wall, seconds = self.times.wall(now), elapsed(progress, now)
        values = metrics.row(progress, self.job, rates, wall, seconds, self._upkeep)
        self._upkeep.evaluation = None
        self._sinks.add(values, progress.produced)
