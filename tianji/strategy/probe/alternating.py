"""Roles that take turns: all actors are measured together, and then the learner alone.

Whoever waits for the other sleeps meanwhile, and is slower for a while when it wakes up. So both
are measured with pauses, and there is a first look at how long an update takes. Beside other groups
all of it takes longer: what a learner costs there, several show that are measured while all cores
are busy, and how much longer that is, the one of them that was alone on the same core before.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from tianji.strategy.plan.profile import ActorCost, LearnerCost
from tianji.strategy.probe.child_handle import Answer
from tianji.strategy.probe.probe_children import Crew, Found, gains
from tianji.strategy.probe.role_costs import (
    Acted,
    contention,
    mean_learner,
    middle_learner,
    receiving,
    slowest_step,
)

LONGEST_PAUSE = 1.0  # seconds: who has slept for longer is no slower for it


def measure(crew: Crew) -> Found:
    """Actors with every number of environments, and learners with every number of cores."""
    return _InTurns(crew).found()


class _InTurns:
    """What was measured so far."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._hand = crew.learners[0]
        self._acted = Acted(slowest_step)
        self._alone: list[Answer] = []  # of one core
        self._beside: list[LearnerCost] = []  # of one core while all are busy, the mean of several
        self._times: list[float] = []  # as long as alone that an update took on the same core
        self._updating = self._pause = 0.0  # seconds that an actor waits, and a learner

    def found(self) -> Found:
        """The costs of a group that is beside many others."""
        crew = self._crew
        first, *others = crew.choices
        looked = crew.learning(self._hand)
        self._updating = crew.cost(self._hand, looked).update_seconds
        crew.time.expect(self._updating)
        self._act(first)
        self._pause = min(crew.job.length * self._acted.first.step_seconds, LONGEST_PAUSE)
        crew.time.expect(self._updating, (crew.job.sampling.per_version or 1) * self._pause)
        self._alone = [looked if crew.time.is_late() else crew.learning(self._hand, self._pause)]
        if not crew.time.is_late():
            self._compare()
        more = self._with_more_cores()  # before anybody moves on: it is compared with that learner
        for envs in others:
            if not crew.time.is_late_for(envs, self._acted.last):
                self._act(envs)
        for _ in crew.again(self._acted.first, n_stages=3):
            self._act(first)
            self._alone.append(crew.learning(self._hand, self._pause))
            self._compare()
        for _ in crew.again(self._acted.first, n_stages=1):
            crew.move_on()
            self._crowd()
        times = contention(self._times)
        alone = [crew.cost(self._hand, answer) for answer in self._alone]
        usual = replace(middle_learner(self._beside or alone), contention=times)
        actors = [self._slower_actor(cost, times) for cost in self._acted.costs()]
        slower = usual.update_seconds / alone[0].update_seconds  # on the core of `more`
        learners = [usual, *(_slower(cost, slower, times) for cost in more)]
        return Found(actors, learners, self._acted, self._pause)

    def _act(self, envs: int) -> None:
        self._crew.move_on()
        self._acted.add(envs, self._crew.acting(envs, min(self._updating, LONGEST_PAUSE)))

    def _compare(self) -> None:
        """The learner that was just measured alone, on the same core, while all others are busy."""
        busy = self._crowd()
        if busy is not None:
            alone = self._crew.cost(self._hand, self._alone[-1])
            self._times.append(busy.update_seconds / alone.update_seconds)

    def _crowd(self) -> LearnerCost | None:
        """Returns what the learner on the first core costs; they all count. None: no other core."""
        crew = self._crew
        if len(crew.cores) == 1:
            return None
        _, learned = crew.crowd(crew.choices[0], self._pause)
        costs = [crew.cost(self._hand, answer) for answer in learned]
        self._beside.append(mean_learner(costs))
        return costs[0]

    def _with_more_cores(self) -> list[LearnerCost]:
        """As long as they make it faster."""
        crew, found = self._crew, list[LearnerCost]()
        fewer = crew.cost(self._hand, self._alone[0])
        for hand in crew.learners[1:]:
            if crew.time.is_late():
                break
            more = crew.cost(hand, crew.learning(hand, self._pause))
            if not gains(more, fewer):
                break
            found.append(more)
            fewer = more
        return found

    def _slower_actor(self, cost: ActorCost, times: float) -> ActorCost:
        """An actor's cost beside other groups, with T_rv by the environments of a trajectory."""
        received = median(map(receiving, self._alone)) / self._crew.choices[0]
        return replace(
            cost,
            step_seconds=times * cost.step_seconds,
            receive_seconds=times * received * cost.envs,
            act_seconds=None if cost.act_seconds is None else times * cost.act_seconds,
        )


def _slower(cost: LearnerCost, times: float, crowding: float) -> LearnerCost:
    return replace(
        cost,
        update_seconds=times * cost.update_seconds,
        draw_seconds=times * cost.draw_seconds,
        contention=crowding,
    )
