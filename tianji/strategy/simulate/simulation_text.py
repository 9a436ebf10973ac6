"""What was simulated, in lines of plain text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from tianji.core.columns import fitted, wrapped
from tianji.core.wording import count_of, per_second
from tianji.strategy.plan.solver import NOISE
from tianji.strategy.simulate.result import Simulated
from tianji.strategy.simulate.simulator import REDUCED_BYTES_PER_SECOND

HEAD = (
    *("cores", "groups", "learners", "actors", "envs", "hosts", "produced/s", "received/s"),
    *("consumed/s", "updates/s", "A idle", "L idle", "link", "staleness", "stale p95", "limit"),
)
LEAST = (  # the first to go where room is scarce; the last ones are what was predicted
    *("received/s", "stale p95", "envs", "updates/s", "learners", "link", "hosts", "staleness"),
    *("produced/s", "L idle", "A idle"),
)
RARER = 1.05  # times that fusions are rarer than configured, from which on it is said


def table(rows: Sequence[Simulated], width: int | None = None, asked: Collection[str] = ()) -> str:
    """A line for each layout, and below what is common to all.

    Where room is scarce, columns that were `asked` for stay, and that of groups goes if there is
    one in every row.
    """
    least = [*["groups"] * all(row.layout.groups == 1 for row in rows), *LEAST]
    least = [name for name in least if name not in asked]
    lines = fitted([HEAD, *(_cells(row) for row in rows)], width, left=(-1,), least=least)
    notes = [line for note in _notes(rows) for line in wrapped(note, width, indent=2)]
    return "\n".join([*lines, "", *notes])


def _cells(row: Simulated) -> tuple[str, ...]:
    layout, idle = row.layout, row.idle
    return (
        f"{row.cores:,}",
        f"{layout.groups:,}",
        f"{layout.learners} x {layout.learner_cores}" + " + B" * layout.buffer_alone,
        f"{layout.actors:,}",
        f"{row.envs:,}",
        f"{layout.hosts:,}",
        *map(per_second, (row.production, row.receiving, row.consumption, row.updates)),
        _percent(idle.actors),
        _percent(idle.learner),
        _percent(row.link),
        f"{row.staleness.mean:,.1f}",
        f"{row.staleness.p95:,.0f}",
        row.limit.value,
    )


def _notes(rows: Sequence[Simulated]) -> list[str]:
    """What a column has no room for."""
    first, last = rows[0], rows[-1]
    alone = ", B: the buffer's" if any(row.layout.buffer_alone for row in rows) else ""
    notes = [
        f"learners (with cores of each{alone}) and actors: of one group; envs: of one actor; "
        "A, L idle and link: % of the time of actors, learner and the link to the learner's host"
    ]
    notes += _idle_cores(rows)
    if not math.isinf(first.knee):
        notes.append(
            f"knee of equation 1: N_A* = (T_sp + T_sd) / T_rv = {first.knee:,.1f} actors, "
            "for a buffer that only receives"
        )
    notes += [
        f"{count_of(row.cores, 'core')}: {_waits(row)}" for row in dict.fromkeys((first, last))
    ]
    if last.layout.groups > 1:
        notes.append(
            f"{last.layout.groups:,} groups: {_fusing(last)}; one group was simulated, the others "
            "are as it is"
        )
    if any(row.offered is not None and row.layout.groups > 1 for row in rows):
        notes.append(
            "groups: as many as make it fastest; a plan has no more than make enough updates each "
            "within exp.train_steps, which is not asked here: it may have fewer for as many cores"
        )
    notes.append(f"simulated: {sum(row.n_events for row in rows):,} events")
    return notes


def _fusing(row: Simulated) -> str:
    """How often parameters are averaged; where that is rarer than configured, why."""
    rate = f"{row.fusions:.3g} fusions/s"
    reducer = f"the reducer {_percent(row.reducer)} % busy"
    reducer += f" ({REDUCED_BYTES_PER_SECOND / 1e9:g} GB/s, a guess)"
    link = f"the link to its host {_percent(row.reducer_link)} %"
    rarer = row.fusions_wanted / row.fusions if row.fusions else math.inf
    if rarer < RARER:
        return f"{rate}, as often as configured; {reducer}, {link}"
    limit = "the link to the reducer's host" if row.reducer_link > row.reducer else "the reducer"
    return (
        f"{rate}, {rarer:,.3g} times rarer than configured (learner_cfg.send_root_interval asks "
        f"for {row.fusions_wanted:,.3g}/s): {limit} is the limit; {reducer}, {link}"
    )


def _idle_cores(rows: Sequence[Simulated]) -> list[str]:
    """Why rows have fewer cores than were asked for."""
    fewer = [row for row in rows if row.offered is not None and row.cores < row.offered]
    if not fewer:
        return []
    words = ", ".join(f"{row.cores:,} of {row.offered:,}" for row in fewer)
    return [
        f"cores used: {words}; groups are alike, and cores that are too few for one more, or would "
        f"make less than {100 * NOISE:g} % more, stay idle"
    ]


def _waits(row: Simulated) -> str:
    idle = row.idle
    return (
        f"actors wait {_percent(idle.weights)} % for weights (I), {_percent(idle.action)} % for "
        f"actions (II), {_percent(idle.room)} % held back; "
        f"learner {_percent(idle.trajectories)} % for trajectories (III); "
        f"first update after {row.warmup_seconds:.3g} s"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
