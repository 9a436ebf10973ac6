"""What else is measured of learners: larger batches, and several that share a GPU."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from tianji.strategy.plan.costs import contended_share
from tianji.strategy.plan.profile import LearnerCost
from tianji.strategy.probe.answers import learner_cost
from tianji.strategy.probe.child_handle import OutOfMemory
from tianji.strategy.probe.probe_children import Crew
from tianji.strategy.probe.variants import enlarged

LARGER = 4  # times the batch that is measured beside the configured one


def with_larger_batches(crew: Crew, usual: LearnerCost, pause: float) -> list[LearnerCost]:
    """The cost of one core with larger batches; nothing where none is possible, or no time.

    Between both is a line: what an update costs however small its batch, and what a sample.
    """
    config, hand = enlarged(crew.job, LARGER), crew.learners[0]
    if config is None or crew.time.is_late(times=LARGER):
        return []
    try:
        answer = crew.learning(hand, pause, config)
    except OutOfMemory:
        return []
    alone = learner_cost(hand.threads, LARGER * usual.batch, answer)
    times = usual.contention
    return [
        replace(
            alone,
            update_seconds=max(usual.update_seconds, times * alone.update_seconds),
            draw_seconds=times * alone.draw_seconds,
            contention=times,
        )
    ]


def sharing_a_gpu(crew: Crew, usual: LearnerCost, pause: float) -> tuple[tuple[int, float], ...]:
    """How much longer an update takes where several learners share the GPU.

    A GPU is busy for a part of an update only, and what several of them compute fits in between
    or does not: nothing but having them learn at the same time tells.
    """
    found = list[tuple[int, float]]()
    for n in crew.on_gpu:
        if crew.time.is_late():
            break
        try:
            answers = crew.sharing(n, pause)
        except OutOfMemory:
            continue  # fewer of them may fit
        took = fmean(crew.cost(crew.single[0], answer).update_seconds for answer in answers)
        share = contended_share(len(crew.cores), usual, n - 1)  # as busy cores, they count anyway
        found.append((n, max(1.0, took / (share * usual.update_seconds))))
    return tuple(sorted(found))
