"""What actors and learners could do if nothing held them up, from two readings of their counters.

TR_A and TR_L of the paper's equations 3 and 4, measured in a run that goes on: what was done over
the time that it took. Time in which a role had nothing to do, or was told to rest, does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tianji.core.counts import SPENT, Count
from tianji.observe.rates import Counts, shares
from tianji.roles.role_specs import Kind, kind_of


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
    batch_seconds: float = 0.0  # of a buffer, for a batch and the trajectories that it came with
    riding: float = 0.0  # share of the learners' processes' busy time that went into others in turn


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
    since = {name: after[name] - before[name] for name in names}
    spent = shares(before, after, homes)

    def total(count: Count, names: Iterable[str]) -> float:
        return sum(float(since[name][count]) for name in names)

    def busy(learner: str) -> tuple[float, float]:
        """Seconds of its process: of roles in turn, and of a buffer in a thread beside them."""
        together = [name for name in names if homes[name] == homes[learner]]
        apart = total(Count.APART_SECONDS, together)
        return total(Count.BUSY_SECONDS, together) - apart, apart

    timed = [name for name in actors if since[name][SPENT].sum() > 0]  # others have not begun
    seconds = {name: float(since[name][SPENT].sum()) for name in timed}
    paused, worked = total(Count.PAUSED_SECONDS, timed), total(Count.BUSY_SECONDS, timed)
    awake = sum(1 - float(since[n][Count.PAUSED_SECONDS]) / seconds[n] for n in timed)
    learned, turns = total(Count.BUSY_SECONDS, learners), sum(busy(name)[0] for name in learners)
    # Of a buffer that works beside the learner, instead of in turns with it, the slower counts.
    used = sum(_over(float(since[name][Count.CONSUMED]), max(busy(name))) for name in learners)
    return Capacity(
        acting=awake * _over(total(Count.PRODUCED, timed), worked),
        learning=used / ratio,
        production=sum(float(since[name][Count.PRODUCED]) / seconds[name] for name in timed),
        n_awake=awake,
        n_paused=len(actors) - awake,
        actors_idle=_over(sum(seconds.values()) - paused - worked, sum(seconds.values()) - paused),
        learner_idle=_mean([spent[name].idle for name in learners]),
        buffer_busy=_mean([spent[name].busy for name in buffers]),
        threads=max(1, round(sum(float(after[name][Count.THREADS]) for name in learners))),
        update_seconds=_over(learned, total(Count.VERSION, learners)),
        batch_seconds=_over(total(Count.BUSY_SECONDS, buffers), total(Count.PUSHED, buffers)),
        riding=_over(turns - learned, turns),
    )


def _over(value: float, whole: float) -> float:
    return value / whole if whole > 0 else 0.0


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
