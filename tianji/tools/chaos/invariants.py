"""What must hold of a run under faults, each said as one verdict over all that was seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tianji.core.json_file import whole
from tianji.core.status import Status
from tianji.core.wording import count_of, number
from tianji.tools.chaos.processes import Usage
from tianji.tools.chaos.run_under_test import Row
from tianji.tools.chaos.schedule import CHANGING, Fault, Strike

STOP_SECONDS = 10.0  # promised from SIGTERM to the end
GONE_SECONDS = 5.0  # promised from the end of the launcher to that of every other process
MEMORY_ROOM = 0.25  # of what a run took at the first fault, for libraries and what is in flight
MEMORY_ROOM_BYTES = 256 << 20
RATIO_ROOM = 0.01  # of the replay ratio
STATUSES = {  # exit statuses that a status may come with
    Status.SOLVED: (0,),
    Status.FINISHED: (0,),
    Status.STOPPED: (0,),
    Status.INTERRUPTED: (143, 130, 138, 129),
    Status.FAILED: (1, 2),
}


@dataclass(frozen=True)
class Bounds:
    """What follows from the configuration."""

    staleness: float | None  # updates that a sample may be old; None: it has no bound
    ratio: float  # samples consumed per sample received
    batch: float  # samples of an update
    once: bool  # whether each sample is learned from once
    kept_bytes: int  # that store and channels may come to take
    trajectory: int = 0  # steps in one


@dataclass
class FaultOutcome:
    """What came of one fault."""

    strike: Strike
    at: float  # seconds since training began
    updates: int  # by then
    detected: float | None = None  # seconds until the run had seen to it
    back: float | None = None  # seconds until training went on, with everyone there
    undone: str = ""  # why it could not be done
    replaced: int = 0  # processes of which another took the place
    broken: list[str] = field(default_factory=list)  # invariants that did not hold after it


@dataclass(frozen=True)
class Ending:
    """How the run ended once it was told to, or by itself."""

    asked: bool
    exit_status: int
    seconds: float
    summary: dict[str, Any]
    left: Sequence[str] = ()  # processes that outlived their launcher
    segments: Sequence[str] = ()  # names that are still there
    checkpoint: str | None = None  # the newest that is whole


@dataclass
class Record:
    """Everything that was seen of a run."""

    bounds: Bounds
    rows: Sequence[Row]
    usages: Sequence[tuple[float, Usage]]
    trials: list[FaultOutcome]
    ending: Ending | None = None


@dataclass(frozen=True)
class Judgement:
    """Whether one invariant held; None: nothing was seen that could say so."""

    name: str
    held: bool | None
    found: str


def judge(record: Record) -> list[Judgement]:
    """All verdicts; those about the end only when it has come."""
    checks = CHECKS if record.ending is None else (*CHECKS, *LAST_CHECKS)
    return [check(record) for check in checks]


def goes_on(record: Record) -> Judgement:
    """Training went on after every fault, with every process there."""
    done = [trial for trial in record.trials if not trial.undone]
    lost = [trial for trial in done if trial.back is None]
    said = f"after {len(done) - len(lost)} of {count_of(len(done), 'fault')}"
    if lost:
        said += "; not after " + ", ".join(str(each.strike) for each in lost[:3])
    return Judgement("training goes on", not lost if done else None, said)


def memory(record: Record) -> Judgement:
    """Memory stayed below what the run had at the first fault and what it may still fill."""
    taken = [usage.memory_bytes for _, usage in record.usages]
    if not taken:
        return Judgement("memory bounded", None, "not seen")
    most = taken[0] * (1 + MEMORY_ROOM) + record.bounds.kept_bytes + MEMORY_ROOM_BYTES
    said = f"{_mib(max(taken))} MiB at most, {_mib(most)} allowed"
    return Judgement("memory bounded", max(taken) <= most, said)


def staleness(record: Record) -> Judgement:
    """No sample was older than the configuration allows.

    What an actor holds while it is stopped or slow gets as much older as the others go on; what is
    learned from once is dropped then.
    """
    oldest = max((row.staleness for row in record.rows if row.staleness is not None), default=None)
    bound = record.bounds.staleness
    if oldest is None or bound is None:
        said = "no sample was learned from" if oldest is None else f"{number(oldest)}, no bound"
        return Judgement("staleness in its bound", None, said)
    if not record.bounds.once:
        bound += max((_updates_during(trial, record) for trial in record.trials), default=0)
    said = f"{number(oldest)} updates at most, {number(math.floor(bound))} allowed"
    return Judgement("staleness in its bound", oldest <= bound, said)


def _updates_during(trial: FaultOutcome, record: Record) -> int:
    """Updates from a fault to the recovery from it."""
    if trial.strike.fault not in (Fault.STOP, Fault.SLOW, Fault.HANG):
        return 0
    end = trial.at + (trial.back or 0.0) + trial.strike.seconds
    later = [row.updates for row in record.rows if row.at <= end]
    return max(0, max(later, default=0) - trial.updates)


def consumed_once(record: Record) -> Judgement:
    """Samples were learned from as often as the replay ratio says, new ones counted as new once."""
    rows = [row for row in record.rows if row.ratio is not None]
    if not rows:
        return Judgement("no sample twice", None, "no sample was learned from")
    bounds = record.bounds
    most = max(row.ratio or 0.0 for row in rows)
    repeated = [row for row in rows if bounds.once and row.new is not None and row.new < 1.0]
    too_many = [row for row in rows if _over(row, bounds)]
    said = f"{number(most)} learned from per sample received, {number(bounds.ratio)} allowed"
    if repeated:
        said = f"only {100 * (repeated[0].new or 0.0):.1f} % of the samples were new"
    return Judgement("no sample twice", not repeated and not too_many, said)


def _over(row: Row, bounds: Bounds) -> bool:
    """Beyond the ratio by more than a batch and the rounding of the row."""
    assert row.ratio is not None
    consumed = row.updates * bounds.batch
    one_batch = bounds.batch / max(bounds.batch, consumed)
    return row.ratio > bounds.ratio * (1 + RATIO_ROOM + one_batch)


def counted(record: Record) -> Judgement:
    """Steps never fall, and the buffer has no more than actors made."""
    pairs = list(zip(record.rows, record.rows[1:], strict=False))
    fallen = [later.env_steps for row, later in pairs if later.env_steps < row.env_steps]
    said = f"{record.rows[-1].env_steps:,} steps" if record.rows else "no row of metrics"
    if fallen:
        said = f"steps fell to {fallen[0]:,}"
    summary = record.ending.summary if record.ending else {}
    made, received = summary.get("produced"), summary.get("received")
    invented = made is not None and received is not None and received > made
    if invented:
        said = f"{received:,} steps received, {made:,} produced"
    return Judgement("steps counted", not fallen and not invented if pairs else None, said)


def versions(record: Record) -> Judgement:
    """Updates never fall, whoever was lost."""
    pairs = list(zip(record.rows, record.rows[1:], strict=False))
    fallen = [later.updates for row, later in pairs if later.updates < row.updates]
    said = f"{record.rows[-1].updates:,} updates" if record.rows else "no row of metrics"
    if fallen:
        said = f"updates fell {len(fallen)} times, first to {fallen[0]:,}"
    return Judgement("versions monotone", not fallen if pairs else None, said)


def no_false_alarm(record: Record) -> Judgement:
    """Who is only stopped, slow or unable to write is not replaced, nor for what it could mend."""
    mild = [trial for trial in record.trials if trial.strike.fault not in CHANGING]
    wrong = [trial for trial in mild if trial.replaced]
    said = f"nobody was replaced after {count_of(len(mild), 'fault')} that {_cost(mild)} no process"
    if wrong:
        said = "replaced after " + ", ".join(str(trial.strike) for trial in wrong[:3])
    return Judgement("no false alarm", not wrong if mild else None, said)


def _cost(trials: Sequence[FaultOutcome]) -> str:
    return "costs" if len(trials) == 1 else "cost"


def restarts(record: Record) -> Judgement:
    """The summary tells of every process that was replaced."""
    assert record.ending is not None
    replaced = sum(trial.replaced for trial in record.trials)
    told = record.ending.summary.get("restarts")
    if not replaced:
        return Judgement("restarts counted", None, "no process was replaced")
    said = f"{told} in the summary, {replaced} seen"
    return Judgement("restarts counted", isinstance(told, int) and told >= replaced, said)


def nothing_uncounted(record: Record) -> Judgement:
    """What actors sent, buffers have counted, or it lies in the channels still.

    Who is killed between counting a trajectory and sending it leaves one that nobody receives.
    """
    assert record.ending is not None
    missing = record.ending.summary.get("missing_steps")
    if not isinstance(missing, int):
        return Judgement("counts add up", None, "not known: a process had to be killed at the end")
    allowed = record.bounds.trajectory * sum(trial.replaced for trial in record.trials)
    held = abs(missing) <= allowed
    return Judgement("counts add up", held, f"{missing:,} steps uncounted")


def mended(record: Record) -> Judgement:
    """The summary tells of every environment that broke, and nobody learned from NaN."""
    assert record.ending is not None
    found = {Fault.RAISE: "env_restarts", Fault.NAN: "not_finite"}
    summary, done = record.ending.summary, [t for t in record.trials if t.back is not None]
    made = {fault: sum(t.strike.fault is fault for t in done) for fault in found}
    if not any(made.values()):
        return Judgement("mishaps counted", None, "no environment was broken")
    told = {fault: whole(summary.get(key)) or 0 for fault, key in found.items()}
    bad = whole(summary.get("skipped_updates")) or 0
    said = ", ".join(f"{told[fault]} of {made[fault]} {fault}" for fault in found)
    if bad:
        said += f"; {count_of(bad, 'update')} with NaN"
    held = all(told[fault] >= made[fault] for fault in found) and not bad
    return Judgement("mishaps counted", held, said)


def checkpoint(record: Record) -> Judgement:
    """The run left a checkpoint that is whole."""
    assert record.ending is not None
    name = record.ending.checkpoint
    return Judgement("checkpoint whole", name is not None, name or "none is whole")


def nothing_left(record: Record) -> Judgement:
    """No process and no shared memory outlived the run."""
    assert record.ending is not None
    left = [*record.ending.left, *record.ending.segments]
    said = ", ".join(left[:5]) if left else "no process, no shared memory"
    return Judgement("nothing left behind", not left, said)


def exit_status(record: Record) -> Judgement:
    """The run ended as it was told, in time, and its status says how."""
    ending = record.ending
    assert ending is not None
    status = ending.summary.get("status")
    said = f"{ending.exit_status}, {status}, {ending.seconds:.1f} s after it was told to end"
    if not ending.asked:
        said = f"{ending.exit_status}, {status}: it ended before it was told to"
    known = status in list(Status) and ending.exit_status in STATUSES.get(Status(status), ())
    in_time = not ending.asked or ending.seconds <= STOP_SECONDS
    return Judgement("exit status true", known and in_time, said)


Check = Callable[[Record], Judgement]
CHECKS: tuple[Check, ...] = (
    goes_on,
    memory,
    staleness,
    consumed_once,
    counted,
    versions,
    no_false_alarm,
)
LAST_CHECKS: tuple[Check, ...] = (
    nothing_uncounted,
    restarts,
    mended,
    checkpoint,
    nothing_left,
    exit_status,
)


def _mib(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:,.0f}"
