"""What a chaos test comes to: a line for each fault, two tables, a sentence and a JSON file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tianji import __version__
from tianji.core import atomic_file
from tianji.core.columns import fitted
from tianji.core.wording import count_of
from tianji.tools.chaos.invariants import FaultOutcome, Judgement, Record
from tianji.tools.chaos.schedule import MEANINGS, RUN, Fault
from tianji.tools.chaos.settings import ChaosSettings

FILE = "chaos.json"
WORDS = {True: "held", False: "BROKEN", None: "-"}


def line(trial: FaultOutcome) -> str:
    """What came of one fault, as it is told at once."""
    strike = trial.strike
    whom = "" if strike.victim == RUN else strike.victim
    lasts = f"for {strike.seconds:.1f} s" if strike.seconds else ""
    said = f"{trial.at:7.1f} s  {strike.fault:<8}  {whom:<11}  {_outcome(trial)}"
    if lasts:
        said += f" ({lasts})"
    if trial.broken:
        said += f"; BROKEN: {', '.join(trial.broken)}"
    return said


def _outcome(trial: FaultOutcome) -> str:
    if trial.undone:
        return f"not done: {trial.undone}"
    parts = [] if trial.detected is None else [f"seen after {trial.detected:.2f} s"]
    parts.append("did NOT go on" if trial.back is None else f"back after {trial.back:.2f} s")
    return ", ".join(parts)


def faults(
    trials: Sequence[FaultOutcome], chosen: Sequence[Fault], width: int | None = None
) -> str:
    """A row for each kind of fault; times are medians, with the longest behind them."""
    rows = [("fault", "done", "survived", "seen after, s", "back after, s", "what it is")]
    for fault in Fault:
        of_it = [trial for trial in trials if trial.strike.fault is fault]
        if fault not in chosen:
            continue
        done = [trial for trial in of_it if not trial.undone]
        survived = [trial for trial in done if trial.back is not None]
        said = MEANINGS[fault]
        if len(done) < len(of_it):
            said = f"not done: {next(trial.undone for trial in of_it if trial.undone)}"
        detected = [t.detected for t in done if t.detected is not None]
        back = [t.back for t in survived if t.back is not None]
        rows.append(
            (fault, str(len(done)), str(len(survived)), _times(detected), _times(back), said)
        )
    return "\n".join(fitted(rows, width, left=(0, -1)))


def _times(seconds: Sequence[float]) -> str:
    """The median, and behind it the longest, as in `1.20 (3.40)`."""
    if not seconds:
        return "-"
    middle, most = statistics.median(seconds), max(seconds)
    return f"{middle:.2f} ({most:.2f})"


def verdicts(found: Sequence[Judgement], width: int | None = None) -> str:
    """A row for each invariant."""
    rows = [("invariant", "verdict", "found")]
    rows += [(each.name, WORDS[each.held], each.found) for each in found]
    return "\n".join(fitted(rows, width, left=(0, 1, 2)))


def holds(found: Sequence[Judgement]) -> bool:
    """Whether no invariant was broken."""
    return all(each.held is not False for each in found)


def sentence(found: Sequence[Judgement], record: Record, settings: ChaosSettings) -> str:
    """The verdict in words."""
    done = [trial.strike.fault for trial in record.trials if not trial.undone]
    broken = [each.name for each in found if each.held is False]
    said = f"{count_of(len(done), 'fault')} of seed {settings.seed}: "
    if not broken:
        said += "every invariant held."
    else:
        said += f"broken: {', '.join(broken)}."
    if (n_kinds := len(set(done))) < len(settings.faults):
        said += f" {n_kinds} of {len(settings.faults)} kinds came."
    if (left := len(settings.strikes) - len(record.trials)) > 0:
        said += f" {count_of(left, 'fault')} did not come before the time or the run was over."
    return said


def write(folder: Path, settings: ChaosSettings, record: Record, found: list[Judgement]) -> Path:
    """Writes `chaos.json`; returns where it is."""
    ending = record.ending
    content: dict[str, Any] = {
        "tianji": __version__,
        "settings": asdict(settings),
        "held": holds(found),
        "verdicts": [asdict(each) for each in found],
        "faults": [asdict(trial) for trial in record.trials],
        "ending": None if ending is None else asdict(ending) | {"summary": None},
        "usage": [
            {"at": round(at, 3)} | {k: v for k, v in asdict(usage).items() if k != "names"}
            for at, usage in record.usages
        ],
    }
    atomic_file.write(folder / FILE, json.dumps(content, indent=1) + "\n")
    return folder / FILE
