"""Roles that work at the same time are measured at the same time, on all the cores."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from tianji.strategy.plan.profile import LearnerCost
from tianji.strategy.probe.child_handle import Hand
from tianji.strategy.probe.probe_children import Crew, Found, gains
from tianji.strategy.probe.role_costs import (
    Acted,
    contention,
    mean_learner,
    middle_learner,
    receiving,
)


def measure(crew: Crew) -> Found:
    """Actors with every number of environments beside learners with every number of cores."""
    return _AtOnce(crew).found()


class _AtOnce:
    """What was measured so far."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._acted = Acted()
        self._beside: list[LearnerCost] = []  # of one core, as often as there are stages
        self._times: list[float] = []  # as long as alone that an update took

    def found(self) -> Found:
        """Learners and actors on all cores, and then the first learner once more alone."""
        crew, acted = self._crew, self._acted
        first, *others = crew.choices
        here = self._stage(first)
        for envs in others:
            if not crew.time.is_late_for(envs, acted.last):
                here = self._stage(envs)
        alone = self._compare(here)
        more = [] if alone is None else self._with_more_cores(alone)
        for _ in crew.again(acted.first, n_stages=2):
            self._compare(self._stage(first))
        learner = replace(middle_learner(self._beside), contention=contention(self._times))
        return Found(acted.costs(), [learner, *more], acted)

    def _stage(self, envs: int) -> LearnerCost:
        """Returns what the learner on the first core costs; they all count."""
        crew = self._crew
        crew.move_on()
        acted, learned = crew.crowd(envs)
        self._acted.add(envs, acted, fmean(map(receiving, learned)))
        costs = [crew.cost(crew.learners[0], answer) for answer in learned]
        self._beside.append(mean_learner(costs))
        crew.time.expect(self._beside[-1].update_seconds)
        return costs[0]

    def _compare(self, busy: LearnerCost) -> LearnerCost | None:
        """The same learner on the same core, alone; None if there is no time."""
        alone = self._alone(self._crew.learners[0])
        if alone is not None:
            self._times.append(busy.update_seconds / alone.update_seconds)
        return alone

    def _with_more_cores(self, alone: LearnerCost) -> list[LearnerCost]:
        """As long as they make it faster: what two do not bring, four will not."""
        crew, found, fewer = self._crew, list[LearnerCost](), alone
        for hand in crew.learners[1:]:
            if crew.time.is_late(n_stages=2):
                break
            busy = crew.cost(hand, crew.beside([hand], crew.choices[0])[1][0])
            more = self._alone(hand)
            if more is None or not gains(more, fewer):
                break
            times = contention([busy.update_seconds / more.update_seconds])
            found.append(replace(busy, contention=times))
            fewer = more
        return found

    def _alone(self, hand: Hand) -> LearnerCost | None:
        """What a learner costs while all other cores are idle; None if there are none, or late.

        On a single core there is nobody beside it anyway.
        """
        crew = self._crew
        if len(crew.cores) == 1 or crew.time.is_late():
            return None
        return crew.cost(hand, crew.learning(hand))
