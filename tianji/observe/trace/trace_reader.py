"""Reads the recordings of a run: what is whole in them, on one clock, in one window of time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.errors import TianJiError
from tianji.core.json_file import opened, read_json
from tianji.core.tracer import What
from tianji.core.wording import count_of
from tianji.observe.report.run_reader import refuse_other
from tianji.observe.trace import ENDING, FOLDER
from tianji.observe.trace.format import (
    DTYPE,
    LATEST,
    MAGIC,
    PREFIX,
    Doing,
    Heading,
    Wait,
    heading_from,
)

Rows = npt.NDArray[Any]  # of DTYPE
Times = npt.NDArray[np.float64]  # two rows: when each began, when it ended
MOST_BYTES = 256 << 20  # a file has 120 MB after the longest recording that can be asked for
TOUCHING_SECONDS = 0.03  # a role that was idle is asked again sooner than that

RECORD = "record one with `tianji train CONFIG --trace`, or `exp.trace_seconds` in the config"


@dataclass(frozen=True)
class ProcessTrace:
    """What one file holds."""

    heading: Heading
    rows: Rows  # the whole ones, in order, on the launcher's clock
    since: float  # when the oldest began, if older ones have been overwritten
    note: str  # what was not whole


@dataclass(frozen=True)
class RoleTrace:
    """What one role did, in order, on the launcher's clock."""

    name: str
    home: str
    rows: Rows  # of no role but this one; ACT is split into its two halves
    present: float  # seconds from the first thing that it did, or waited for, to the last


@dataclass(frozen=True)
class Trace:
    """What the roles of a run did within one window of time."""

    run: Path
    engine: str
    homes: dict[str, Heading]
    roles: list[RoleTrace]
    began: float
    ended: float
    recorded_at: str
    notes: tuple[str, ...]  # what could not be read, or was not recorded

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return self.ended - self.began


def read(run: Path, seconds: float | None = None) -> Trace:
    """The recordings of a run, or the last `seconds` of them; also while it still trains."""
    refuse_other(run)
    paths = sorted((run / FOLDER).glob(f"*{ENDING}"))
    if not paths:
        raise TianJiError(f"{run} has no trace: {RECORD}")
    recordings: list[ProcessTrace] = []
    notes: list[str] = []
    for path in paths:
        try:
            recordings.append(read_file(path))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            notes.append(f"{path} is left out: {why}")
            continue
        notes += [f"{path}: {note}"] if (note := recordings[-1].note) else []
    recordings = _by_process(recordings)
    if not any(recording.rows.size for recording in recordings):
        why = f" ({'; '.join(notes)})" if notes else ""
        later = "wait a moment, or " if recordings else ""  # a run that has just begun
        raise TianJiError(f"{run / FOLDER} holds nothing to draw{why}: {later}{RECORD}")
    began, ended = _window(recordings, notes, seconds)
    roles = [role for each in recordings for role in _roles(each, began)]
    notes += [f"{role.name} did nothing within this time" for role in roles if not role.rows.size]
    homes = {each.heading.home: each.heading for each in recordings}
    recorded_at = min(heading.recorded_at for heading in homes.values())
    engine = str(read_json(run / "config.json").get("engine", "unknown"))
    return Trace(run, engine, homes, roles, began, ended, recorded_at, tuple(notes))


def _by_process(recordings: list[ProcessTrace]) -> list[ProcessTrace]:
    """One recording for each process, of all its lives if it was replaced."""
    lives: dict[str, list[ProcessTrace]] = {}
    for each in recordings:
        lives.setdefault(each.heading.home, []).append(each)
    return [_joined(several) if len(several) > 1 else several[0] for several in lives.values()]


def _joined(lives: list[ProcessTrace]) -> ProcessTrace:
    rows = np.concatenate([each.rows for each in lives])
    rows = rows[np.argsort(rows["began"], kind="stable")]
    return ProcessTrace(lives[0].heading, rows, max(each.since for each in lives), "")


