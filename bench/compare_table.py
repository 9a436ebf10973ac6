"""Turns the runs of a comparison into a Markdown table with a verdict under each task."""

from __future__ import annotations

import math
import statistics

from measures import shown
from tables import markdown, warning
from tasks import SYSTEMS, TASKS, Measured, Task

COLUMNS = (
    "system", "median s", "min-max s", "outer wall s", "env steps", "steps/s", "consumed/s",
    "replay ratio",
)  # fmt: skip
Groups = dict[str, list[Measured]]


def median(runs: list[Measured], field: str) -> float | None:
    """Over the runs that have the field; a run that never arrived counts as infinitely long."""
    values = [float(v) for v in (getattr(run, field) for run in runs) if v is not None]
    return statistics.median(values) if values else None


def row(system: str, runs: list[Measured], clock: str) -> list[str]:
    times = [float(getattr(run, clock)) for run in runs]
    return [
        system,
        shown(median(runs, clock), 2),
        f"{shown(min(times), 2)}-{shown(max(times), 2)}",
        shown(median(runs, "wall_seconds"), 2),
        shown(median(runs, "env_steps"), 0),
        shown(median(runs, "steps_per_second"), 0),
        shown(median(runs, "consumption_per_second"), 0),
        shown(median(runs, "replay_ratio"), 2),
    ]


def ratio(task: Task, groups: Groups, system: str) -> float | None:
    """Ours over theirs, of medians; None where either is absent or never arrived."""
    ours, theirs = (median(groups[s], task.clock.value) for s in ("ours", system))
    if ours is None or theirs is None or theirs == math.inf:
        return None
    return ours / theirs


def verdicts(task: Task, groups: Groups) -> list[str]:
    """One line per figure asked."""
    lines = []
    for asked in task.asked:
        found = ratio(task, groups, asked.system)
        word = "not measured" if found is None else "reached" if found <= asked.ratio else "missed"
        lines.append(f"- ours / {asked.system}: {shown(found, 2)}, asked <= {asked.ratio}: {word}")
    consumed = median(groups["ours"], "consumption_per_second")
    if task.consumption and consumed is not None:
        word = "reached" if consumed >= task.consumption else "missed"
        lines.append(f"- consumed/s: {consumed:.0f}, asked >= {task.consumption:.0f}: {word}")
    return lines


def section(name: str, runs: list[Measured]) -> list[str]:
    task = TASKS[name]
    groups = {s: [run for run in runs if (run.task, run.system) == (name, s)] for s in SYSTEMS}
    rows = [row(system, group, task.clock.value) for system, group in groups.items() if group]
    return [f"### {task.title}", "", markdown(COLUMNS, rows), "", *verdicts(task, groups), ""]


def table(runs: list[Measured]) -> str:
    """All tasks, and a warning where the machine was not quiet."""
    lines = [line for name in dict.fromkeys(r.task for r in runs) for line in section(name, runs)]
    if said := warning(run.foreign_load for run in runs):
        lines.append(f"{said} Trust the ratios more than the seconds.")
    return "\n".join(lines)
