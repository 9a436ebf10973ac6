"""How fast a split is: the paper's equations 1, 3 and 4, with the costs of a profile.

An actor needs T_sp + T_sd for a trajectory. The learner's process needs T_rv for each one that
comes and, with a replay ratio r, the time of one update for every B_s / r units that have come. Of
the two rates the smaller one is what happens; the other side waits.
"""

from __future__ import annotations

from tianji.planning.costs import (
    DEPTH,
    actor_cost,
    contended_share,
    learner_cost,
    settled_share,
    shared_update_seconds,
)
from tianji.planning.profile import ActorCost, LearnerCost, Profile
from tianji.planning.split import Bound, Prediction, Split

EQUAL = 0.10  # two rates that differ by less than this share count as equal


def predict(profile: Profile, split: Split) -> Prediction:
    """What `split` would do on the machine of `profile`, if it has as many cores."""
    work, actor = profile.work, actor_cost(profile, split.envs)
    learner = learner_cost(profile, split.learner_cores, split.batch)
    units = work.steps * split.envs  # of one trajectory
    making = work.steps * actor.step_seconds + actor.send_seconds  # T_sp + T_sd
    could_produce = _acting(profile, split, split.actors * units / making)

    def busy(share: float) -> float:
        """What comes of actors so busy: when they wait they leave the learner more."""
        _, learning = _taking(profile, split, actor, learner, share)
        return min(1.0, 1.0 / (learning * could_produce))

    receiving, learning = _taking(profile, split, actor, learner, settled_share(busy))
    production = min(could_produce, 1.0 / learning)
    turns = work.alternates or split.one_core
    if turns:
        production = 1.0 / (1.0 / could_produce + learning)
    could_take = 1.0 / learning
    return Prediction(
        production=split.groups * production,
        consumption=split.groups * production * work.ratio,
        could_produce=split.groups * could_produce,
        could_take=split.groups * could_take,
        bound=Bound.TURNS if turns else _bound(could_produce, could_take, receiving > learning / 2),
        staleness=_staleness(profile, split, could_produce < could_take),
        freshness=min(1.0, split.batch / split.pool),
        memory_bytes=_memory(split, actor, learner),
        knee=making / actor.receive_seconds if actor.receive_seconds else float("inf"),
    )


def _acting(profile: Profile, split: Split, free: float) -> float:
    """Steps per second of the actors, who take the weights of every update as they come.

    Of several that came during one step of their environments they take the newest.
    """
    work = profile.work
    updates = work.ratio / (split.batch * work.send_interval)  # for each step made
    most = 1.0 / (split.actors * split.envs)
    return free / (1.0 + free * min(updates, most) * profile.load_seconds)


def _taking(
    profile: Profile, split: Split, actor: ActorCost, learner: LearnerCost, busy: float
) -> tuple[float, float]:
    """Seconds for each step that comes, of receiving and in all, beside actors so `busy`."""
    work = profile.work
    here = split.groups_per_host * (split.learning_cores + split.actors * busy)
    share = contended_share(profile, learner, here - split.learner_cores)
    receiving = share * actor.receive_seconds / (work.steps * split.envs)
    update = shared_update_seconds(
        profile, split.learner_cores, split.batch, split.learners, split.groups_per_host
    )
    updating = share * work.ratio * update / split.batch
    drawing = share * work.ratio * learner.draw_seconds / split.batch
    if split.buffer_alone:
        return receiving + drawing, max(updating, receiving + drawing)
    return receiving, updating + drawing + receiving


def _bound(could_produce: float, could_take: float, receives: bool) -> Bound:
    if abs(could_produce - could_take) <= EQUAL * max(could_produce, could_take):
        return Bound.NONE
    if could_produce < could_take:
        return Bound.SAMPLE
    return Bound.COMMUNICATION if receives else Bound.TRAINING


def _staleness(profile: Profile, split: Split, sample_bound: bool) -> float:
    """Updates from the policy that made a sample to the one that learns from it.

    A trajectory is of the policy that began it. Until it is received everybody sends one, or as
    many as fit into a ring if the learner is the slower side.
    """
    work = profile.work
    if work.alternates:
        return 0.0
    units = work.steps * split.envs
    in_flight = split.actors * units * (1 if sample_bound else DEPTH)
    kept = split.pool - split.batch if work.on_policy else split.pool / 2
    return work.ratio * (in_flight + kept) / split.batch


def _memory(split: Split, actor: ActorCost, learner: LearnerCost) -> int:
    rings = split.actors * DEPTH * actor.trajectory_bytes
    group = split.learners * learner.memory_bytes + split.actors * actor.memory_bytes + rings
    return split.groups * group
