"""What was simulated, in lines of plain text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tianji.core.columns import fitted, labelled
from tianji.core.wording import count_of, per_second
from tianji.strategy.plan.solver import NOISE
from tianji.strategy.simulate.prediction import Simulated
from tianji.strategy.simulate.simulator import REDUCED_BYTES_PER_SECOND

HEAD = (
    *("cores", "groups", "learners", "actors", "envs", "hosts", "produced/s", "received/s"),
    *("consumed/s", "updates/s", "A idle", "L idle", "link", "staleness", "stale p95", "limit"),
)
LEAST = (  # the first to go where room is scarce; the last ones are what was predicted
    *("received/s", "stale p95", "envs", "updates/s", "learners", "link", "hosts", "staleness"),
    *("produced/s", "L idle", "A idle"),
)


def table(rows: Sequence[Simulated], width: int | None = None) -> str:
    """A line for each layout, and below what is common to all."""
    lines = fitted([HEAD, *map(_cells, rows)], width, left=(-1,), least=LEAST)
    notes = list(_notes(rows))
    size = max(len(label) for label, _ in notes) + 2
    return "\n".join([*lines, "", *(labelled(*note, width, size) for note in notes)])


def _cells(row: Simulated) -> tuple[str, ...]:
    layout, idle = row.layout, row.idle
    return (
        f"{row.cores:,}",
        f"{layout.groups:,}",
        f"{layout.learners} x {layout.learner_cores}" + " + B" * layout.buffer_alone,
        *(f"{n:,}" for n in (layout.actors, row.envs, layout.hosts)),
        *map(per_second, (row.production, row.receiving, row.consumption, row.updates)),
        *(_percent(share) for share in (idle.actors, idle.learner, row.link)),
        f"{row.staleness.mean:,.1f}",
        f"{row.staleness.p95:,.0f}",
        row.limit.value,
    )


def _notes(rows: Sequence[Simulated]) -> Iterator[tuple[str, str]]:
    """What a column has no room for."""
    first, last = rows[0], rows[-1]
    yield (
        "columns",
        "learners (x cores of each; B: a core of the buffer's) and actors: of one group; envs: of "
        "one actor; A, L idle and link: % of the time of actors, learner and the link to it",
    )
    fewer = [row for row in rows if row.offered is not None and row.cores < row.offered]
    if fewer:
        words = ", ".join(f"{row.cores:,} of {row.offered:,}" for row in fewer)
        yield (
            "cores used",
            f"{words}; groups are alike, and cores that make less than {100 * NOISE:g} % more are "
            "left over",
        )
    if not math.isinf(first.knee):
        yield "equation 1", f"N_A* = {first.knee:,.1f} actors, for a buffer that only receives"
    for row in dict.fromkeys((first, last)):
        yield count_of(row.cores, "core"), _waits(row)
    if last.layout.groups > 1:
        yield count_of(last.layout.groups, "group"), _fusing(last)
    if any(row.offered is not None and row.layout.groups > 1 for row in rows):
        yield (
            "groups",
            "as many as make it fastest; a plan has no more than make enough updates each within "
            "exp.train_steps",
        )
    yield "simulated", f"one group of each row, {sum(row.n_events for row in rows):,} events"


def _fusing(row: Simulated) -> str:
    """How often parameters are averaged; where that is rarer than configured, why."""
    limit = "the link to the reducer's host" if row.reducer_link > row.reducer else "the reducer"
    is_rarer = row.fusions * 1.05 < row.fusions_wanted
    return (
        f"{row.fusions:.3g} of {row.fusions_wanted:.3g} fusions/s as configured by "
        f"learner_cfg.send_root_interval{f' ({limit} is the limit)' * is_rarer}; the reducer "
        f"{_percent(row.reducer)} % busy ({REDUCED_BYTES_PER_SECOND / 1e9:g} GB/s, a guess), the "
        f"link to its host {_percent(row.reducer_link)} %"
    )


def _waits(row: Simulated) -> str:
    idle = row.idle
    return (
        f"actors wait {_percent(idle.weights)} % for weights (I), {_percent(idle.action)} % for "
        f"actions (II), {_percent(idle.room)} % held back; learner "
        f"{_percent(idle.trajectories)} % for trajectories (III); first update after "
        f"{row.warmup_seconds:.3g} s"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"
