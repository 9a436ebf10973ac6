"""Measures a job on this machine: all its roles at once, each on cores of its own.

A role that has the machine to itself is faster than it will be among others. So where actors and
learners run at the same time they are measured at the same time, on all the cores; where they take
turns, all actors are measured together and then the learner alone.

Cores of a virtual machine differ, by a third and more and from one second to the next: each of them
may share its hardware with a stranger. So several learners with a core each are measured at once,
and everybody moves on by a core from one measurement to the next. A learner with several cores is
measured once, on those where the one with fewer was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from statistics import fmean, median

from tianji import resources
from tianji.config import Config
from tianji.planning.profile import ActorCost, LearnerCost, Profile
from tianji.probing.answers import (
    actor_cost,
    contended,
    learner_cost,
    length_of,
    mean_learner,
    middle_actor,
    middle_learner,
    receiving,
    unevenness,
)
from tianji.probing.hand import Answer, Hand, OutOfMemory, together
from tianji.probing.machine import this_machine
from tianji.probing.measure import LEAST_STEPS, LEAST_UPDATES
from tianji.probing.variants import enlarged, env_choices, variant, work_of
from tianji.trial import try_out
from tianji.wording import count_of

MOST_SECONDS = 20.0  # of a whole probe, unless it is given another limit
LOADING_SECONDS = 5.0  # of it for libraries
LONGEST_SECONDS, SHORTEST_SECONDS = 1.2, 0.3  # of one measurement
MAKING_SECONDS = 0.7  # what comes before each: environments, networks, warming up
MOST_LEARNER_CORES = 8  # beyond them even larger networks gain little
MOST_LEARNERS = 8  # at once, where there are as many pairs of cores
MOST_AGAIN = 4  # times that what matters most is measured again
LEAST_GAIN = 0.05  # of an update's time that more cores must save
ON_GPU = (2, 16, 4, 8)  # learners at once: few, and as many as there may be; then between
LARGER = 4  # times the batch that is measured beside the configured one

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

        self._on_gpu = [n for n in ON_GPU if on_gpu and n <= len(cores)]  # learners at once
        most_cores = 1 if on_gpu else min(len(cores), MOST_LEARNER_CORES)
        learners = hands("learner", _powers_of_two(most_cores))
        self._job = job = try_out(config)
        self._takes_turns = job.sampling.per_version is not None
        most = len(cores) if self._takes_turns else max(1, len(cores) - 1)
        self._actors = hands("actor", [1] * most)
        self._learners = [hand for hand in learners if hand.threads <= most]
        pairs = 1 if on_gpu or self._takes_turns else min(len(cores) // 2, MOST_LEARNERS)
        others = hands("learner", [1] * (max([pairs, *self._on_gpu]) - 1))
        self._single = [self._learners[0], *others]  # with one core each
        self._crowd = self._single[: max(1, pairs)]  # that learn while actors act
        self._choices = env_choices(job, len(cores))
        self._acted: list[list[Answer]] = []  # of the actors in every stage, their own number first
        self._updating = 0.0  # seconds of an update, as soon as that is known
        self._pause = 0.0  # of a learner that takes turns with actors, from one update to the next
        alone = 1 if self._takes_turns else len(self._learners)
        n_stages = len(self._choices) + len(self._learners) + alone + len(self._on_gpu) + 1
        each = (seconds - LOADING_SECONDS) / n_stages - MAKING_SECONDS
        self._seconds = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, each))
        later = 1 + len(self._on_gpu)  # larger batches, and learners that share a GPU
        self._later_seconds = later * (self._seconds + MAKING_SECONDS)

    def profile(self) -> Profile:
        """All that a plan needs."""
        measure = self._in_turns if self._takes_turns else self._at_once
        actors, learners = measure()
        self._later_seconds = 0.0
        learners += self._with_larger_batches(learners[0])
        if self._on_gpu:
            shared = self._sharing_a_gpu(learners[0])
            learners = [replace(cost, on_gpu=shared) for cost in learners]
        loading = fmean(answer["loading"] for acted in self._acted for answer in acted)
        length = length_of(self._acted[0])  # with the environments of the configuration
        work = replace(work_of(self._job), steps=max(1, round(length)))
        return Profile(
            machine=self._machine,
            work=work,
            actors=tuple(sorted(actors, key=lambda cost: cost.envs)),
            learners=tuple(sorted(learners, key=lambda cost: (cost.cores, cost.batch))),
            load_seconds=loading,
            unevenness=unevenness(self._acted),
        )

    def _at_once(self) -> tuple[list[ActorCost], list[LearnerCost]]:
        """Learners and actors on all cores, and then the first learner once more alone."""
        first, *more = self._learners
        actors: dict[int, list[ActorCost]] = {}
        beside: list[LearnerCost] = []  # as often as there are stages: an update is an update
        times: list[float] = []  # as long as alone

        def stage(envs: int) -> LearnerCost:
            """Returns what the learner on the first core costs."""
            self._move_on()
            acted, learned = self._stage(self._crowd, envs)
            self._acted.append(acted)
            received = fmean(map(receiving, learned))
            actors.setdefault(envs, []).append(actor_cost(envs, acted, received))
            costs = [self._cost(1, answer) for answer in learned]
            beside.append(mean_learner(costs))
            self._updating = beside[-1].update_seconds
            return costs[0]

        def compare(busy: LearnerCost) -> LearnerCost | None:
            """The same learner on the same core, alone."""
            if alone := self._alone(first):
                times.append(busy.update_seconds / alone.update_seconds)
            return alone

        for envs in self._choices:
            if not actors or not self._is_late(_last(actors), envs):
                here = stage(envs)
        fewer, learners = compare(here), list[LearnerCost]()
        for hand in more:
            if fewer is None or self._is_late(n_stages=2):
                break
            cost = self._cost(hand.threads, self._stage([hand], self._choices[0])[1][0])
            if not (alone := self._alone(hand)) or not _gains(alone, fewer):
                break  # what two cores do not bring, four will not
            learners.append(contended(cost, [cost.update_seconds / alone.update_seconds]))
            fewer = alone
        for _ in self._again(own := actors[self._choices[0]][0]):
            compare(stage(own.envs))
        learners.insert(0, contended(middle_learner(beside), times))
        return [middle_actor(costs) for costs in actors.values()], learners

    def _alone(self, hand: Hand) -> LearnerCost | None:
        """What a learner costs while all other cores are idle; None if there are none, or late.

        On a single core there is nobody beside it anyway.
        """
        if len(self._cores) == 1 or self._is_late():
            return None
        n = hand.threads
        self._say(f"a learner with {count_of(n, 'core')} alone")
        config = variant(self._job, self._choices[0])
        return self._cost(n, together([(hand, config, self._cores[:n])], self._seconds)[0])

    def _stage(self, hands: Sequence[Hand], envs: int) -> tuple[list[Answer], list[Answer]]:
        """What actors and learners answer; an actor sits beside every learner, as in a group."""
        n = hands[0].threads
        self._say(f"{count_of(envs, 'environment')} per actor, {count_of(n, 'learner core')}")
        config = variant(self._job, envs)
        learning, acting = _seats(self._cores, len(hands), n)
        actors = [(hand, config, [core]) for hand, core in zip(self._actors, acting, strict=False)]
        learners = [(hand, config, cores) for hand, cores in zip(hands, learning, strict=True)]
        if len(self._cores) == 1:  # one after the other, as they will run
            return together(actors, self._seconds), together(learners, self._seconds)
        try:
            answers = together([*learners, *actors], self._seconds)
        except OutOfMemory:
            if len(hands) == 1:
                raise
            self._crowd = self._crowd[:1]  # what has no room several times may have it once
            return self._stage(self._crowd, envs)
        return answers[len(hands) :], answers[: len(hands)]

    def _move_on(self) -> None:
        """Has everybody sit on the next core."""
        self._cores = (*self._cores[1:], self._cores[0])

    def _in_turns(self) -> tuple[list[ActorCost], list[LearnerCost]]:
        """As many actors as share the environments, and then each learner by itself.

        Whoever waits for the other sleeps meanwhile, and is slower for a while when it wakes up. So
        both are measured with pauses, and there is a first look at how long an update takes.
        """
        first = self._learners[0]
        actors: dict[int, list[ActorCost]] = {}
        looked = self._learning(first, 0.0)
        updating = self._updating = self._cost(1, looked).update_seconds

        def stage(envs: int) -> None:
            acted = self._acting(envs, updating)
            self._acted.append(acted)
            actors.setdefault(envs, []).append(actor_cost(envs, acted, 0.0))

        for envs in self._choices:
            if not actors or not self._is_late(_last(actors), envs):
                stage(envs)
        own = actors[self._choices[0]]
        self._pause = self._job.length * own[0].step_seconds
        answers = [looked if self._is_late() else self._learning(first, self._pause)]
        learners = [self._cost(1, answers[0])]
        for hand in self._learners[1:]:
            if self._is_late():
                break
            cost = self._cost(hand.threads, self._learning(hand, self._pause))
            if not _gains(cost, learners[-1]):
                break
            learners.append(cost)
        for _ in self._again(own[0]):
            stage(own[0].envs)
            answers.append(self._learning(first, self._pause))
        learners[0] = middle_learner([self._cost(1, answer) for answer in answers])
        received = median(map(receiving, answers)) / self._job.task.env.n_envs
        middles = {envs: middle_actor(costs) for envs, costs in actors.items()}
        return [
            replace(cost, receive_seconds=received * envs) for envs, cost in middles.items()
        ], learners

    def _acting(self, envs: int, pause: float) -> list[Answer]:
        """As many actors as share the environments, with pauses as long as an update."""
        self._move_on()
        env = self._job.task.env
        n = min(env.n_envs * self._job.task.n_actors // envs, len(self._actors))
        self._say(f"{count_of(n, 'actor')} of {count_of(envs, 'environment')}")
        config, places = variant(self._job, envs), zip(self._actors[:n], self._cores, strict=False)
        return together([(hand, config, [core]) for hand, core in places], self._seconds, pause)

    def _learning(self, hand: Hand, pause: float) -> Answer:
        """A learner by itself, with pauses as long as a rollout."""
        self._say(count_of(hand.threads, "learner core"))
        config = variant(self._job, self._job.task.env.n_envs)
        cores = self._cores[: hand.threads]
        return together([(hand, config, cores)], self._seconds, pause)[0]

    def _sharing_a_gpu(self, beside: LearnerCost) -> tuple[tuple[int, float], ...]:
        """How much longer an update takes where several learners share the GPU.

        A GPU is busy for a part of an update only, and what several of them compute fits in between
        or does not: nothing but having them learn at the same time tells.
        """
        config, found = variant(self._job, self._choices[0]), list[tuple[int, float]]()
        for n in self._on_gpu:
            if self._is_late():
                break
            self._say(f"{count_of(n, 'learner')} on the GPU")
            seats = zip(self._single[:n], self._cores, strict=False)
            roles = [(hand, config, [core]) for hand, core in seats]
            try:
                answers = together(roles, self._seconds, self._pause)
            except OutOfMemory:
                continue  # fewer of them may fit
            took = fmean(self._cost(1, answer).update_seconds for answer in answers)
            found.append((n, max(1.0, took * beside.contention / beside.update_seconds)))
        return tuple(sorted(found))

    def _with_larger_batches(self, usual: LearnerCost) -> list[LearnerCost]:
        """The cost of one core with larger batches; nothing where none is possible, or no time.

        Between both is a line: what an update costs however small its batch, and what a sample.
        """
        config = enlarged(self._job, LARGER)
        more_seconds = (LARGER - 1) * (1 + LEAST_UPDATES) * self._updating
        if config is None or self._is_late(needed=more_seconds):
            return []
        batch = LARGER * usual.batch
        self._say(f"a learner with batches of {batch:,}")
        roles = [(self._learners[0], config, self._cores[:1])]
        try:
            alone = learner_cost(1, batch, together(roles, self._seconds, self._pause)[0])
        except OutOfMemory:
            return []
        update = max(usual.update_seconds, usual.contention * alone.update_seconds)
        return [replace(alone, update_seconds=update, contention=usual.contention)]

    def _again(self, own: ActorCost) -> Iterator[None]:
        """As often as there is time for two more stages, with the configuration's environments."""
        for _ in range(MOST_AGAIN):
            if self._is_late(own, own.envs, n_stages=2):
                return
            yield

    def _cost(self, cores: int, answer: Answer) -> LearnerCost:
        return learner_cost(cores, self._job.sampling.batch_units, answer)

    def _is_late(
        self,
        before: ActorCost | None = None,
        envs: int = 0,
        n_stages: int = 1,
        needed: float = 0.0,
    ) -> bool:
        """Whether there is no time for more stages, one with `envs` environments per actor.

        `needed` are seconds beyond what any stage takes.
        """
        stepping = 0.0 if before is None else before.step_seconds * max(1.0, envs / before.envs)
        each = self._seconds + MAKING_SECONDS + (1 + LEAST_UPDATES) * self._updating
        needed += n_stages * each + LEAST_STEPS * stepping + self._later_seconds
        return time.monotonic() + needed > self._ends


def _seats(
    cores: tuple[int, ...], n_learners: int, n: int
) -> tuple[list[tuple[int, ...]], list[int]]:
    """The cores of so many learners with `n` each, and those of actors: all others, or the only."""
    if len(cores) == 1:
        return [cores], list(cores)
    starts = range(0, n_learners * (n + 1), n + 1)
    learning = [cores[start : start + n] for start in starts]
    taken = {core for seat in learning for core in seat}
    return learning, [core for core in cores if core not in taken]


def _gains(more: LearnerCost, fewer: LearnerCost) -> bool:
    """Whether more cores are worth a place in the plan."""
    return more.update_seconds <= (1 - LEAST_GAIN) * fewer.update_seconds


def _last(costs: dict[int, list[ActorCost]]) -> ActorCost:
    return list(costs.values())[-1][-1]


def _powers_of_two(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length())]