def _window(
    recordings: list[ProcessTrace], notes: list[str], seconds: float | None
) -> tuple[float, float]:
    """The last `seconds`, or those that all processes had room for."""
    whole = [each for each in recordings if each.rows.size]
    ended = max(float(each.rows["ended"].max()) for each in whole)
    wanted = max(each.heading.seconds for each in whole) if seconds is None else seconds
    began = max(ended - wanted, min(float(each.rows["began"][0]) for each in whole))
    late = max(
        (each for each in whole if each.since < ended), key=lambda each: each.since, default=None
    )
    if late is not None and late.since > began:
        began, home = late.since, late.heading.home
        notes.append(f"{home} had room for the last {ended - began:.3g} s only: these are shown")
    elif seconds is not None and began > ended - seconds:
        notes.append(
            f"--seconds {seconds:g}: only {ended - began:.3g} s were recorded: these are shown"
        )
    return began, ended


def _roles(recording: ProcessTrace, began: float) -> list[RoleTrace]:
    heading, rows = recording.heading, _cut(recording.rows, began)
    each = [join_idling(rows[rows["role"] == i]) for i in range(len(heading.roles))]
    return [
        RoleTrace(name, heading.home, own, _present(before))
        for name, own, before in zip(heading.roles, _idle_together(each), each, strict=True)
    ]


def _present(rows: Rows) -> float:
    return float(rows["ended"].max() - rows["began"].min()) if rows.size else 0.0


def _cut(rows: Rows, began: float) -> Rows:
    """What ended after `began`; what began before is shortened."""
    kept = rows[rows["ended"] > began].copy()
    kept["began"] = np.maximum(kept["began"], began)
    return kept


