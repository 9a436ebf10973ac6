"""A trace in figures: what each role spent its time with, and what it waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tianji.core.columns import fitted, wrapped
from tianji.core.wording import count_of, duration
from tianji.observe.trace.flows import rows_of_kind
from tianji.observe.trace.format import Doing, Wait
from tianji.observe.trace.trace_reader import RoleTrace, Rows, Trace, rows_of_wait
from tianji.roles.role_specs import Kind, kind_of

KINDS = (
    Doing.INFERENCE,
    Doing.SIMULATION,
    Doing.UPDATE,
    Doing.SEND,
    Doing.RECEIVE,
    Doing.IDLE,
)
WAITS = {
    Wait.WEIGHTS: "weights: update -> inference",
    Wait.ACTION: "an action: inference -> simulation",
    Wait.TRAJECTORIES: "trajectories: simulation -> update",
    Wait.BALANCE: "the balance: as far ahead as it may be",
    Wait.LEARNERS: "gradients of the other learners",
    Wait.GROUPS: "parameters of the other groups",
}
ALWAYS = (Wait.WEIGHTS, Wait.ACTION, Wait.TRAJECTORIES, Wait.BALANCE)  # also where nobody did
OF = (Kind.ACTOR, Kind.BUFFER, Kind.LEARNER)
N_GAPS = 5


@dataclass(frozen=True)
class Gap:
    """Time in which a role, or a whole process, did nothing."""

    whose: str
    began: float  # since the window began
    seconds: float
    why: str


def share(role: RoleTrace, kind: Doing) -> float:
    """Of the time that a role was there, what it spent with one kind of thing."""
    return _seconds(rows_of_kind(role.rows, kind)) / (role.present or 1.0)


def waiting(role: RoleTrace, wait: Wait) -> float:
    """Of the time that a role was there, how much of it it waited for one thing."""
    return _seconds(rows_of_wait(role.rows, wait)) / (role.present or 1.0)


def waiting_of(trace: Trace, kind: Kind, wait: Wait) -> float | None:
    """The mean over all roles of a kind; None if there are none."""
    shares = [waiting(role, wait) for role in _of(trace, kind)]
    return float(np.mean(shares)) if shares else None


def gaps_of(trace: Trace, n: int = N_GAPS) -> list[Gap]:
    """The longest ones: of a role that was idle, or of a process of which nothing is known."""
    found = [gap for role in trace.roles for gap in _idle(role, trace)]
    found += [gap for home in trace.homes for gap in _silent(home, trace)]
    return sorted(found, key=lambda gap: -gap.seconds)[:n]


def describe(trace: Trace, width: int | None = None) -> str:
    """All of it, for people."""
    n_rows = sum(role.rows.size for role in trace.roles)
    title = (
        f"the last {trace.seconds:.3g} s of what {trace.run} has recorded since "
        f"{trace.recorded_at}: engine {trace.engine}, {count_of(n_rows, 'span')}"
    )
    roles = [["role", *(kind.word for kind in KINDS), "other"], *map(_row, _shown(trace))]
    waits = [["idle, waiting for", *(f"{k.word}s" for k in OF)], *_waits(trace)]
    lines = [
        *wrapped(title, width, indent=2),
        "",
        *fitted(roles, width, least=("other", "receive", "send")),
        "",
        *fitted(waits, width),
    ]
    if gaps := gaps_of(trace):
        rows = [_gap(gap) for gap in gaps]
        lines += ["", *fitted([["longest gaps", "at", "", ""], *rows], width, (2, 3))]
    return "\n".join(lines)


def _shown(trace: Trace) -> list[RoleTrace]:
    return [role for role in trace.roles if role.rows.size]


def _row(role: RoleTrace) -> list[str]:
    shares = [share(role, kind) for kind in KINDS]
    return [role.name, *map(_percent, shares), _percent(max(0.0, 1.0 - sum(shares)))]


def _waits(trace: Trace) -> Iterator[list[str]]:
    for wait, words in WAITS.items():
        means = [waiting_of(trace, kind, wait) for kind in OF]
        zero = "-" if wait is Wait.ACTION else "0.0 %"  # one row is both: no wait is recorded
        if wait in ALWAYS or any(waiting(role, wait) for role in trace.roles):
            cells = ["" if mean is None else _percent(mean, zero) for mean in means]
            yield [f"{wait.dependency:<5}{words}", *cells]


def _gap(gap: Gap) -> list[str]:
    return [duration(gap.seconds), f"{gap.began:.3f} s", gap.whose, gap.why]


def _idle(role: RoleTrace, trace: Trace) -> Iterator[Gap]:
    for row in rows_of_kind(role.rows, Doing.IDLE):
        at, seconds = float(row["began"]) - trace.began, float(row["ended"] - row["began"])
        yield Gap(role.name, at, seconds, Wait(int(row["what"])).words)


def _silent(home: str, trace: Trace) -> Iterator[Gap]:
    """Holes between the rows of all roles of a process."""
    parts = [role.rows for role in trace.roles if role.home == home and role.rows.size]
    if not parts:
        return
    rows = np.concatenate(parts)
    rows = rows[np.argsort(rows["began"], kind="stable")]
    until = np.maximum.accumulate(rows["ended"])[:-1]
    holes = rows["began"][1:] - until
    longest = np.argsort(-holes)[:N_GAPS]
    for place in longest[holes[longest] > 0]:  # below 0 where two roles waited at once
        at, seconds = float(until[place]) - trace.began, float(holes[place])
        yield Gap(home, at, seconds, "nothing recorded: bookkeeping, a checkpoint, or no core")


def _of(trace: Trace, kind: Kind) -> list[RoleTrace]:
    return [role for role in _shown(trace) if kind_of(role.name) is kind]


def _seconds(rows: Rows) -> float:
    return float((rows["ended"] - rows["began"]).sum())


def _percent(share: float, zero: str = "-") -> str:
    return f"{100 * share:.1f} %" if share else zero
