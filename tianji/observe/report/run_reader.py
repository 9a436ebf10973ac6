"""One run folder as plain data for the page: its outcome, its curves and what it was made of."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tianji.core.errors import TianJiError
from tianji.core.json_file import number, read_json, section, text
from tianji.core.status import Status
from tianji.core.wording import count_of
from tianji.observe.mended import MENDED
from tianji.observe.report.histogram import histograms
from tianji.observe.report.metric_rows import Columns, Evaluations, Floats, plain_list, roles_in
from tianji.observe.report.run_files import MISSING, Object, Stamp, stamp_of

RUN_FILES = ("config.json", "summary.json", "metrics.jsonl")
MOST_POINTS = 500  # of a curve; more cannot be told apart on a screen
MOST_CHECKPOINTS = 50  # that are named
MOST_WARNINGS = 20  # that are repeated
MOST_FAULTS = 10  # that are told one by one, the last ones
LONGEST_VALUE = 200  # characters of a configured value
LONGEST_WORDS = 8_000  # characters of a process's last words: the last ones
NEARBY = 5  # runs that an error names

WHO = ("process", "how")  # was lost, and in which way
FAULTS = ("resumes", "restarts", *MENDED)
DRAWN = (
    *("time", "steps", "return", "production", "receiving", "consumption", "ratio", "target"),
    *("staleness_p50", "staleness_p95", "ess", "kl", "win_ratio", "fusion_distance", "fusion_kl"),
)
LAST_OF = {  # figures that the last row knows where there is no summary, by their columns
    "env_steps": "steps",
    "updates": "updates",
    "episodes": "episodes",
    "wall_seconds": "wall",
    "training_seconds": "time",
    **{name: name for name in FAULTS},
    "mean_return_100": "return",
    "win_ratio_100": "win_ratio",
    **{f"staleness_{name}": f"staleness_{name}" for name in ("mean", "p50", "p95", "max")},
}


def is_run(folder: Path) -> bool:
    """Whether a folder holds what a run writes."""
    return any((folder / name).is_file() for name in RUN_FILES)


def refuse_other(folder: Path) -> None:
    """Raises an error that says what to do unless `folder` is that of a run."""
    try:
        if is_run(folder):
            return
        found = "is not the folder of a run" if folder.exists() else "does not exist"
        if folder.is_file() and folder.suffix == ".py":
            found = "is a configuration file, not a run"
        place = folder if folder.is_dir() else folder.parent
        nearby = sorted(path for path in place.iterdir() if is_run(path)) if place.is_dir() else []
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise TianJiError(f"{folder} cannot be read: {why}: name the folder of a run") from error
    if not nearby:
        raise TianJiError(
            f"{folder} {found}: name the folder of a run, as in runs/cartpole_ppo-..."
        )
    newest = sorted(nearby, key=lambda path: path.stat().st_mtime)[-NEARBY:]
    more = f" and {len(nearby) - NEARBY} more" if len(nearby) > NEARBY else ""
    names = ", ".join(str(path) for path in reversed(newest))
    raise TianJiError(f"{folder} {found}: name one of {names}{more}")


class RunReader:
    """Turns a run folder into data for the page, again and again while the run goes on."""

    def __init__(self, folder: Path, before: Stamp = MISSING) -> None:
        self.folder = folder
        self._rows = Columns(folder / "metrics.jsonl")
        self._evaluations = Evaluations(folder / "evaluations.jsonl")
        self._before = before  # a summary with this stamp is older than the run that goes on

    def refresh(self) -> tuple[Any, ...]:
        """Reads what has been added; what is returned changes if the data may have."""
        self._rows.refresh()
        self._evaluations.refresh()
        read = self._rows.n_read, self._evaluations.n_read
        return (*read, *(stamp_of(self.folder / name) for name in ("config.json", "summary.json")))

    @property
    def ended(self) -> bool:
        """Whether the run has written down how it ended."""
        return stamp_of(self.folder / "summary.json") not in (MISSING, self._before)

    def document(self, points: int = MOST_POINTS, live: bool = False) -> Object:
        """All that the page shows of this run; `refresh` comes first."""
        about = read_json(self.folder / "config.json")
        summary = self._summary()
        found = text(summary.get("status"))
        otherwise = Status.RUNNING if live else Status.UNFINISHED
        status = Status(found) if found in set(Status) else otherwise
        config = configuration(about)
        return {
            "folder": str(self.folder),
            "name": self.folder.resolve().name,
            "status": status,
            "status_words": status.words,
            "error": text(summary.get("error")),
            "notices": self._notices(about, summary, status),
            "config_name": config.get("name") or self.folder.resolve().name,
            "task": _task(about),
            "config": config,
            "engine": text(about.get("engine")) or text(summary.get("engine")),
            "seed": number(about.get("seed")),
            "versions": _versions(about, summary),
            "checkpoints": _checkpoints(self.folder / "checkpoints"),
            "numbers": self._numbers(summary, about),
            "bottleneck": text(summary.get("bottleneck")),
            "roles": self._roles(summary),
            "roles_over": "the training time" if summary.get("roles") else "the last second",
            "faults": _faults(summary),
            "first_words": _first_words(summary),
            "memory": _memory(summary),
            "predicted": self._predicted(summary),
            "histograms": histograms(summary),
            "curves": self._curves(points),
            "evaluations": self._evaluated(),
        }

    def _summary(self) -> Object:
        """What the run wrote down at its end; before that, how it stood at its last row."""
        if self.ended:
            summary = read_json(self.folder / "summary.json")
            steps, written = number(summary.get("env_steps")), _last(self._rows.column("steps"))
            if steps is None or written is None or written <= steps:
                return summary  # otherwise the run has been resumed since
        return read_json(self.folder / "progress.json") | {"status": None, "error": None}

    def _notices(self, about: Object, summary: Object, status: Status) -> list[str]:
        said = []
        if status is Status.UNFINISHED:
            said.append(
                "The run has not written down how it ended: it is still going on, or it was "
                "killed. What is shown comes from the rows that it wrote."
            )
        if not about and status is not Status.RUNNING:
            said.append("config.json is missing or cannot be read.")
        if not len(self._rows) and status is not Status.RUNNING:
            said.append("No row of metrics was written: the run did not come to its first update.")
        if n := self._rows.unreadable:
            said.append(f"{count_of(n, 'line')} of metrics.jsonl could not be read.")
        warned = summary.get("warnings")
        words = warned if isinstance(warned, list) else []
        return said + [word for word in words if isinstance(word, str)][:MOST_WARNINGS]

    def _numbers(self, summary: Object, about: Object) -> dict[str, float | None]:
        """The figures of the headline: from the summary, and where there is none from the rows."""
        names = ["final_time_seconds", "stop_return", "startup_seconds", "wall_seconds", "dropped"]
        names += ["env_steps", "updates", "episodes", "mean_return_100", *FAULTS]
        names += ["win_ratio_100", "stop_win_ratio"]
        names += [f"{what}_per_second" for what in ("production", "receiving", "consumption")]
        said = {name: number(summary.get(name)) for name in names}
        exp = section(section(about.get("config")).get("exp"))
        derived = self._derived() | {"stop_return": number(exp.get("stop_return"))}
        for name, value in derived.items():
            if said.get(name) is None:
                said[name] = value
        for name, value in section(summary.get("staleness")).items():
            said[f"staleness_{name}"] = number(value)
        return said

    def _derived(self) -> dict[str, float | None]:
        rows = self._rows
        found = {name: _last(rows.column(key)) for name, key in LAST_OF.items()}
        for what in ("production", "receiving", "consumption"):
            found[f"{what}_per_second"] = _mean(rows.column(what))
        return found

    def _roles(self, summary: Object) -> list[Object]:
        said = section(summary.get("roles")) or roles_in(self._rows.last)
        shares = {name: section(value) for name, value in said.items()}
        return [
            {
                "name": name,
                "busy": number(share.get("busy")) or 0.0,
                "idle": number(share.get("idle")) or 0.0,
            }
            for name, share in shares.items()
        ]

    def _predicted(self, summary: Object) -> list[Object]:
        """What was planned beside what came out; nothing where nothing was planned."""
        rows = self._rows
        ratio = section(summary.get("replay_ratio")) or {
            "target": _last(rows.column("target")),
            "measured": _last(rows.column("ratio")),
        }
        fresh = section(summary.get("freshness"))
        pairs = [("replay ratio", ratio), ("freshness", fresh)]
        found = [_pair(f"{name} (target)", pair.get("target"), pair) for name, pair in pairs]
        for name, value in section(summary.get("predicted")).items():
            found.append(_pair(name, section(value).get("predicted"), section(value)))
        return [pair for pair in found if pair["predicted"] is not None]

    def _curves(self, points: int) -> Object:
        rows = self._rows
        size = max(1, math.ceil(len(rows) / points))
        curves: Object = {name: _thinned(rows.column(name), size) for name in DRAWN}
        for group in ("busy", "train"):
            inner = rows.names(f"{group}/")
            curves[group] = {
                name.partition("/")[2]: _thinned(rows.column(name), size) for name in inner
            }
        return curves | {"rows_per_point": size}

    def _evaluated(self) -> list[Object]:
        rows = self._rows
        steps, seconds = rows.column("steps"), rows.column("time")
        known = np.isfinite(seconds)
        found = []
        for row in self._evaluations.all():
            time = row.wall
            if known.any():  # as the curve has it: an evaluation's own clock may be another
                time = float(np.interp(row.steps, steps[known], seconds[known]))
            found.append({"time": time} | asdict(row))
        return found


def _thinned(values: Floats, size: int) -> list[float | None]:
    """The means of every `size` values, and the last one as it is."""
    if size > 1 and values.size:
        whole = values[:-1]
        padded = np.concatenate([whole, np.full(-whole.size % size, np.nan)]).reshape(-1, size)
        there = np.isfinite(padded)
        counts = there.sum(axis=1)
        sums = np.where(there, padded, 0.0).sum(axis=1)
        means = np.divide(sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
        values = np.concatenate([means, values[-1:]])
    return plain_list(values)


def _last(values: Floats) -> float | None:
    there = values[np.isfinite(values)]
    return float(there[-1]) if there.size else None


def _mean(values: Floats) -> float | None:
    there = values[np.isfinite(values)]
    return float(there.mean()) if there.size else None


def _pair(name: str, predicted: Any, pair: Mapping[str, Any]) -> Object:
    return {"name": name, "predicted": number(predicted), "measured": number(pair.get("measured"))}


def configuration(about: Object) -> dict[str, str]:
    """Every key of a run's configuration with its value as text; `hyp` with its defaults."""
    config = dict(section(about.get("config")))
    if not config:
        return {}
    for name in ("folder", "notices"):
        config.pop(name, None)
    config["hyp"] = section(about.get("hyp")) or section(config.get("hyp"))
    config |= section(config.pop("parallel", None))
    return dict(_flat(config))


