"""The report in a few lines of text, for the terminal."""

from __future__ import annotations

from tianji.core.columns import fitted, wrapped
from tianji.core.wording import number
from tianji.observe.report.run_files import Object

LONGEST_LABEL = 40  # characters of a run's or a configuration's name
HEAD = ("run", "seed", "status", "final time", "mean return", "steps", "consumed/s", "staleness")
LEAST = ("staleness", "consumed/s", "steps", "seed")  # left out first where there is no room
GROUP_HEAD = ("configuration", "runs", "final time", "IQM of the return", "95 % interval")
GROUP_LEAST = ("runs", "95 % interval")


def describe(data: Object, width: int | None = None) -> str:
    """A line for every run, and for several one for every configuration as well."""
    lines = fitted([HEAD, *map(_run, data["runs"])], width, least=LEAST)
    if len(data["runs"]) > 1:
        groups = [GROUP_HEAD, *map(_group, data["groups"])]
        lines += ["", *fitted(groups, width, least=GROUP_LEAST)]
    notes = [f"{_cut(run['name'])}: {_plain(note)}" for run in data["runs"] for note in _notes(run)]
    if notes:
        lines += ["", *(line for note in notes for line in wrapped(note, width, indent=2))]
    return "\n".join(lines)


def _notes(run: Object) -> list[str]:
    error = [run["error"].strip().splitlines()[-1]] if run["error"] else []
    return [*run["notices"], *error]


def _run(run: Object) -> tuple[str, ...]:
    numbers = run["numbers"]
    return (
        _cut(run["name"]),
        _cell(run["seed"], "g"),
        run["status"],
        _cell(numbers["final_time_seconds"], ",.1f", " s"),
        number(numbers["mean_return_100"]),
        _cell(numbers["env_steps"], ",.0f"),
        _cell(numbers["consumption_per_second"], ",.0f"),
        _cell(numbers["staleness_p50"], ",.0f"),
    )


def _group(group: Object) -> tuple[str, ...]:
    time, returns = group["final_time"] or {}, group["return"] or {}
    low, high = returns.get("low"), returns.get("high")
    between = "-" if low is None or high is None else f"{number(low)} to {number(high)}"
    return (
        _cut(group["label"]),
        str(len(group["runs"])),
        _cell(time.get("median"), ",.1f", " s"),
        number(returns.get("iqm")),
        between,
    )


def _cell(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def _plain(words: str) -> str:
    """Without what a terminal would take for a command."""
    return "".join(letter if letter.isprintable() else " " for letter in words)


def _cut(words: str) -> str:
    plain = _plain(words)
    return plain if len(plain) <= LONGEST_LABEL else f"{plain[: LONGEST_LABEL - 3]}..."
