"""Measures a job on this machine: all its roles at once, each on cores of its own.

A role that has the machine to itself is faster than it will be among others. So where actors and
learners run at the same time they are measured at the same time, on all the cores; where they take
turns, the actors of a group are measured together, then its learner alone, and then learners on all
cores beside others at work.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from statistics import fmean

from tianji.job.job import Job
from tianji.machine import resources
from tianji.strategy.plan.costs import contended_share
from tianji.strategy.plan.profile import LearnerCost, Machine, Profile
from tianji.strategy.probe import MOST_SECONDS, stages
from tianji.strategy.probe.probe_children import ProbeCrew, Say
from tianji.strategy.probe.probe_handle import OutOfMemory
from tianji.strategy.probe.role_costs import learner_cost, length_of, unevenness
from tianji.strategy.probe.this_machine import Others, this_machine
from tianji.strategy.probe.variants import enlarged, work_of

LARGER = 4  # times the batch that is measured beside the configured one


def probe(
    job: Job, n_cores: int, say: Say = lambda _: None, seconds: float = MOST_SECONDS
) -> Profile:
    """What a job costs; at most `n_cores` of this machine's cores are used for `seconds`."""
    ends, cores = time.monotonic() + seconds, resources.available_cores()[:n_cores]
    machine = this_machine(len(cores), job.config)
    others = Others(cores)
    with ExitStack() as stack:
        found = _profile(ProbeCrew(job, cores, machine.gpu is not None, ends, say, stack), machine)
    return replace(found, foreign_cores=others.used())


def _profile(crew: ProbeCrew, machine: Machine) -> Profile:
    """All that a plan needs."""
    waking = crew.waking()
    found = stages.measure(crew)
    crew.time.spend_all()
    usual, answers = found.learners[0], found.acted.answers
    larger = _with_larger_batches(crew, usual, found.pause)
    shared = _sharing_a_gpu(crew, usual, found.pause)
    steps = length_of(answers[0])  # with the environments of the configuration
    return Profile(
        machine=machine,
        work=replace(work_of(crew.job), steps=max(1, round(steps))),
        actors=tuple(sorted(found.actors, key=lambda cost: cost.envs)),
        learners=tuple(
            replace(cost, on_gpu=shared)
            for cost in sorted((*found.learners, *larger), key=lambda c: (c.cores, c.batch))
        ),
        load_seconds=fmean(answer["loading"] for acted in answers for answer in acted),
        unevenness=unevenness(answers),
        waking_seconds=waking,
    )


def _with_larger_batches(crew: ProbeCrew, usual: LearnerCost, pause: float) -> list[LearnerCost]:
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


def _sharing_a_gpu(
    crew: ProbeCrew, usual: LearnerCost, pause: float
) -> tuple[tuple[int, float], ...]:
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
