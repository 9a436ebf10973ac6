"""What limits a run, in one sentence, and what the next actor or core would bring.

The paper's three kinds (section 4.3.3): a run is sample-bound where the learner waits for actors,
training-bound where actors wait for the learner, and communication-bound where both wait although
each could do more, or the learner waits for a buffer that is busy all the time: then what lies
between them is the limit. A learner that never waits is the limit itself, however busy its buffer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from tianji.core.balance import usual_lag
from tianji.core.counts import Count
from tianji.core.wording import count_of
from tianji.job.job import Job
from tianji.observe.capacity import Capacity, capacity
from tianji.observe.rates import Counts, TimeShare, at_start, homes_in, shares, updates_since
from tianji.observe.watch import Progress
from tianji.roles.role_specs import Kind, kind_of

LOW_ESS = 0.5  # share of effective samples below which old ones cost more than they save
ENOUGH_IDLE = 0.15  # share of idle time from which a role counts as waiting for another
BUSY_BUFFER = 0.85  # share of its time from which the buffer itself is what is waited for

LONG_UPDATE = 0.002  # seconds; a shorter update gains nothing by threads


def takes_turns(job: Job, engine: str) -> bool:
    """Whether acting and learning alternate by design, so that idle time is no fault of either."""
    return engine == "local" or job.sampling.per_version is not None


def bottleneck(
    progress: Progress, job: Job, engine: str = "process", since: Counts | None = None
) -> str:
    """One sentence on what has limited the run `since` then, or since it began."""
    if not updates_since(progress):
        return _before_learning(progress, job)
    names = [name for name in progress.counts if name not in progress.lost]
    before = at_start(progress) if since is None else since
    homes = homes_in(job, engine)
    spent = shares(before, progress.counts, homes)
    if takes_turns(job, engine):
        found = _turns({name: spent[name] for name in names}, job, engine)
    elif not (found := _acts_all_the_time(spent)):
        found = _who_waits(capacity(before, progress.counts, homes, job.ratio, names), job)
    ess = progress.least_ess if since is None else progress.ess
    return (found + _drift(ess, job)).replace("%", " %")


def _drift(ess: float | None, job: Job) -> str:
    """What to do where the policy has gone so far from those that acted that samples are lost."""
    if ess is None or ess >= LOW_ESS:
        return ""
    lower = " or ".join(f"hyp.{name}" for name in _to_lower(job))
    return (
        f"; old samples count as {ess:.0%} as many new ones: raise hyp.batch_size, or lower "
        f"{lower} (docs/staleness.md)"
    )


def _to_lower(job: Job) -> list[str]:
    """Keys that would make samples newer, or the policy change less, if they can be lowered."""
    hyp, sampling = asdict(job.task.hyp), job.sampling
    usual = usual_lag(job.task.n_actors, sampling.batch)
    can = {
        "buffer_size": sampling.once and sampling.freshness < 1,
        "max_lag": sampling.max_lag is not None and sampling.max_lag > usual,
        "update_step": hyp.get("update_step", 1) > 1,
        "lr": True,
    }
    return [name for name, possible in can.items() if possible]


def _before_learning(progress: Progress, job: Job) -> str:
    if progress.started_at is None:
        ready = sum(1 for counts in progress.counts.values() if counts[Count.READY_AT])
        return f"starting: {ready} of {len(progress.counts)} roles are ready"
    warmup = job.sampling.warmup * job.config.n_groups
    if progress.received < warmup:
        return f"warming up: {progress.received:,} of {warmup:,} samples"
    return f"waiting: no update {'since the resume' if progress.updates else 'yet'}"


def _turns(spent: Mapping[str, TimeShare], job: Job, engine: str) -> str:
    learner, actors = _busy(spent, Kind.LEARNER), _busy(spent, Kind.ACTOR)
    per_group = (job.config.n_learners, job.task.n_actors) if engine == "local" else (1, 1)
    learning = learner * per_group[0]
    acting = actors * per_group[1] + _busy(spent, Kind.INFERENCE)  # in turns, too
    whole = learning + acting or 1.0  # each counts the moments in which it wakes the other
    return f"in turns: {learning / whole:.0%} learning, {acting / whole:.0%} acting"


def _busy(spent: Mapping[str, TimeShare], kind: Kind) -> float:
    chosen = [share.busy for name, share in spent.items() if kind_of(name) is kind]
    return sum(chosen) / max(1, len(chosen))


def _acts_all_the_time(spent: Mapping[str, TimeShare]) -> str:
    """That an inference role is what both sides wait for, if it is."""
    busy = max((s.busy for name, s in spent.items() if kind_of(name) is Kind.INFERENCE), default=0)
    if busy <= BUSY_BUFFER:
        return ""
    return (
        f"inference-bound: the inference role is busy {busy:.0%}; without actor_cfg.inference "
        "every actor acts on a core of its own, and a GPU acts faster (actor_cfg.device)"
    )


def _who_waits(found: Capacity, job: Job) -> str:
    learner, actors = found.learner_idle, found.actors_idle
    between = actors > ENOUGH_IDLE or found.buffer_busy > BUSY_BUFFER
    if learner > ENOUGH_IDLE and between:
        who = f"communication-bound: the learner idles {learner:.0%} and the actors {actors:.0%}"
        return _said(who, _gain_between(found))
    if learner > ENOUGH_IDLE:
        return _said(f"sample-bound: the learner idles {learner:.0%}", _gain_of_an_actor(found))
    if actors > ENOUGH_IDLE:
        is_short = 0 < found.update_seconds < LONG_UPDATE
        gain = _gain_of_a_group(found, job) if is_short else _gain_of_a_core(found)
        less = f"a lower replay_ratio would help{' too' * bool(gain)}" if job.ratio > 1 else ""
        return _said(f"training-bound: the actors wait {actors:.0%}", gain, less)
    return f"balanced: the learner idles {learner:.0%}, the actors {actors:.0%}"


def _said(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _worth(what: str, gain: float) -> str:
    """Advice and what it would bring; nothing where that would be nothing."""
    brings = f"{max(0.0, gain):+.0%}"
    return "" if brings == "+0%" else f"{what} {brings}"


def _gain_of_an_actor(found: Capacity) -> str:
    """By what each of them makes, up to what the learner could use."""
    n, made = found.n_awake, found.production
    if found.n_paused >= 1:
        n_paused = round(found.n_paused)
        return f"{count_of(n_paused, 'actor')} {'is' if n_paused == 1 else 'are'} paused"
    if not (n and made and found.learning):
        return "more actors or environments would help"
    gain = min(found.acting * (n + 1) / n, found.learning) / made - 1
    return _worth("one more actor, on a core of its own: about", gain)


def _gain_of_a_core(found: Capacity) -> str:
    """As if updates were divided evenly, and what rides with the learner took as long as ever.

    Up to what the actors could make and the buffer pass on.
    """
    if not (found.acting and found.learning):
        return "more learner cores or fewer actors would help"
    cores = found.threads
    passed = 1 / found.buffer_busy if found.buffer_busy else math.inf
    faster = 1 / (found.riding + (1 - found.riding) * cores / (cores + 1))
    gain = min(faster, found.acting / found.learning, passed) - 1
    return _worth("one more learner core, if one is free: at most", gain)


def _gain_of_a_group(found: Capacity, job: Job) -> str:
    """Where threads would spend an update on each other: as if nothing else were shared."""
    return _worth(
        f"updates of {1e3 * found.update_seconds:.2g} ms gain little by more cores; another group "
        "(global_cfg.group_num), on cores of its own: at most",
        1 / job.config.n_groups,
    )


def _gain_between(found: Capacity) -> str:
    if not (found.acting and found.learning and found.production):
        return "larger trajectories or batches would help"
    gain = min(found.acting, found.learning) / found.production - 1
    return _worth("larger trajectories or batches: at most", gain)
