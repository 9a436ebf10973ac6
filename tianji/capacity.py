"""What actors and learners could do if nothing held them up, from two readings of their counters.

TR_A and TR_L of the paper's equations 3 and 4, measured in a run that goes on: what was done over
the time that it took. Time in which a role had nothing to do, or was told to rest, does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tianji.counts import Count
from tianji.rates import SPENT, Counts, shares
from tianji.roster import Kind, kind_of


@dataclass(frozen=True)
class Capacity:
    """Of some roles over an interval; rates are in environment steps per second."""

    acting: float = 0.0  # TR_A: the actors' together, as far as they were awake
    learning: float = 0.0  # TR_L: the learners' together, by the replay ratio
    production: float = 0.0  # what was made indeed
    n_awake: float = 0.0  # actors, each by the share of the time that it was awake
    n_paused: float = 0.0
    actors_idle: float = 0.0  # share of the time that they were awake
    learner_idle: float = 0.0
    buffer_busy: float = 0.0
    threads: int = 1  # of all learners
    update_seconds: float = 0.0


def capacity(
    before: Counts,
    after: Counts,
    homes: Mapping[str, str],
    ratio: float,
    names: Collection[str],
) -> Capacity:
    """Of the roles called `names`; `ratio` samples are consumed per step.

    What an actor makes per busy second is taken over all of them: one that had to wait all the time
    could have worked like the others.
    """
    actors, learners, buffers = (
        [name for name in names if kind_of(name) is kind]
        for kind in (Kind.ACTOR, Kind.LEARNER, Kind.BUFFER)
    )
    since = {name: counts - before[name] for name, counts in after.items()}
    spent = shares(before, after, homes)
    made = worked = production = awake = idle = 0.0
    for name in actors:
        busy, idled, paused = since[name][SPENT].tolist()
        if (seconds := busy + idled + paused) <= 0:
            continue
        produced = float(since[name][Count.PRODUCED])
        made, worked, idle = made + produced, worked + busy, idle + idled
        awake += (busy + idled) / seconds
        production += produced / seconds
    learning, updates, learned = 0.0, 0.0, 0.0
    for name in learners:
        together = [other for other in names if homes[other] == homes[name]]
        busy = float(sum(since[other][Count.BUSY_SECONDS] for other in together))
        learning += float(since[name][Count.CONSUMED]) / busy / ratio if busy > 0 else 0.0
        updates += float(since[name][Count.VERSION])
        learned += float(since[name][Count.BUSY_SECONDS])
    return Capacity(
        awake * made / worked if worked else 0.0,
        learning,
        production,
        awake,
        len(actors) - awake,
        idle / (worked + idle) if worked + idle else 0.0,
        _mean([spent[name].idle for name in learners]),
        _mean([spent[name].busy for name in buffers]),
        max(1, round(sum(float(after[name][Count.THREADS]) for name in learners))),
        learned / updates if updates else 0.0,
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
