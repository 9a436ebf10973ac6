"""How fast a split is: the paper's equations 1, 3 and 4, with the costs of a profile.

An actor needs T_sp + T_sd for a trajectory. The learner's process needs T_rv for each one that
comes and, with a replay ratio r, the time of one update for every B_s / r units that have come. Of
the two rates the smaller one is what happens; the other side waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tianji.planning.profile import ActorCost, LearnerCost, Profile
from tianji.planning.split import Bound, Prediction, Split

T = TypeVar("T")

EQUAL = 0.10  # two rates that differ by less than this share count as equal
ROUNDS = 8  # until two answers that depend on each other agree
RING_DEPTH = 2  # trajectories of an actor that may wait for the buffer


def predict(profile: Profile, split: Split) -> Prediction:
    """What `split` would do on the machine of `profile`, if it has as many cores."""
    work, actor = profile.work, actor_cost(profile, split.envs)
    learner = learner_cost(profile, split.learner_cores, split.batch)
    units = work.steps * split.envs  # of one trajectory
    making = work.steps * actor.step_seconds + actor.send_seconds  # T_sp + T_sd
    could_produce, busy = _acting(profile, split, split.actors * units / making), 1.0
    for _ in range(ROUNDS):  # actors that wait leave the learner more of the machine
        receiving, learning = _taking(profile, split, actor, learner, busy)
        production = min(could_produce, 1.0 / learning)
        busy = production / could_produce
    if work.alternates or split.one_core:
        production = 1.0 / (1.0 / could_produce + learning)
    could_take = 1.0 / learning
    return Prediction(
        production=split.groups * production,
        consumption=split.groups * production * work.ratio,
        could_produce=split.groups * could_produce,
        could_take=split.groups * could_take,
        bound=_bound(could_produce, could_take, receiving > learning / 2, work.alternates),
        staleness=_staleness(profile, split, could_produce < could_take),
        freshness=min(1.0, split.batch / split.pool),
        memory_bytes=_memory(split, actor, learner),
        knee=making / actor.receive_seconds if actor.receive_seconds else float("inf"),
    )


def _acting(profile: Profile, split: Split, free: float) -> float:
    """Steps per second of the actors, who take the weights of every update as they come."""
    work = profile.work
    if work.alternates or split.one_core:
        return free
    loads = work.ratio / (split.batch * work.send_interval) * profile.load_seconds
    return free / (1.0 + free * loads)


def _taking(
    profile: Profile, split: Split, actor: ActorCost, learner: LearnerCost, busy: float
) -> tuple[float, float]:
    """Seconds for each step that comes, of receiving and in all, beside actors so `busy`."""
    work = profile.work
    slower = _contention(profile, split, busy)
    receiving = slower * actor.receive_seconds / (work.steps * split.envs)
    updating = slower * work.ratio * learner.update_seconds / (split.batch * split.learners)
    drawing = slower * work.ratio * learner.draw_seconds / split.batch
    if split.buffer_alone:
        return receiving + drawing, max(updating, receiving + drawing)
    return receiving, updating + drawing + receiving


def _contention(profile: Profile, split: Split, busy: float) -> float:
    """The share of its measured cost that a learner has: it was measured among busy cores."""
    if profile.work.alternates:
        return 1.0
    own = split.learners * split.learner_cores + split.buffer_alone
    others = split.groups * (own + split.actors * busy) - split.learner_cores
    load = min(1.0, others / max(1, profile.machine.cores - split.learner_cores))
    return (1.0 + load * (profile.contention - 1.0)) / profile.contention


def _bound(could_produce: float, could_take: float, receives: bool, alternates: bool) -> Bound:
    if not alternates and abs(could_produce - could_take) <= EQUAL * max(could_produce, could_take):
        return Bound.NONE
    if could_produce < could_take:
        return Bound.SAMPLE
    return Bound.COMMUNICATION if receives else Bound.TRAINING


def _staleness(profile: Profile, split: Split, sample_bound: bool) -> float:
    """Updates from the policy that made a sample to the one that learns from it.

    What an actor is writing is half done on average; behind it wait as many trajectories as the
    ring holds if the learner is the slower side, and none if it is the faster one.
    """
    work = profile.work
    if work.alternates:
        return 0.0
    units = work.steps * split.envs
    in_flight = split.actors * units * (0.5 if sample_bound else 0.5 + RING_DEPTH)
    kept = split.pool - split.batch if work.on_policy else split.pool / 2
    return work.ratio * (in_flight + kept) / split.batch


def _memory(split: Split, actor: ActorCost, learner: LearnerCost) -> int:
    rings = split.actors * (RING_DEPTH + 1) * actor.trajectory_bytes
    group = split.learners * learner.memory_bytes + split.actors * actor.memory_bytes + rings
    return split.groups * group


def actor_cost(profile: Profile, envs: int) -> ActorCost:
    """The cost of an actor with `envs` environments, between those that were measured."""
    below, above, share = _between(profile.actors, envs, lambda cost: cost.envs)

    def mixed(of: Callable[[ActorCost], float]) -> float:
        return max(0.0, of(below) + share * (of(above) - of(below)))

    return ActorCost(
        envs=envs,
        step_seconds=mixed(lambda cost: cost.step_seconds) or above.step_seconds,
        send_seconds=mixed(lambda cost: cost.send_seconds),
        receive_seconds=mixed(lambda cost: cost.receive_seconds),
        trajectory_bytes=round(mixed(lambda cost: cost.trajectory_bytes)),
        memory_bytes=round(mixed(lambda cost: cost.memory_bytes)),
    )


def learner_cost(profile: Profile, cores: int, batch: int) -> LearnerCost:
    """The cost of a learner, between those that were measured."""
    sizes = sorted({cost.batch for cost in profile.learners})
    low, high, share = _between(sizes, batch, lambda size: size)
    below, above = _with_cores(profile, cores, low), _with_cores(profile, cores, high)

    def mixed(of: Callable[[LearnerCost], float]) -> float:
        return max(0.0, of(below) + share * (of(above) - of(below)))

    return LearnerCost(
        cores=cores,
        batch=batch,
        update_seconds=mixed(lambda cost: cost.update_seconds) or above.update_seconds,
        draw_seconds=mixed(lambda cost: cost.draw_seconds),
        memory_bytes=round(mixed(lambda cost: cost.memory_bytes)),
    )


def _with_cores(profile: Profile, cores: int, batch: int) -> LearnerCost:
    """The one measured with the most cores that `cores` allow."""
    known = [cost for cost in profile.learners if cost.batch == batch]
    fitting = [cost for cost in known if cost.cores <= cores]
    return max(fitting, key=lambda cost: cost.cores) if fitting else known[0]


def _between(known: Sequence[T], at: float, place: Callable[[T], float]) -> tuple[T, T, float]:
    """The neighbours of `at` among `known`, and how far it is from the first to the second.

    Beyond the last two it goes on in their line: a share above 1, or below 0.
    """
    if len(known) == 1:
        return known[0], known[0], 0.0
    i = next((i for i, each in enumerate(known) if place(each) >= at), len(known) - 1)
    below, above = known[max(i, 1) - 1], known[max(i, 1)]
    return below, above, (at - place(below)) / (place(above) - place(below))
