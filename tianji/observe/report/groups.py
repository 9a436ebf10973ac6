"""Several runs side by side: which belong to one configuration, and what they come to together."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

from tianji.core.stats import stratified
from tianji.core.status import ENDED
from tianji.observe.report.metric_rows import Floats, plain_list
from tianji.observe.report.run_files import Object

GRID_POINTS = 200  # of a curve over several seeds
SEEDS = ("exp.seed", "environment.seed")  # in which runs of one configuration may differ
MOST_NAMED = 3  # differing keys in a label
CURVES = ("return", "win_ratio", "production", "consumption", "staleness_p50")
RESULTS = ("return", "win_ratio")  # that stay when a run has ended in order


def groups_of(runs: Sequence[Object]) -> list[Object]:
    """The runs by configuration, in the order given; the seed makes no difference."""
    together: dict[str, list[int]] = {}
    for i, run in enumerate(runs):
        together.setdefault(_key(run), []).append(i)
    members = list(together.values())
    labels = _labels([runs[indices[0]] for indices in members])
    pairs = zip(members, labels, strict=True)
    return [_group(label, indices, [runs[i] for i in indices]) for indices, label in pairs]


def differing(runs: Sequence[Object]) -> list[str]:
    """The keys of the configuration that are not the same in all runs."""
    configs = [run["config"] for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({config.get(key) for config in configs}) > 1]


def _key(run: Object) -> str:
    config = {key: value for key, value in run["config"].items() if key not in SEEDS}
    if not config:  # nothing is known of it: it is like no other
        return json.dumps(run["folder"])
    return json.dumps([run["engine"], sorted(config.items())])


def _labels(firsts: Sequence[Object]) -> list[str]:
    """The name of each configuration, with what sets it apart from others of the same name."""
    names = [str(run["config_name"]) for run in firsts]
    labels = []
    for run, name in zip(firsts, names, strict=True):
        same = [other for other, said in zip(firsts, names, strict=True) if said == name]
        keys = [key for key in differing(same) if key not in SEEDS]
        marks = [f"{key}={run['config'].get(key, 'not set')}" for key in keys[:MOST_NAMED]]
        if len({other["engine"] for other in same}) > 1:
            marks.append(str(run["engine"]))
        more = [f"{len(keys) - MOST_NAMED} more"] if len(keys) > MOST_NAMED else []
        labels.append(" · ".join([name, *marks, *more]))
    return labels


def _group(label: str, indices: list[int], runs: list[Object]) -> Object:
    numbers = [run["numbers"] for run in runs]
    return {
        "label": label,
        "runs": indices,
        "seeds": [run["seed"] for run in runs],
        "status": _statuses(runs),
        "final_time": _spread([each.get("final_time_seconds") for each in numbers]),
        "return": _interquartile([each.get("mean_return_100") for each in numbers]),
        "won": _spread([each.get("win_ratio_100") for each in numbers]),
        "consumption": _spread([each.get("consumption_per_second") for each in numbers]),
        "staleness": _spread([each.get("staleness_p50") for each in numbers]),
        "curves": _bands(runs) if len(runs) > 1 else None,
    }


def _statuses(runs: list[Object]) -> Object:
    counts: dict[str, int] = {}
    for run in runs:
        counts[run["status"]] = counts.get(run["status"], 0) + 1
    return counts


def _spread(values: list[float | None]) -> Object | None:
    """Median, lowest and highest of the values that there are."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    middle = statistics.median(there)
    return {"median": middle, "low": min(there), "high": max(there), "n": len(there)}


def _interquartile(values: list[float | None]) -> Object | None:
    """IQM over seeds with its 95 % stratified bootstrap interval; no interval of a single run."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    middle, low, high = stratified([there])
    several = len(there) > 1
    return {
        "iqm": middle,
        "low": low if several else None,
        "high": high if several else None,
        "n": len(there),
    }


def _bands(runs: list[Object]) -> Object:
    """Mean, lowest and highest over the runs, on common axes of time and of steps."""
    found: Object = {}
    for name in CURVES:
        for axis in ("time", "steps") if name in RESULTS else ("time",):
            curves = [_points(run["curves"], axis, name) for run in runs]
            stays = [name in RESULTS and run["status"] in ENDED for run in runs]
            if band := _band(curves, stays):
                found.setdefault(name, {})[axis] = band
    return found


def _points(curves: Object, axis: str, name: str) -> tuple[Floats, Floats]:
    def column(key: str) -> Floats:
        return np.array(curves.get(key, []), np.float64)  # None becomes NaN

    x, y = column(axis), column(name)
    there = np.isfinite(x) & np.isfinite(y)
    return x[there], y[there]


def _band(curves: list[tuple[Floats, Floats]], stays: list[bool]) -> dict[str, Any] | None:
    """A return stays where it was when its run ended in order; else there is no value from then."""
    there = [(*curve, stay) for curve, stay in zip(curves, stays, strict=True) if curve[0].size]
    if not there:
        return None
    grid = np.linspace(min(x[0] for x, *_ in there), max(x[-1] for x, *_ in there), GRID_POINTS)
    rows = np.array(
        [np.interp(grid, x, y, left=np.nan, right=None if stay else np.nan) for x, y, stay in there]
    )
    known = np.isfinite(rows)
    n = known.sum(axis=0)
    sums = np.where(known, rows, 0.0).sum(axis=0)
    mean = np.divide(sums, n, out=np.full(n.shape, np.nan), where=n > 0)
    return {
        "x": plain_list(grid),
        "mean": plain_list(mean),
        "low": plain_list(np.where(n, np.where(known, rows, np.inf).min(axis=0), np.nan)),
        "high": plain_list(np.where(n, np.where(known, rows, -np.inf).max(axis=0), np.nan)),
    }
