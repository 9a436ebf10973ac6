"""Roles that take turns: all actors are measured together, and then the learner alone.

Whoever waits for the other sleeps meanwhile, and is slower for a while when it wakes up. So both
are measured with pauses, and there is a first look at how long an update takes.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from tianji.probing.answers import Acted, middle_learner, receiving
from tianji.probing.crew import Crew, Found, gains


def measure(crew: Crew) -> Found:
    """As many actors as share the environments, and then each learner by itself."""
    acted, hand = Acted(in_turns=True), crew.learners[0]
    looked = crew.learning(hand)
    updating = crew.time.updating = crew.cost(hand, looked).update_seconds

    def stage(envs: int) -> None:
        crew.move_on()
        acted.add(envs, crew.acting(envs, pause=updating))

    first, *others = crew.choices
    stage(first)
    pause = crew.job.length * acted.first.step_seconds
    answers = [looked if crew.time.is_late() else crew.learning(hand, pause)]
    for envs in others:
        if not crew.time.is_late_for(envs, acted.last):
            stage(envs)
    learners = [crew.cost(hand, answers[0])]
    for more in crew.learners[1:]:
        if crew.time.is_late():
            break
        cost = crew.cost(more, crew.learning(more, pause))
        if not gains(cost, learners[-1]):
            break
        learners.append(cost)
    for _ in crew.again(acted.first):
        stage(first)
        answers.append(crew.learning(hand, pause))
    learners[0] = middle_learner([crew.cost(hand, answer) for answer in answers])
    received = median(map(receiving, answers)) / first  # for each environment of a trajectory
    actors = [replace(cost, receive_seconds=received * cost.envs) for cost in acted.costs()]
    return Found(actors, learners, acted, pause)
