"""The children that measure a job, the cores they sit on, and what is measured at once.

Cores of a virtual machine differ, by a third and more and from one second to the next: each of them
may share its hardware with a stranger. So several learners with a core each are measured at once,
and everybody moves on by a core from one measurement to the next. A learner with several cores is
measured once, on those where the one with fewer was.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tianji.config import Config
from tianji.core.wording import count_of
from tianji.job.job import Job
from tianji.machine.resources import devices_of
from tianji.strategy.plan.profile import ActorCost, LearnerCost
from tianji.strategy.probe.measure import LEAST_STEPS, LEAST_UPDATES
from tianji.strategy.probe.probe_handle import Answer, OutOfMemory, ProbeHandle, ProbeTask, together
from tianji.strategy.probe.role_costs import Acted, learner_cost
from tianji.strategy.probe.variants import env_choices, takes_turns, variant

MOST_LEARNER_CORES = 8  # beyond them even larger networks gain little
MOST_LEARNERS = 8  # at once, where there are as many pairs of cores
MOST_AGAIN = 4  # times that what matters most is measured again
LEAST_GAIN = 0.05  # of an update's time that more cores must save
ON_GPU = (2, 16, 4, 8)  # learners at once: few, and as many as there may be; then between

LONGEST_SECONDS, SHORTEST_SECONDS = 1.2, 0.3  # of one measurement
MAKING_SECONDS = 0.7  # what comes before each: environments, networks, warming up

Say = Callable[[str], None]


@dataclass(frozen=True)
class Found:
    """What actors and learners cost."""

    actors: list[ActorCost]
    learners: list[LearnerCost]  # with one core first
    acted: Acted
    pause: float = 0.0  # of a learner that takes turns with actors, from one update to the next


class TimeLeft:
    """Until when there may be measurements, and how long each of them is."""

    def __init__(self, ends: float, n_stages: int, n_later: int) -> None:
        """`ends` is a moment of `time.monotonic`; `n_later` of all stages must come at the end."""
        self._ends = ends
        each = (ends - time.monotonic()) / n_stages - MAKING_SECONDS
        self.seconds = min(LONGEST_SECONDS, max(SHORTEST_SECONDS, each))
        self._turn = 0.0  # seconds from one update to the next, as soon as that is known
        self._kept = n_later * (self.seconds + MAKING_SECONDS)

    def expect(self, update_seconds: float, pause: float = 0.0) -> None:
        """Counts with a learner that takes so long for an update, and sleeps before it."""
        self._turn = update_seconds + pause

    def spend_all(self) -> None:
        """From now on nothing is kept for what must come at the end."""
        self._kept = 0.0

    def is_late(self, n_stages: int = 1, times: float = 1.0, needed: float = 0.0) -> bool:
        """Whether there is no time for so many stages, and `needed` seconds beside.

        Their updates take `times` as long as expected; one of them is for warming up.
        """
        each = self.seconds + MAKING_SECONDS + (1 + LEAST_UPDATES) * times * self._turn
        return time.monotonic() + n_stages * each + needed + self._kept > self._ends

    def is_late_for(self, envs: int, before: ActorCost, n_stages: int = 1) -> bool:
        """The same where actors have `envs` environments; `before` is what some others cost."""
        stepping = before.step_seconds * max(1.0, envs / before.envs)
        return self.is_late(n_stages, needed=n_stages * (1 + LEAST_STEPS) * stepping)


class ProbeCrew:
    """All children, with their libraries loaded; they end with `stack`."""

    def __init__(
        self,
        job: Job,
        cores: tuple[int, ...],
        has_gpu: bool,
        ends: float,
        say: Say,
        stack: ExitStack,
    ) -> None:
        """`ends` is the moment of `time.monotonic` by which all should be measured."""
        devices = devices_of(job.config)

        def hands(kind: str, threads: Iterable[int]) -> list[ProbeHandle]:
            device = devices[f"{kind}_cfg"]
            return [stack.enter_context(ProbeHandle(kind, n, device)) for n in threads]

        in_turns = takes_turns(job)
        most = len(cores) if in_turns else max(1, len(cores) - 1)
        pairs = 1 if has_gpu else min(len(cores) // 2, MOST_LEARNERS)
        self.on_gpu = [n for n in ON_GPU if has_gpu and n <= len(cores)]  # at the same time
        self.learners = hands("learner", _powers_of_two(1 if has_gpu else most))
        others = hands("learner", [1] * (max([1, pairs, *self.on_gpu]) - 1))
        self.actors = hands("actor", [1] * most)
        self.single = [self.learners[0], *others]  # with one thread each
        self.job = job
        self._n_beside = max(1, pairs)  # learners that learn while actors act
        self.cores = cores  # who is named first sits on the first of them
        self.choices = env_choices(job, len(cores))
        self._say = say
        everybody = [*self.learners, *others, *self.actors]
        for hand in everybody:
            stack.callback(hand.kill)  # all of them, and only then is one waited for
        for hand in everybody:
            hand.await_loaded()
        n_more = 2 if in_turns else len(self.learners)  # a look and a crowd, or learners alone
        n_later = 1 + len(self.on_gpu)  # larger batches, and learners that share a GPU
        n_stages = len(self.choices) + len(self.learners) + n_more + n_later
        self.time = TimeLeft(ends, n_stages, n_later)

    def waking(self) -> float:
        """What it takes an actor and who acts for it to wake each other; 0 where it acts itself."""
        if not self.job.config.parallel.actor_cfg.inference:
            return 0.0
        core, mine = self.cores[0], os.sched_getaffinity(0)
        os.sched_setaffinity(0, mine - {core} or mine)  # as a run has them: on two cores
        try:
            return self.actors[0].round_trip(core)
        finally:
            os.sched_setaffinity(0, mine)

    def move_on(self) -> None:
        """Has everybody sit on the next core."""
        self.cores = (*self.cores[1:], self.cores[0])

    def crowd(self, envs: int, pause: float = 0.0) -> tuple[list[Answer], list[Answer]]:
        """What actors and as many learners as there may be answer, working at the same time."""
        try:
            return self.beside(self.single[: self._n_beside], envs, pause)
        except OutOfMemory:
            if self._n_beside == 1:
                raise
            self._n_beside = 1  # what has no room several times may have it once
            return self.crowd(envs, pause)

    def beside(
        self, hands: Sequence[ProbeHandle], envs: int, pause: float = 0.0
    ) -> tuple[list[Answer], list[Answer]]:
        """The same of these learners; an actor sits beside each of them, as in a group.

        Learners make pauses, actors none.
        """
        n = hands[0].threads
        self._say(f"{count_of(envs, 'environment')} per actor, {count_of(n, 'learner core')}")
        config, seconds = variant(self.job, envs), self.time.seconds
        learning, acting = _seats(self.cores, len(hands), n)
        actors = [
            ProbeTask(hand, config, [core]) for hand, core in zip(self.actors, acting, strict=False)
        ]
        learners = [
            ProbeTask(hand, config, own, pause) for hand, own in zip(hands, learning, strict=True)
        ]
        if len(self.cores) == 1:  # one after the other, as they will run
            return together(actors, seconds), together(learners, seconds)
        answers = together([*learners, *actors], seconds)
        return answers[len(hands) :], answers[: len(hands)]

    def acting(self, envs: int, pause: float) -> list[Answer]:
        """As many actors as share the environments of a group, with pauses between rollouts."""
        n = min(self.job.task.env.n_envs * self.job.task.n_actors // envs, len(self.actors))
        self._say(f"{count_of(n, 'actor')} of {count_of(envs, 'environment')}")
        return self._on_the_first_cores(self.actors[:n], variant(self.job, envs), pause)

    def learning(
        self, hand: ProbeHandle, pause: float = 0.0, config: Config | None = None
    ) -> Answer:
        """A learner while all other cores are idle."""
        self._say(f"a learner with {count_of(hand.threads, 'core')} alone")
        config = config or variant(self.job, self.choices[0])
        task = ProbeTask(hand, config, self.cores[: hand.threads], pause)
        return together([task], self.time.seconds)[0]

    def sharing(self, n: int, pause: float) -> list[Answer]:
        """So many learners with a core each, and no actor."""
        self._say(f"{count_of(n, 'learner')} on the GPU")
        config = variant(self.job, self.choices[0])
        return self._on_the_first_cores(self.single[:n], config, pause)

    def _on_the_first_cores(
        self, hands: list[ProbeHandle], config: Config, pause: float
    ) -> list[Answer]:
        seats = zip(hands, self.cores, strict=False)
        tasks = [ProbeTask(hand, config, [core], pause) for hand, core in seats]
        return together(tasks, self.time.seconds)

    def again(self, own: ActorCost, n_stages: int) -> Iterator[None]:
        """As often as there is time for more stages, with the configuration's environments."""
        for _ in range(MOST_AGAIN):
            if self.time.is_late_for(own.envs, own, n_stages):
                return
            yield

    def cost(self, hand: ProbeHandle, answer: Answer) -> LearnerCost:
        """What this learner costs by its answer, with batches of the configuration's size."""
        return learner_cost(hand.threads, self.job.sampling.batch_units, answer)


def gains(more: LearnerCost, fewer: LearnerCost) -> bool:
    """Whether more cores are worth a place in the plan."""
    return more.update_seconds <= (1 - LEAST_GAIN) * fewer.update_seconds


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


def _powers_of_two(most: int) -> list[int]:
    return [2**i for i in range(min(most, MOST_LEARNER_CORES).bit_length())]
