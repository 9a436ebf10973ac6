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
from tianji.strategy.plan.profile import Machine, Profile
from tianji.strategy.probe import MOST_SECONDS, alternating, concurrent, more_learners
from tianji.strategy.probe.answers import length_of, unevenness
from tianji.strategy.probe.probe_children import Crew, Say
from tianji.strategy.probe.this_machine import Others, this_machine
from tianji.strategy.probe.variants import takes_turns, work_of


def probe(
    job: Job, n_cores: int, say: Say = lambda _: None, seconds: float = MOST_SECONDS
) -> Profile:
    """What a job costs; at most `n_cores` of this machine's cores are used for `seconds`."""
    ends, cores = time.monotonic() + seconds, resources.available_cores()[:n_cores]
    machine = this_machine(len(cores), job.config.parallel.learner_cfg.device)
    others = Others(cores)
    with ExitStack() as stack:
        found = _profile(Crew(job, cores, machine.gpu is not None, ends, say, stack), machine)
    return replace(found, foreign_cores=others.used())


def _profile(crew: Crew, machine: Machine) -> Profile:
    """All that a plan needs."""
    found = alternating.measure(crew) if takes_turns(crew.job) else concurrent.measure(crew)
    crew.time.spend_all()
    usual, answers = found.learners[0], found.acted.answers
    larger = more_learners.with_larger_batches(crew, usual, found.pause)
    shared = more_learners.sharing_a_gpu(crew, usual, found.pause)
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
    )
