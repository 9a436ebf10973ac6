"""From what measured roles answer to what they cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean, harmonic_mean, median
from typing import Any, TypeVar

from tianji.strategy.plan.profile import ActorCost, LearnerCost
from tianji.strategy.probe.probe_handle import Answer

Cost = TypeVar("Cost", ActorCost, LearnerCost)


def mean_step(answers: list[Answer]) -> float:
    """Seconds of a step of actors that ran at the same time; what adds up are their rates."""
    return float(harmonic_mean([answer["seconds"] / answer["n_steps"] for answer in answers]))


def slowest_step(answers: list[Answer]) -> float:
    """The same where a learner takes turns with them, and so waits for the slowest every time."""
    rounds = [max(taken) for taken in zip(*(a["rollouts"] for a in answers), strict=False)]
    if rounds:
        return fmean(rounds) / length_of(answers)
    return float(max(answer["seconds"] / answer["n_steps"] for answer in answers))


def actor_cost(
    envs: int, answers: list[Answer], stepping: float, receive_seconds: float
) -> ActorCost:
    """Of several that ran at the same time, and took `stepping` seconds for a step."""
    sending = fmean(a["sending"] / max(1, a["n_sent"]) for a in answers)
    step = stepping - sending / length_of(answers)
    return ActorCost(
        envs,
        step,
        sending,
        receive_seconds,
        answers[0]["trajectory_bytes"],
        max(answer["memory_bytes"] for answer in answers),
        act_seconds=min(step, fmean(answer["deciding"] for answer in answers)),
        computing=fmean(answer["computing"] for answer in answers),
        one_pass=answers[0]["one_pass"],
    )


class Acted:
    """What actors answered in every stage so far, and what they cost by that."""

    def __init__(self, stepping: Callable[[list[Answer]], float] = mean_step) -> None:
        self._stepping = stepping
        self.answers: list[list[Answer]] = []
        self._costs: list[ActorCost] = []

    def add(self, envs: int, answers: list[Answer], receive_seconds: float = 0.0) -> None:
        """Takes in one stage; T_rv is the learner's answer."""
        self.answers.append(answers)
        self._costs.append(actor_cost(envs, answers, self._stepping(answers), receive_seconds))

    @property
    def first(self) -> ActorCost:
        """Of the first stage."""
        return self._costs[0]

    @property
    def last(self) -> ActorCost:
        """Of the last stage."""
        return self._costs[-1]

    def costs(self) -> list[ActorCost]:
        """One for each number of environments."""
        same: dict[int, list[ActorCost]] = {}
        for cost in self._costs:
            same.setdefault(cost.envs, []).append(cost)
        return [middle_actor(costs) for costs in same.values()]


def learner_cost(cores: int, batch: int, answer: Answer) -> LearnerCost:
    """A turn of the learner's loop, whoever draws."""
    updates = answer["updates"]
    return LearnerCost(
        cores,
        batch,
        answer["updating"] / updates + _beside(answer),
        answer["drawing"] / updates,
        answer["memory_bytes"],
    )


def unevenness(stages: list[list[Answer]]) -> float:
    """Standard deviation of the speeds of cores at the same moment, as a share of their mean.

    From actors that ran at the same time, in each of several stages; 0 where there was only one.
    """
    squares, freedom = 0.0, 0
    for answers in stages:
        rates = [answer["n_steps"] / answer["seconds"] for answer in answers]
        middle = fmean(rates)
        squares += sum((rate / middle - 1.0) ** 2 for rate in rates)
        freedom += len(rates) - 1
    return min(1.0, math.sqrt(squares / freedom)) if freedom else 0.0


def length_of(answers: list[Answer]) -> float:
    """Steps per trajectory; a trigger may push earlier than the configuration says."""
    return fmean(answer["length"] for answer in answers)


def contention(times: list[float]) -> float:
    """What busy cores do to a learner, who took so many times as long as alone on the same core.

    Where it was never measured both ways nothing is known of that, and nothing made of it.
    """
    return max(1.0, median(times)) if times else 1.0


def mean_learner(costs: list[LearnerCost]) -> LearnerCost:
    """The mean of several learners that ran at the same time; what adds up are their updates."""
    drawing = fmean(cost.draw_seconds for cost in costs)
    updating = harmonic_mean([cost.update_seconds for cost in costs])
    return replace(_largest(costs), update_seconds=updating, draw_seconds=drawing)


def middle_actor(costs: list[ActorCost]) -> ActorCost:
    """The median of the same cost measured several times, among neighbours of changing mood."""
    names = ("step_seconds", "send_seconds", "receive_seconds", "computing")
    found = replace(_largest(costs), **_medians(costs, names))
    acting = median(cost.act_seconds or 0.0 for cost in costs)
    return replace(found, act_seconds=min(found.step_seconds, acting))


def middle_learner(costs: list[LearnerCost]) -> LearnerCost:
    """The same of a learner."""
    return replace(_largest(costs), **_medians(costs, ("update_seconds", "draw_seconds")))


def _medians(costs: Sequence[ActorCost | LearnerCost], names: Iterable[str]) -> dict[str, Any]:
    return {name: median(getattr(cost, name) for cost in costs) for name in names}


def _largest(costs: list[Cost]) -> Cost:
    """The first of them, with the memory of the one that needs most."""
    return replace(costs[0], memory_bytes=max(cost.memory_bytes for cost in costs))


def _beside(answer: Answer) -> float:
    """Seconds that a turn of the loop costs beside learning, adding and drawing."""
    spent = answer["updating"] + answer["adding"] + answer["drawing"]
    turns = answer["updates"] + answer["n_received"]
    return float(max(0.0, (answer["seconds"] - spent) / turns))


def receiving(answer: Answer) -> float:
    """T_rv."""
    return float(answer["storing"] + _beside(answer))
