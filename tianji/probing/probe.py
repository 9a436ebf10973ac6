"""Measures a job on this machine: all its roles at once, each on cores of its own.

A role that has the machine to itself is faster than it will be among others. So where actors and
learners run at the same time they are measured at the same time, on all the cores; where they take
turns, all actors are measured together and then the learner alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from statistics import fmean, median

from tianji import resources
from tianji.config import Config
from tianji.errors import TianJiError
from tianji.planning.profile import ActorCost, LearnerCost, Profile
from tianji.probing.hand import Answer, Hand, together
from tianji.probing.machine import this_machine
from tianji.probing.measure import LEAST_STEPS
from tianji.probing.variants import env_choices, variant, work_of
from tianji.trial import try_out
from tianji.wording import count_of

MOST_SECONDS = 20.0  # of a whole probe, unless it is given another limit
LOADING_SECONDS = 5.0  # of it for libraries
LONGEST_SECONDS, SHORTEST_SECONDS = 1.2, 0.3  # of one measurement
MAKING_SECONDS = 0.7  # what comes before each: environments, networks, warming up
MOST_LEARNER_CORES = 8  # beyond them even larger networks gain little
ON_GPU = (2, 4, 8)  # learners at once

Say = Callable[[str], None]


def probe(
    config: Config, n_cores: int, say: Say = lambda _: None, seconds: float = MOST_SECONDS
) -> Profile:
    """The profile of a job; at most `n_cores` of this machine's cores are used for `seconds`."""
    cores = resources.available_cores()[:n_cores]
    with ExitStack() as stack:
        return _Probe(config, cores, stack, say, seconds).profile()


