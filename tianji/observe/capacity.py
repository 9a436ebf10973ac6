"""What actors and learners could do if nothing held them up, from two readings of their counters.

TR_A and TR_L of the paper's equations 3 and 4, measured in a run that goes on: what was done over
the time that it took. Time in which a role had nothing to do, or was told to rest, does not count.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tianji.core.counts import Count, Vector
from tianji.observe.rates import SPENT, Counts, shares
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
    acted = _acting([since[name] for name in actors])
    updates = sum(float(since[name][Count.VERSION]) for name in learners)
    learned = sum(float(since[name][Count.BUSY_SECONDS]) for name in learners)
    batches = sum(float(since[name][Count.PUSHED]) for name in buffers)
    made = sum(float(since[name][Count.BUSY_SECONDS]) for name in buffers)
    turns = sum(_seconds(name, since, homes).in_turns for name in learners)
    return Capacity(
        acting=acted.n_awake * acted.speed,
        learning=sum(_learning(name, since, homes) for name in learners) / ratio,
        production=acted.production,
        n_awake=acted.n_awake,
        n_paused=len(actors) - acted.n_awake,
        actors_idle=acted.idle,
        learner_idle=_mean([spent[name].idle for name in learners]),
        buffer_busy=_mean([spent[name].busy for name in buffers]),
        threads=max(1, round(sum(float(after[name][Count.THREADS]) for name in learners))),
        update_seconds=_over(learned, updates),
        batch_seconds=_over(made, batches),
        riding=_over(turns - learned, turns),
    )


class _Acting(NamedTuple):
    """What the actors did."""

    speed: float  # steps per busy second of one
    production: float  # steps per second of all
    n_awake: float
    idle: float  # share of the time that they were awake


def _acting(since: list[Vector]) -> _Acting:
    """From what each of them has counted; one that has counted no time yet is left out."""
    timed = [counts for counts in since if counts[SPENT].sum() > 0]
    made = [float(counts[Count.PRODUCED]) for counts in timed]
    seconds = [float(counts[SPENT].sum()) for counts in timed]
    paused = [float(counts[Count.PAUSED_SECONDS]) for counts in timed]
    worked = sum(float(counts[Count.BUSY_SECONDS]) for counts in timed)
    return _Acting(
        speed=_over(sum(made), worked),
        production=sum(n / whole for n, whole in zip(made, seconds, strict=True)),
        n_awake=sum(1 - rest / whole for rest, whole in zip(paused, seconds, strict=True)),
        idle=_over(sum(seconds) - sum(paused) - worked, sum(seconds) - sum(paused)),
    )


def _learning(learner: str, since: Counts, homes: Mapping[str, str]) -> float:
    """Samples per second in which the process of a learner was busy, whoever in it was.

    Of a buffer that works beside the learner, instead of in turns with it, the slower one counts.
    """
    return _over(float(since[learner][Count.CONSUMED]), max(_seconds(learner, since, homes)))


class _Seconds(NamedTuple):
    """In which the process of a learner was busy."""

    in_turns: float  # one role after the other
    apart: float  # a buffer beside them, in a thread of its own


def _seconds(learner: str, since: Counts, homes: Mapping[str, str]) -> _Seconds:
    together = [counts for name, counts in since.items() if homes[name] == homes[learner]]
    apart = sum(float(counts[Count.APART_SECONDS]) for counts in together)
    busy = sum(float(counts[Count.BUSY_SECONDS]) for counts in together)
    return _Seconds(busy - apart, apart)


def _over(value: float, whole: float) -> float:
    return value / whole if whole > 0 else 0.0


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
