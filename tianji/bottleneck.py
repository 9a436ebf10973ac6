"""What limits a run, in one sentence, from where the time of its roles went."""

from __future__ import annotations

from collections.abc import Mapping

from tianji.counts import Count
from tianji.job import Job
from tianji.rates import NOTHING, TimeShare, at_start, homes_in, shares, updates_since
from tianji.roster import Kind, kind_of
from tianji.watch import Progress

KINDS = (Kind.LEARNER, Kind.BUFFER, Kind.ACTOR)  # of roles that may wait for each other
ENOUGH_IDLE = 0.15  # share of idle time from which a role counts as waiting for another


def takes_turns(job: Job, engine: str) -> bool:
    """Whether acting and learning alternate by design, so that idle time is no fault of either."""
    return engine == "local" or job.sampling.per_version is not None


def bottleneck(progress: Progress, job: Job, engine: str = "process") -> str:
    """One sentence on what limits the run, from the shares of time that the roles were idle."""
    if not updates_since(progress):
        return _before_learning(progress, job)
    spent = shares(at_start(progress), progress.counts, homes_in(job, engine))
    learner, buffer, actors = (_mean(spent, kind) for kind in KINDS)
    if takes_turns(job, engine):
        per_group = (job.config.n_learners, job.task.n_actors) if engine == "local" else (1, 1)
        learning, acting = learner.busy * per_group[0], actors.busy * per_group[1]
        whole = learning + acting or 1.0  # each counts the moments in which it wakes the other
        words = f"in turns: {learning / whole:.0%} learning, {acting / whole:.0%} acting"
    else:
        words = _who_waits(learner.idle, actors.idle, buffer.busy, job.ratio)
    return words.replace("%", " %")


def _before_learning(progress: Progress, job: Job) -> str:
    if progress.started_at is None:
        ready = sum(1 for counts in progress.counts.values() if counts[Count.READY_AT])
        return f"starting: {ready} of {len(progress.counts)} roles are ready"
    warmup = job.sampling.warmup * job.config.n_groups
    if progress.received < warmup:
        return f"warming up: {progress.received:,} of {warmup:,} samples"
    return f"waiting: no update {'since the resume' if progress.updates else 'yet'}"


def _who_waits(learner_idle: float, actors_idle: float, buffer_busy: float, ratio: float) -> str:
    if min(learner_idle, actors_idle) > ENOUGH_IDLE and buffer_busy > 1.0 - ENOUGH_IDLE:
        return (
            f"buffer-bound: the learner idles {learner_idle:.0%} and the actors {actors_idle:.0%}: "
            "larger batches or trajectories would help"
        )
    if learner_idle > max(ENOUGH_IDLE, actors_idle):
        return (
            f"production-bound: the learner idles {learner_idle:.0%}: "
            "more actors or environments would help"
        )
    if actors_idle > ENOUGH_IDLE:
        return (
            f"consumption-bound: the actors wait {actors_idle:.0%} of the time for the learner: "
            + ("a lower replay_ratio, " if ratio > 1 else "")
            + "more learner cores or fewer actors would help"
        )
    return f"balanced: the learner idles {learner_idle:.0%}, the actors {actors_idle:.0%}"


def _mean(spent: Mapping[str, TimeShare], kind: Kind) -> TimeShare:
    chosen = [share for name, share in spent.items() if kind_of(name) is kind]
    if not chosen:
        return NOTHING
    return TimeShare(*(sum(times) / len(chosen) for times in zip(*chosen, strict=True)))
