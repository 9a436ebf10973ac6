"""What a role costs by a profile, between and beyond the sizes that were measured.

The model of a plan and the simulator ask the same questions, and have to get the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tianji.strategy.plan.profile import ActorCost, LearnerCost, Profile

HALVINGS = 12  # of a range: to a share of 0.0002
EXCHANGE_SECONDS = 15e-6  # of learners that share a batch: a message of no size (docs/groups.md)
EXCHANGE_BYTES_PER_SECOND = 7e9  # and of a large one


@dataclass(frozen=True)
class Turn:
    """What a group does while the rest of it waits."""

    seconds: float  # or any share of them
    cores: int


def actor_cost_at(profile: Profile, envs: int) -> ActorCost:
    """The cost of an actor with so many environments, on the line through the two nearest."""
    low, high = _around([cost.envs for cost in profile.actors], envs)
    a, b = profile.actors[low], profile.actors[high]

    def at(x: float, y: float) -> float:
        return _line(a.envs, x, b.envs, y, envs)

    step = at(a.step_seconds, b.step_seconds)
    return ActorCost(
        envs=envs,
        step_seconds=step,
        send_seconds=at(a.send_seconds, b.send_seconds),
        receive_seconds=at(a.receive_seconds, b.receive_seconds),
        trajectory_bytes=round(at(a.trajectory_bytes, b.trajectory_bytes)),
        memory_bytes=_process_bytes(a.envs, a.memory_bytes, b.envs, b.memory_bytes, envs),
        act_seconds=None
        if a.act_seconds is None or b.act_seconds is None
        else min(step, at(a.act_seconds, b.act_seconds)),  # of which it is a part
        computing=max(a.computing, b.computing),
        one_pass=a.one_pass,
    )


def acted_for_seconds(profile: Profile, actors: int, envs: int) -> float:
    """What an inference role needs for one step of each of so many actors, who all wait for it.

    Policies that share a network act in one pass, which takes as long as for one actor with all
    the environments.
    """
    cost = actor_cost_at(profile, envs)
    acting = actors * (cost.act_seconds or 0.0)
    if not cost.one_pass:
        return acting
    return min(acting, actor_cost_at(profile, actors * envs).act_seconds or 0.0)


def learner_cost_at(profile: Profile, cores: int, batch: int) -> LearnerCost:
    """The cost of a learner; more cores than were measured bring nothing that was not measured."""
    counts = sorted({cost.cores for cost in profile.learners})
    nearest = max((n for n in counts if n <= cores), default=counts[0])
    fewest, known = (
        sorted((c for c in profile.learners if c.cores == n), key=lambda c: c.batch)
        for n in (counts[0], nearest)
    )
    cost = _at_batch(known, batch)
    if len(known) == 1 < len(fewest):
        cost = _like(fewest, known[0], batch)
    slower = max(1.0, nearest / cores)
    return replace(cost, cores=cores, update_seconds=slower * cost.update_seconds)


def _at_batch(known: Sequence[LearnerCost], batch: int) -> LearnerCost:
    """A cost on the line through the two nearest batches that were measured with these cores."""
    low, high = _around([cost.batch for cost in known], batch)
    a, b = known[low], known[high]

    def at(x: float, y: float) -> float:
        return _line(a.batch, x, b.batch, y, batch)

    return replace(
        a,
        batch=batch,
        update_seconds=at(a.update_seconds, b.update_seconds),
        draw_seconds=at(a.draw_seconds, b.draw_seconds),
        memory_bytes=_process_bytes(a.batch, a.memory_bytes, b.batch, b.memory_bytes, batch),
        contention=max(a.contention, b.contention),
    )


def _like(fewest: Sequence[LearnerCost], known: LearnerCost, batch: int) -> LearnerCost:
    """A cost of which only one batch was measured, as that of fewer cores goes with the batch.

    Those have a part that no batch makes smaller: in proportion alone more cores would seem to.
    """
    here, there = _at_batch(fewest, batch), _at_batch(fewest, known.batch)

    def scaled(own: float, to: float, since: float) -> float:
        return own * (to / since if since else batch / known.batch)

    return replace(
        known,
        batch=batch,
        update_seconds=scaled(known.update_seconds, here.update_seconds, there.update_seconds),
        draw_seconds=scaled(known.draw_seconds, here.draw_seconds, there.draw_seconds),
    )


def _process_bytes(x0: int, y0: int, x1: int, y1: int, x: int) -> int:
    """Memory of a process: most of it is there whatever its size, so one alone says all."""
    return y0 if x0 == x1 else round(_line(x0, y0, x1, y1, x))


def shared_update_seconds(
    profile: Profile, cores: int, batch: int, learners: int, groups_per_host: int = 1
) -> float:
    """Seconds of one update that so many learners make together, each with a part of the batch.

    After its part each sends the others its gradient, once: PPO's minibatches are not counted. A
    host has one GPU, and its learners slow each other down, be they of one group or several.
    """
    part = learner_cost_at(profile, cores, math.ceil(batch / learners))
    exchanging = (learners - 1) * message_seconds(profile.work.weights_bytes)
    on_gpu = 1 if profile.machine.gpu is None else groups_per_host * learners
    return part.update_seconds * slowdown(part, on_gpu) + exchanging


def slowdown(learner: LearnerCost, n: int) -> float:
    """Times as long as alone that an update takes where `n` learners share a GPU.

    On the lines between what was measured. One that is busy for all of an update takes n times as
    long, and no more; from the most learners that were measured on it is expected to be.
    """
    known = ((1, 1.0), *learner.on_gpu)
    most, times = known[-1]
    if n < most:
        i = next(i for i, (m, _) in enumerate(known) if m > n)
        (x0, y0), (x1, y1) = known[i - 1], known[i]
        times = y0 + (y1 - y0) * (n - x0) / (x1 - x0)
    else:
        times *= n / most
    return min(float(n), max(1.0, times))


def message_seconds(n_bytes: int) -> float:
    """What it takes to give another learner on this host so much."""
    return EXCHANGE_SECONDS + n_bytes / EXCHANGE_BYTES_PER_SECOND


def contended_share(cores: int, learner: LearnerCost, busy_cores: float) -> float:
    """The share of its cost that a learner has beside so many busy cores of its host's.

    Costs are those beside cores that are all busy: where actors wait, it is faster than that.
    Threads that wait for each other suffer most, so it may differ with the number of cores.
    """
    load = min(1.0, busy_cores / max(1, cores - learner.cores))
    return (1.0 + load * (learner.contention - 1.0)) / learner.contention


def share_in_turns(
    cores: int, learner: LearnerCost, n_others: int, learning: Turn, acting: Turn
) -> float:
    """The same of a whole group that takes turns, beside others of its kind.

    Its own members were measured together or one after the other, as they work.
    """
    seconds = learning.seconds + acting.seconds
    busy = (learning.seconds * learning.cores + acting.seconds * acting.cores) / seconds
    return contended_share(cores, learner, n_others * busy)


def settled_share(found: Callable[[float], float]) -> float:
    """The share of the time that actors are busy, where it depends on itself.

    `found` says what comes of a share: the busier actors are, the slower is the learner and the
    more they are held back, so it falls, and halving finds where it says what it was told.
    """
    low, high = 0.0, 1.0
    if found(high) >= high:
        return high
    for _ in range(HALVINGS):
        busy = (low + high) / 2
        low, high = (busy, high) if found(busy) > busy else (low, busy)
    return (low + high) / 2


def _around(sizes: Sequence[int], wanted: int) -> tuple[int, int]:
    """The places of the two measured sizes whose line is followed; the same one twice if alone."""
    above = next((i for i, size in enumerate(sizes) if size >= wanted), len(sizes) - 1)
    if sizes[above] == wanted or len(sizes) == 1:
        return above, above
    return max(above - 1, 0), max(above, 1)


def _line(x0: int, y0: float, x1: int, y1: float, x: int) -> float:
    """A cost at x; in proportion to x where only one is known, never below zero."""
    if x0 == x1:
        return y0 * x / x0
    return max(y0 + (y1 - y0) * (x - x0) / (x1 - x0), min(y0, y1) * min(1.0, x / x0))
