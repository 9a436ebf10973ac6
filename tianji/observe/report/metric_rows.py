"""The rows of `metrics.jsonl` and `evaluations.jsonl` as columns, read on as the files grow."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.json_file import number, parsed_row
from tianji.observe.report.run_files import Object, Tail

Floats = npt.NDArray[np.float64]

COLUMNS = {  # by the name in the page
    "steps": "env_steps",
    "time": "time/time_elapsed",
    "resumes": "time/resumes",
    "restarts": "time/restarts",
    "env_restarts": "faults/env_restarts",
    "not_finite": "faults/not_finite",
    "lost_episodes": "faults/lost_episodes",
    "skipped_updates": "faults/skipped",
    "wall": "wall_s",
    "updates": "updates",
    "return": "rollout/ep_rew_mean",
    "win_ratio": "rollout/win_ratio",
    "episodes": "rollout/episodes",
    "production": "balance/production",
    "receiving": "balance/receiving",
    "consumption": "balance/consumption",
    "ratio": "balance/ratio",
    "target": "balance/target",
    "staleness_mean": "staleness/mean",
    "staleness_p50": "staleness/p50",
    "staleness_p95": "staleness/p95",
    "staleness_max": "staleness/max",
    "freshness": "staleness/freshness",
    "ess": "staleness/ess",
    "kl": "staleness/kl",
    "fusion_distance": "fusion/distance",
    "fusion_kl": "fusion/kl",
}
MOST_SCALARS = 8  # of what `learn` returns, that are drawn
MOST_COLUMNS = 100  # whatever the names in the rows are
NAN = float("nan")


def plain_list(values: Floats) -> list[float | None]:
    """With as many digits as a plot or its read-out can show, and None for what is not finite."""
    size = np.abs(values)
    usual = np.isfinite(size) & (size > 1e-12)
    places = 4 - np.floor(np.log10(size, out=np.zeros_like(size), where=usual))
    scale = 10.0 ** np.clip(places, 0, 16)  # exact, so that what comes out has few digits
    rounded = np.where(usual, np.round(np.where(usual, values, 0.0) * scale) / scale, 0.0)
    return [
        value if there else None
        for value, there in zip(rounded.tolist(), np.isfinite(values).tolist(), strict=True)
    ]


class Columns:
    """The metrics of a run so far, one array for each that is drawn.

    A run that is resumed goes on from its last checkpoint: its steps go backward, and what was
    written beyond that point is forgotten, because it was trained again.
    """

    def __init__(self, path: Path) -> None:
        self.n_read = 0  # lines, ever
        self.unreadable = 0  # of them, no row
        self.last: Object = {}
        self._tail = Tail(path)
        self._columns: dict[str, array[float]] = {}
        self._forget()

    def _forget(self) -> None:
        self._columns = {name: array("d") for name in COLUMNS}
        self._later = 0.0  # seconds to add to a clock that has started anew
        self.last, self.unreadable = {}, 0

    def refresh(self) -> None:
        """Reads what has been written since."""
        if self._tail.replaced():
            self._forget()
        for line in self._tail.lines():
            self.n_read += 1
            if not line.strip():
                continue
            row = parsed_row(line)
            steps = number(row.get("env_steps"))
            if steps is None:
                self.unreadable += 1
            else:
                self._add(row, steps)

    def __len__(self) -> int:
        return len(self._columns["steps"])

    def column(self, name: str) -> Floats:
        """All values of one column, NaN where there is none."""
        return np.array(self._columns.get(name, ()), np.float64)

    def names(self, prefix: str) -> list[str]:
        """The columns whose name begins so."""
        return [name for name in self._columns if name.startswith(prefix)]

    def _add(self, row: Object, steps: float) -> None:
        self._rewind(steps)
        values = {name: _value(row, key) for name, key in COLUMNS.items()}
        values["time"] = self._continued(values["time"], values["wall"])
        values |= _busy_by_kind(row) | self._scalars(row)
        new = [name for name in values if name not in self._columns]
        for name in new[: MOST_COLUMNS - len(self._columns)]:
            self._columns[name] = array("d", [NAN] * len(self))
        for name, column in self._columns.items():
            column.append(values.get(name, NAN))
        self.last = row

    def _rewind(self, steps: float) -> None:
        known = self._columns["steps"]
        if known and steps < known[-1]:
            keep = bisect_left(known, steps)
            for column in self._columns.values():
                del column[keep:]

    def _continued(self, seconds: float, wall: float) -> float:
        """Training time on a clock that never goes backward."""
        now = (wall if np.isnan(seconds) else seconds) + self._later
        before = self._columns["time"][-1] if len(self) else 0.0
        if now < before:
            self._later += before - now
            return before
        return now

    def _scalars(self, row: Object) -> dict[str, float]:
        names = [key for key in row if key.startswith("train/") and key != "train/n_updates"]
        return {name: _value(row, name) for name in names[:MOST_SCALARS]}


def _value(row: Object, key: str) -> float:
    value = number(row.get(key))
    return NAN if value is None else value


def roles_in(row: Object) -> dict[str, dict[str, float]]:
    """The shares of busy and idle time of every role in a row."""
    found: dict[str, dict[str, float]] = {}
    for key, value in row.items():
        parts, share = key.split("/"), number(value)
        if len(parts) == 3 and parts[0] == "roles" and share is not None:
            found.setdefault(parts[1], {})[parts[2]] = share
    return found


def _busy_by_kind(row: Object) -> dict[str, float]:
    """`busy/actor` is the mean over all actors, and so on."""
    kinds: dict[str, list[float]] = {}
    for role, shares in roles_in(row).items():
        if "busy" in shares:
            kinds.setdefault(role.partition("-")[0], []).append(shares["busy"])
    return {f"busy/{kind}": sum(all_) / len(all_) for kind, all_ in kinds.items()}


@dataclass(frozen=True)
class EvaluationPoint:
    """One evaluation: the interquartile mean of its returns, with its interval."""

    of: str  # training: by the evaluator; eval: by `tianji eval`
    steps: float
    updates: float | None
    wall: float | None
    episodes: float | None
    mean: float | None
    iqm: float
    low: float | None
    high: float | None
    win_ratio: float | None = None
    win_low: float | None = None
    win_high: float | None = None


class Evaluations:
    """The evaluations of a run so far, in the order of their steps."""

    def __init__(self, path: Path) -> None:
        self.n_read = 0  # lines, ever
        self._tail = Tail(path)
        self._rows: list[EvaluationPoint] = []

    def refresh(self) -> None:
        """Reads what has been written since."""
        if self._tail.replaced():
            self._rows = []
        for line in self._tail.lines():
            self.n_read += 1
            if (row := _evaluation(parsed_row(line))) is not None:
                self._rows.append(row)

    def all(self) -> list[EvaluationPoint]:
        """Without those that another stands for."""
        training = [row for row in self._rows if row.of == "training"]
        asked = [row for row in self._rows if row.of != "training"]
        return sorted(_longest(asked) + _trained_last(training), key=lambda row: row.steps)


def _trained_last(rows: list[EvaluationPoint]) -> list[EvaluationPoint]:
    """Those that no later one has fewer steps than, or as many: a resume trains them again."""
    kept: list[EvaluationPoint] = []
    reached = float("inf")
    for row in reversed(rows):
        if row.steps < reached:
            kept.append(row)
            reached = row.steps or reached  # no resume goes back to 0: that row lacks its steps
    return kept


def _longest(rows: list[EvaluationPoint]) -> list[EvaluationPoint]:
    """Of each checkpoint the evaluation with the most episodes, the latest of several."""
    best: dict[tuple[float, float | None], EvaluationPoint] = {}
    for row in rows:
        known = best.setdefault((row.steps, row.updates), row)
        if (row.episodes or 0) >= (known.episodes or 0):
            best[row.steps, row.updates] = row
    return list(best.values())


def _evaluation(row: Object) -> EvaluationPoint | None:
    iqm, steps = number(row.get("iqm")), number(row.get("env_steps"))
    if iqm is None or steps is None:
        return None
    of = "training" if row.get("of") == "training" else "eval"
    rest: dict[str, Any] = {
        name: number(row.get(key))
        for name, key in [
            ("wall", "wall_s"),
            *((n, n) for n in ("updates", "episodes", "mean", "win_ratio", "win_low", "win_high")),
        ]
    }
    return EvaluationPoint(
        of, steps, iqm=iqm, low=number(row.get("low")), high=number(row.get("high")), **rest
    )