class _Probe:
    """One round of measurements; the children load their libraries while the job is tried out."""

    def __init__(
        self, config: Config, cores: tuple[int, ...], stack: ExitStack, say: Say, seconds: float
    ) -> None:
        self._ends = time.monotonic() + seconds
        self._cores = cores
        self._say = say
        self._machine = this_machine(len(cores), config.parallel.learner_cfg.device)
        on_gpu = self._machine.gpu is not None

        def hands(kind: str, threads: Iterable[int]) -> list[Hand]:
            return [stack.enter_context(Hand(kind, n)) for n in threads]

        most_cores = 1 if on_gpu else min(len(cores), MOST_LEARNER_CORES)
        learners = hands("learner", _powers_of_two(most_cores))
        self._sharing = hands("learner", [1] * (min(len(cores), max(ON_GPU)) - 1) * on_gpu)
        self._job = job = try_out(config)
        self._takes_turns = job.sampling.per_version is not None
        most = len(cores) if self._takes_turns else max(1, len(cores) - 1)
        self._actors = hands("actor", [1] * most)
        self._learners = [hand for hand in learners if hand.threads <= most]
        self._choices = env_choices(job, len(cores))
        self._acted: list[list[Answer]] = []  # of the actors in every stage, as in `_choices`
        self._pause = 0.0  # of a learner that takes turns with actors, from one update to the next
        alone = 1 if self._takes_turns else len(self._learners)
        n_stages = len(self._choices) + len(self._learners) + alone + len(ON_GPU) * on_gpu
        each = (seconds - LOADING_SECONDS) / n_stages - MAKING_SECONDS
        self._seconds = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, each))

    def profile(self) -> Profile:
        """All that a plan needs."""
        measure = self._in_turns if self._takes_turns else self._at_once
        actors, learners = measure()
        if self._sharing:
            learners = [self._on_one_gpu(learners[0])]
        loading = fmean(answer["loading"] for acted in self._acted for answer in acted)
        length = _length(self._acted[0])  # with the environments of the configuration
        work = replace(work_of(self._job), steps=max(1, round(length)))
        return Profile(
            machine=self._machine,
            work=work,
            actors=tuple(sorted(actors, key=lambda cost: cost.envs)),
            learners=tuple(sorted(learners, key=lambda cost: cost.cores)),
            load_seconds=loading,
        )

    def _at_once(self) -> tuple[list[ActorCost], list[LearnerCost]]:
        """A learner on the first cores, actors on all others."""
        actors: list[ActorCost] = []
        first, *more = self._learners
        alike: list[LearnerCost] = []  # as often as there are stages: an update is an update
        for envs in self._choices:
            if actors and self._is_late(actors[-1], envs):
                continue
            acted, learned = self._stage(first, envs)
            self._acted.append(acted)
            actors.append(_actor_cost(envs, acted, _receiving(learned)))
            alike.append(self._learner_cost(first.threads, learned))
        learners = [self._alone_too(first, _middle(alike), 1.0)]
        for hand in more:
            if not self._is_late():
                _, learned = self._stage(hand, self._choices[0])
                beside = self._learner_cost(hand.threads, learned)
                learners.append(self._alone_too(hand, beside, learners[-1].contention))
        return actors, learners

    def _alone_too(self, hand: Hand, beside: LearnerCost, otherwise: float) -> LearnerCost:
        """The same cost, with times as long as alone that the learner took beside busy cores.

        `otherwise` where there is no time to measure it.
        """
        if len(self._cores) == 1 or self._is_late():
            return replace(beside, contention=otherwise)
        n = hand.threads
        self._say(f"a learner with {count_of(n, 'core')} alone")
        config = variant(self._job, self._choices[0])
        answers = together([(hand, config, self._cores[:n])], self._seconds)
        alone = self._learner_cost(n, answers[0])
        return replace(beside, contention=max(1.0, beside.update_seconds / alone.update_seconds))

    def _stage(self, learner: Hand, envs: int) -> tuple[list[Answer], Answer]:
        n = learner.threads
        self._say(f"{count_of(envs, 'environment')} per actor, {count_of(n, 'learner core')}")
        config = variant(self._job, envs)
        cores = self._cores[n:] or self._cores
        actors = [(hand, config, [core]) for hand, core in zip(self._actors, cores, strict=False)]
        learners = [(learner, config, self._cores[:n])]
        if len(self._cores) == 1:  # one after the other, as they will run
            return together(actors, self._seconds), together(learners, self._seconds)[0]
        learned, *acted = together([*learners, *actors], self._seconds)
        return acted, learned

    def _in_turns(self) -> tuple[list[ActorCost], list[LearnerCost]]:
        """As many actors as share the environments, and then each learner by itself.

        Whoever waits for the other sleeps meanwhile, and is slower for a while when it wakes up. So
        both are measured with pauses, and there is a first look at how long an update takes.
        """
        job, actors = self._job, list[ActorCost]()
        own, whole = job.task.env.n_envs, job.task.env.n_envs * job.task.n_actors
        self._say("a first look at the learner")
        looked = together([(self._learners[0], variant(job, own), self._cores[:1])], self._seconds)
        updating = self._learner_cost(1, looked[0]).update_seconds
        for envs in self._choices:
            if actors and self._is_late(actors[-1], envs):
                continue
            n = min(whole // envs, len(self._actors))
            self._say(f"{count_of(n, 'actor')} of {count_of(envs, 'environment')}")
            config, places = variant(job, envs), zip(self._actors[:n], self._cores, strict=False)
            roles = [(hand, config, [core]) for hand, core in places]
            acted = together(roles, self._seconds, updating)
            self._acted.append(acted)
            actors.append(_actor_cost(envs, acted, 0.0))
        learned: list[Answer] = []
        self._pause = pause = job.length * actors[0].step_seconds
        for hand in self._learners:
            if learned and self._is_late():
                break
            self._say(count_of(hand.threads, "learner core"))
            places_of_it = [(hand, variant(job, own), self._cores[: hand.threads])]
            learned += together(places_of_it, self._seconds, pause)
        receiving = _receiving(learned[0]) / own
        return (
            [replace(cost, receive_seconds=receiving * cost.envs) for cost in actors],
            [
                self._learner_cost(hand.threads, answer)
                for hand, answer in zip(self._learners, learned, strict=False)
            ],
        )

    def _on_one_gpu(self, beside: LearnerCost) -> LearnerCost:
        """The same cost, with how much longer it takes where several learners share the GPU.

        A GPU is busy for a part of an update only, and what several of them compute fits in between
        or does not: nothing but having them learn at the same time tells.
        """
        config, found = variant(self._job, self._choices[0]), []
        for n in ON_GPU:
            hands = [self._learners[0], *self._sharing][:n]
            if len(hands) < n or self._is_late():
                break
            self._say(f"{count_of(n, 'learner')} on the GPU")
            roles = [(hand, config, [core]) for hand, core in zip(hands, self._cores, strict=False)]
            try:
                answers = together(roles, self._seconds, self._pause)
            except TianJiError:  # so many do not fit into its memory
                break
            took = fmean(self._learner_cost(1, answer).update_seconds for answer in answers)
            found.append((n, max(1.0, took * beside.contention / beside.update_seconds)))
        return replace(beside, on_gpu=tuple(found))

    def _is_late(self, before: ActorCost | None = None, envs: int = 0) -> bool:
        """Whether there is no time for another stage, with `envs` environments per actor."""
        stepping = 0.0 if before is None else before.step_seconds * max(1.0, envs / before.envs)
        needed = self._seconds + MAKING_SECONDS + LEAST_STEPS * stepping
        return time.monotonic() + needed > self._ends

    def _learner_cost(self, cores: int, answer: Answer) -> LearnerCost:
        updates, beside = answer["updates"], _beside(answer)
        return LearnerCost(
            cores,
            self._job.sampling.batch_units,
            answer["updating"] / updates + beside,  # a turn of the learner's loop, whoever draws
            answer["drawing"] / updates,
            answer["memory_bytes"],
        )


def _actor_cost(envs: int, answers: list[Answer], receiving: float) -> ActorCost:
    sending = fmean(a["sending"] / max(1, a["n_sent"]) for a in answers)
    step = fmean(a["seconds"] / a["n_steps"] for a in answers) - sending / _length(answers)
    return ActorCost(
        envs,
        step,
        sending,
        receiving,
        answers[0]["trajectory_bytes"],
        max(answer["memory_bytes"] for answer in answers),
        act_seconds=min(step, fmean(answer["deciding"] for answer in answers)),
    )


def _length(answers: list[Answer]) -> float:
    """Steps per trajectory; a trigger may push earlier than the configuration says."""
    return fmean(answer["length"] for answer in answers)


def _middle(costs: list[LearnerCost]) -> LearnerCost:
    """The median of the same cost measured several times, among neighbours of changing mood."""
    return replace(
        costs[0],
        update_seconds=median(cost.update_seconds for cost in costs),
        draw_seconds=median(cost.draw_seconds for cost in costs),
        memory_bytes=max(cost.memory_bytes for cost in costs),
    )


def _beside(answer: Answer) -> float:
    """Seconds that a turn of the loop costs beside learning, adding and drawing."""
    spent = answer["updating"] + answer["adding"] + answer["drawing"]
    turns = answer["updates"] + answer["n_received"]
    return float(max(0.0, (answer["seconds"] - spent) / turns))


def _receiving(answer: Answer) -> float:
    """T_rv."""
    return float(answer["adding"] / max(1, answer["n_received"]) + _beside(answer))


def _powers_of_two(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length())]