def read_file(path: Path) -> ProcessTrace:
    """What is whole in one file; ValueError where nothing of it can be read."""
    with opened(path) as file:
        data = file.read(MOST_BYTES)
        file.seek(0)
        later = file.read(PREFIX.size)  # rows may have been overwritten while we read
    if not data.startswith(MAGIC[: len(data)]):
        raise ValueError("it is no recording, or of another version of tianji")
    if len(data) < PREFIX.size:
        raise ValueError(f"{_cut_off(data)} {PREFIX.size} bytes or more before its first row")
    _, written, first, n_text = PREFIX.unpack_from(data)
    if len(data) < first:
        raise ValueError(f"{_cut_off(data)} {first:,} bytes before its first row")
    heading = heading_from(data[PREFIX.size : PREFIX.size + n_text])
    newest = max(int(PREFIX.unpack(later)[1]), written)
    there = np.frombuffer(data, DTYPE, max(0, len(data) - first) // DTYPE.itemsize, first)
    oldest = max(0, newest - heading.capacity + 1)
    places = np.arange(min(there.size, heading.capacity))
    numbers = written - 1 - (written - 1 - places) % heading.capacity  # the newest in each place
    kept = numbers[numbers >= oldest]
    n_numbers = max(0, written - oldest)
    lost = n_numbers - kept.size
    rows = there[np.sort(kept) % heading.capacity]
    sound = _is_sound(rows, len(heading.roles))
    lost += int(np.count_nonzero(~sound))
    rows = _on_one_clock(_split(rows[sound]), heading.offset)
    note = f"{lost:,} of {n_numbers:,} rows are lost: the file is cut off" if lost else ""
    rows = rows[np.argsort(rows["began"], kind="stable")]
    is_full = newest >= heading.capacity and rows.size > 0
    return ProcessTrace(heading, rows, float(rows["began"][0]) if is_full else -np.inf, note)


def _cut_off(data: bytes) -> str:
    return f"it is cut off: it has {count_of(len(data), 'byte')}, and a whole one has"


def _is_sound(rows: Rows, n_roles: int) -> npt.NDArray[np.bool_]:
    kind, what = rows["kind"], rows["what"]
    sound = (kind <= max(Doing)) & (rows["role"] < n_roles)
    sound &= what <= np.where(kind == Doing.IDLE, max(Wait), max(What))
    sound &= (rows["began"] > 0) & (rows["ended"] >= rows["began"]) & (rows["ended"] < LATEST)
    ordered = (rows["number"] >= rows["ended"]) & (rows["version"] >= rows["number"])
    ordered &= rows["version"] < LATEST
    counted = np.isfinite(rows["number"]) & np.isfinite(rows["version"])
    return np.asarray(sound & np.where(kind == Doing.ACT, ordered, counted))


def _split(rows: Rows) -> Rows:
    """Rows of both inference and simulation as two rows."""
    both = rows["kind"] == Doing.ACT
    inference, simulation = rows[both], rows[both]
    simulation["began"], simulation["ended"] = inference["number"], inference["version"]
    for half, kind in ((inference, Doing.INFERENCE), (simulation, Doing.SIMULATION)):
        half["kind"], half["number"], half["version"] = kind, 0, 0
    return np.concatenate([rows[~both], inference, simulation])


def _on_one_clock(rows: Rows, offset: float) -> Rows:
    rows["began"] += offset
    rows["ended"] += offset
    return rows


def join_idling(rows: Rows) -> Rows:
    """The rows of one role, with idling that was written down in pieces in one."""
    if not rows.size:
        return rows
    rows = _one_wait_at_a_time(rows)
    idle = rows["kind"] == Doing.IDLE
    goes_on = np.zeros(rows.size, bool)
    if rows.size > 1:
        same = idle[1:] & idle[:-1] & (rows["what"][1:] == rows["what"][:-1])
        goes_on[1:] = same & (rows["began"][1:] - rows["ended"][:-1] < TOUCHING_SECONDS)
    firsts = np.flatnonzero(~goes_on)
    whole = rows[firsts].copy()
    lasts = np.append(firsts[1:], rows.size) - 1
    whole["ended"] = rows["ended"][lasts]
    return whole


def _one_wait_at_a_time(rows: Rows) -> Rows:
    """Idling begins where the idling before it has ended.

    Only a damaged file has other: there every pause could be cut around every turn of others.
    """
    idle = rows["kind"] == Doing.IDLE
    until = np.maximum.accumulate(np.where(idle, rows["ended"], -np.inf))
    before = np.where(idle, np.append(-np.inf, until[:-1]), -np.inf)
    kept: Rows = rows[rows["ended"] > before]
    kept["began"] = np.maximum(kept["began"], before[rows["ended"] > before])
    return kept


def _idle_together(each: list[Rows]) -> list[Rows]:
    """The rows of each role of a process, idle only while no other role of it works.

    Roles of a process take turns: in the turn of another a role could not work, whatever came.
    """
    working = [_working(rows) for rows in each]
    return [
        _without(rows, [one for j, one in enumerate(working) if j != i])
        for i, rows in enumerate(each)
    ]


def _working(rows: Rows) -> Times:
    """From when to when a role was not idle, bookkeeping between its rows included."""
    if not rows.size:
        return np.zeros((2, 0))
    idle = rows[rows["kind"] == Doing.IDLE]
    began = np.append(rows["began"][0], idle["ended"])
    return np.stack([began, np.append(idle["began"], rows["ended"][-1])])


def _without(rows: Rows, working: list[Times]) -> Rows:
    """The rows of one role, with idling cut around the times that others worked."""
    idle = rows["kind"] == Doing.IDLE
    began, ended = _free(np.concatenate([np.zeros((2, 0)), *working], axis=1))
    first = np.searchsorted(ended, rows["began"][idle], side="right")
    last = np.searchsorted(began, rows["ended"][idle], side="left")
    n_pieces = np.maximum(last - first, 0)
    pieces = np.repeat(rows[idle], n_pieces)
    place = np.arange(pieces.size) + np.repeat(first - (np.cumsum(n_pieces) - n_pieces), n_pieces)
    pieces["began"] = np.maximum(pieces["began"], began[place])
    pieces["ended"] = np.minimum(pieces["ended"], ended[place])
    cut: Rows = np.concatenate([rows[~idle], pieces])
    return cut[np.argsort(cut["began"], kind="stable")]


def _free(working: Times) -> Times:
    """The times before, between and after those that somebody worked."""
    began, ended = working[:, working[0] < working[1]]
    order = np.argsort(began)
    until = np.maximum.accumulate(ended[order])
    free = np.stack([np.append(-np.inf, until), np.append(began[order], np.inf)])
    return free[:, free[0] < free[1]]


def rows_of_wait(rows: Rows, wait: Wait) -> Rows:
    """The rows in which a role waited for one thing."""
    found: Rows = rows[(rows["kind"] == Doing.IDLE) & (rows["what"] == wait)]
    return found