def _flat(config: Object, prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found += _flat(value, f"{prefix}{key}.")
        else:
            said = value if isinstance(value, str) else json.dumps(value)
            cut = said if len(said) <= LONGEST_VALUE else f"{said[:LONGEST_VALUE]}..."
            found.append((f"{prefix}{key}", cut))
    return found


def _task(about: Object) -> str:
    """As in `CartPole-v1 · DQN`."""
    config = section(about.get("config"))
    env, agent = section(config.get("environment")), section(config.get("agent"))
    words = [text(env.get("gym_name")) or text(env.get("type")), text(agent.get("type"))]
    return " · ".join(word for word in words if word)


def _versions(about: Object, summary: Object) -> dict[str, str]:
    said = section(about.get("versions")) or section(summary.get("versions"))
    found = {name: version for name, version in said.items() if isinstance(version, str)}
    if commit := text(about.get("commit")):
        found["commit"] = commit
    return found


def _memory(summary: Object) -> dict[str, float]:
    said = summary.get("memory_bytes")
    parts = said if isinstance(said, dict) else {"in all": said}
    found = {name: number(value) for name, value in parts.items()}
    return {name: value for name, value in found.items() if value is not None}


def _all_faults(summary: Object) -> list[Object]:
    said = summary.get("faults")
    return [section(fault) for fault in said] if isinstance(said, list) else []


def _first_words(summary: Object) -> str | None:
    """What the first lost process that left any words said last: one that is killed leaves none."""
    for fault in _all_faults(summary):
        if words := text(fault.get("words")):
            who = " ".join((text(fault.get(name)) or "")[:LONGEST_VALUE] for name in WHO)
            return f"{who}:\n{words[-LONGEST_WORDS:]}"
    return None


def _faults(summary: Object) -> list[Object]:
    """The last processes that were lost and replaced: which, how, when, and how long away."""
    return [
        {
            **{name: (text(fault.get(name)) or "")[:LONGEST_VALUE] for name in WHO},
            "seconds": number(fault.get("seconds")),
            "away_seconds": number(fault.get("away_seconds")),
        }
        for fault in _all_faults(summary)[-MOST_FAULTS:]
    ]


def _checkpoints(folder: Path) -> list[str]:
    """The newest checkpoints by name; those that are still being written have no name yet."""
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return []
    whole = [n for n in names if not n.startswith(".") and not n.endswith((".part", ".tmp"))]
    left = len(whole) - MOST_CHECKPOINTS
    return whole if left <= 0 else [f"({left} older ones)", *whole[left:]]
