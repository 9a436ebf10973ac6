"""What is measured in which order, where roles work at the same time and where they take turns.

At the same time: all of them at once on all cores, and then a learner once more alone. In turns:
all actors together, and then the learner alone. Whoever waits for the other sleeps meanwhile, and
is slower for a while when it wakes up, so both are measured with pauses, and there is a first look
at how long an update takes. Beside other groups all of it takes longer: what a learner costs there,
several show that are measured while all cores are busy, and how much longer that is, the one of
them that was alone on the same core before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

from tianji.strategy.plan.profile import ActorCost, LearnerCost
from tianji.strategy.probe.probe_children import Found, ProbeCrew, gains
from tianji.strategy.probe.probe_handle import Answer, ProbeHandle
from tianji.strategy.probe.role_costs import (
    Acted,
    contention,
    mean_learner,
    mean_step,
    middle_learner,
    receiving,
    slowest_step,
)
from tianji.strategy.probe.variants import takes_turns

LONGEST_PAUSE = 1.0  # seconds: who has slept for longer is no slower for it


def measure(crew: ProbeCrew) -> Found:
    """Actors with every number of environments, and learners with every number of cores."""
    found = _InTurns(crew) if takes_turns(crew.job) else _AtOnce(crew)
    return found.found()


class _Stages:
    """What was measured so far."""

    def __init__(self, crew: ProbeCrew, stepping: Callable[[list[Answer]], float]) -> None:
        self._crew = crew
        self._acted = Acted(stepping)
        self._beside: list[LearnerCost] = []  # of one core while all are busy, as often as measured
        self._times: list[float] = []  # as long as alone that an update took on the same core

    def _learned(self, answers: Sequence[Answer]) -> LearnerCost:
        """What the learner on the first core costs beside busy cores; they all count."""
        hand = self._crew.learners[0]
        costs = [self._crew.cost(hand, answer) for answer in answers]
        self._beside.append(mean_learner(costs))
        return costs[0]


class _AtOnce(_Stages):
    """Roles that work at the same time."""

    def __init__(self, crew: ProbeCrew) -> None:
        super().__init__(crew, mean_step)

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
        """Returns what the learner on the first core costs."""
        crew = self._crew
        crew.move_on()
        acted, learned = crew.crowd(envs)
        self._acted.add(envs, acted, fmean(map(receiving, learned)))
        first = self._learned(learned)
        crew.time.expect(self._beside[-1].update_seconds)
        return first

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

    def _alone(self, hand: ProbeHandle) -> LearnerCost | None:
        """What a learner costs while all other cores are idle; None if there are none, or late.

        On a single core there is nobody beside it anyway.
        """
        crew = self._crew
        if len(crew.cores) == 1 or crew.time.is_late():
            return None
        return crew.cost(hand, crew.learning(hand))


class _InTurns(_Stages):
    """Roles that take turns."""

    def __init__(self, crew: ProbeCrew) -> None:
        super().__init__(crew, slowest_step)
        self._hand = crew.learners[0]
        self._alone: list[Answer] = []  # of one core
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
        """Returns what the learner on the first core costs. None: there is no other core."""
        if len(self._crew.cores) == 1:
            return None
        return self._learned(self._crew.crowd(self._crew.choices[0], self._pause)[1])

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
