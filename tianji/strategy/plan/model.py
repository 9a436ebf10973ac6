"""How fast a split is: the paper's equations 1, 3 and 4, with the costs of a profile.

An actor needs T_sp + T_sd for a trajectory. The learner's process needs T_rv for each one that
comes and, with a replay ratio r, the time of one update for every B_s / r units that have come. Of
the two rates the smaller one is what happens; the other side waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from tianji.core.balance import slack_for
from tianji.strategy.plan.costs import (
    Turn,
    acted_for_seconds,
    actor_cost_at,
    contended_share,
    learner_cost_at,
    settled_share,
    share_in_turns,
    shared_update_seconds,
)
from tianji.strategy.plan.profile import ActorCost, LearnerCost, Profile
from tianji.strategy.plan.split import Bound, Prediction, Split, Taking

EQUAL = 0.10  # two rates that differ by less than this share count as equal


def predict(profile: Profile, split: Split) -> Prediction:
    """What `split` would do on the machine of `profile`, if it has as many cores."""
    work, actor = profile.work, actor_cost_at(profile, split.envs)
    learner = learner_cost_at(profile, split.learner_cores, split.batch)
    measured, cores = _taking(profile, split, actor, learner), profile.machine.cores
    share = _share(profile, split, actor, learner)
    costs = _trajectory(profile, split, actor, share)
    could_produce = _acting(profile, split, costs)

    def beside(busy: float) -> Taking:
        """What is left of the measured costs: actors that wait leave the learner more."""
        acting = work.acting_cores(split.actors)
        here = split.groups_per_host * (split.learning_cores + acting * busy)
        return measured.times(contended_share(cores, learner, here - split.learner_cores))

    if work.alternates:
        taking = measured.times(share)
    else:
        taking = beside(settled_share(lambda busy: 1.0 / (beside(busy).whole * could_produce)))
    could_take = 1.0 / taking.whole
    uneven = profile.unevenness
    production = lesser(
        could_produce,
        uneven * could_produce / math.sqrt(split.actors),
        could_take,
        uneven * could_take,
    )
    in_turns = work.alternates or work.slackless or split.one_core
    if in_turns:
        production = 1.0 / (1.0 / could_produce + taking.whole)
    return Prediction(
        production=split.groups * production,
        consumption=split.groups * production * work.ratio,
        could_produce=split.groups * could_produce,
        could_take=split.groups * could_take,
        bound=Bound.TURNS
        if in_turns
        else _bound(could_produce, could_take, costs.bound, taking.bound),
        staleness=_staleness(profile, split, could_produce < could_take),
        freshness=min(1.0, split.batch / split.pool),
        memory_bytes=_memory(profile, split, actor, learner),
        knee=costs.knee,
    )


@dataclass(frozen=True)
class TrajectoryCosts:
    """The three times of equation 1, of one trajectory."""

    making: float  # T_sp
    sending: float  # T_sd
    receiving: float  # T_rv
    acting: float = 0.0  # of an inference role, for one of each actor

    @property
    def each(self) -> float:
        """Seconds in which every actor has made one."""
        return max(self.making + self.sending, self.acting)

    @property
    def bound(self) -> Bound:
        """What keeps actors from making more: who acts for them, or they themselves."""
        return Bound.SAMPLE if self.each > self.acting else Bound.INFERENCE

    @property
    def knee(self) -> float:
        """N_A*: actors beyond which receiving takes all of the time."""
        return (self.making + self.sending) / self.receiving if self.receiving else math.inf


def trajectory_costs(profile: Profile, split: Split) -> TrajectoryCosts:
    """Equation 1 as this split has it."""
    actor = actor_cost_at(profile, split.envs)
    learner = learner_cost_at(profile, split.learner_cores, split.batch)
    return _trajectory(profile, split, actor, _share(profile, split, actor, learner))


def _trajectory(
    profile: Profile, split: Split, actor: ActorCost, share: float = 1.0
) -> TrajectoryCosts:
    """Of this actor, where all but sending takes a share of the measured time."""
    steps = share * profile.work.steps
    making = steps * (actor.step_seconds + profile.waking_seconds)
    receiving = share * actor.receive_seconds
    acting = 0.0
    if profile.work.inference:
        acting = steps * acted_for_seconds(profile, split.actors, split.envs)
        acting += split.actors * actor.send_seconds
    return TrajectoryCosts(making, actor.send_seconds, receiving, acting)


def _share(profile: Profile, split: Split, actor: ActorCost, learner: LearnerCost) -> float:
    """What is left of the measured costs of a group that takes turns, beside the others.

    Where roles work at the same time, actors cost what was measured.
    """
    if not profile.work.alternates:
        return 1.0
    learning = _taking(profile, split, actor, learner).whole
    acting = 1.0 / _acting(profile, split, _trajectory(profile, split, actor))
    busy = profile.work.acting_cores(split.actors)
    turns = Turn(learning, split.learning_cores), Turn(acting, busy)
    return share_in_turns(profile.machine.cores, learner, split.groups_per_host - 1, *turns)


def lesser(a: float, a_deviation: float, b: float, b_deviation: float) -> float:
    """The mean of the smaller of two rates that vary from one group to another.

    Two that are equal on average are hardly ever equal in a group, and the smaller one counts. By
    Clark's formula for normal distributions.
    """
    apart = math.hypot(a_deviation, b_deviation)
    if not apart:
        return min(a, b)
    normal, x = NormalDist(), (b - a) / apart
    return a * normal.cdf(x) + b * normal.cdf(-x) - apart * normal.pdf(x)


def _acting(profile: Profile, split: Split, costs: TrajectoryCosts) -> float:
    """Steps per second of the actors, who take the weights of every update as they come.

    Of several that came during one step of their environments they take the newest.
    """
    work = profile.work
    free = split.actors * work.steps * split.envs / costs.each
    updates = work.ratio / (split.batch * work.send_interval)  # for each step made
    most = 1.0 / (split.actors * split.envs)
    return free / (1.0 + free * min(updates, most) * profile.load_seconds)


def _taking(profile: Profile, split: Split, actor: ActorCost, learner: LearnerCost) -> Taking:
    """Seconds for each step that comes, as measured."""
    work = profile.work
    update = shared_update_seconds(
        profile, split.learner_cores, split.batch, split.learners, split.groups_per_host
    )
    return Taking(
        updating=work.ratio * update / split.batch,
        drawing=work.ratio * learner.draw_seconds / split.batch,
        receiving=actor.receive_seconds / (work.steps * split.envs),
        buffer_alone=split.buffer_alone and not work.alternates,  # in turns it waits, too
    )


def _bound(could_produce: float, could_take: float, making: Bound, taking: Bound) -> Bound:
    if abs(could_produce - could_take) <= EQUAL * max(could_produce, could_take):
        return Bound.NONE
    return making if could_produce < could_take else taking


def _staleness(profile: Profile, split: Split, sample_bound: bool) -> float:
    """Updates from the policy that made a sample to the one that learns from it.

    A trajectory is of the policy that began it. Until it is received everybody sends one, or as
    many as fit into a ring if the learner is the slower side; a buffer by itself then has more.
    """
    work = profile.work
    if work.alternates:
        return 0.0
    units = work.steps * split.envs
    in_flight = split.actors * units * (1 if sample_bound else split.depth(work))
    if split.buffer_alone and not (sample_bound or work.slackless):
        in_flight += slack_for(split.batch, work.ratio, split.actors * units, work.on_policy)
    kept = split.pool - split.batch if work.on_policy else split.pool / 2
    return work.ratio * (in_flight + kept) / split.batch


def _memory(profile: Profile, split: Split, actor: ActorCost, learner: LearnerCost) -> int:
    """Of all processes, rings and stores.

    A buffer by itself was not measured: it loads what an actor loads, and so counts as one. Who
    acts for actors was measured together with one, and each of them counts as both.
    """
    processes = profile.work.acting_cores(split.actors) + split.buffer_alone
    acting = processes * actor.memory_bytes
    rings = split.actors * split.depth(profile.work) * actor.trajectory_bytes
    learning = split.learners * learner.memory_bytes
    return split.groups * (acting + rings + learning + profile.work.store_bytes)
