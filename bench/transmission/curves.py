"""Parts b and c: collection times over numbers of actors, beside the prediction of equation 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tianji.core.wording import count_of
from transmission.carriers import Carrier
from transmission.equation import Costs
from transmission.experiment import Collected, Experiment, Use
from transmission.hosts import Hosts
from transmission.plan import LINK_BITS, MESSAGE_BYTES, Plan
from transmission.rows import Row
from transmission.steps import Part, Skipped, Step, crossing, run_or_skip

DEPTH = 4  # messages of each actor in flight


def part_b(plan: Plan, carriers: list[Carrier], skipped: Skipped) -> Part:
    """Actors that sleep for the sample time, all on this machine."""
    steps = []
    for carrier in carriers:
        if carrier.is_one_process or carrier.name not in plan.crowds:
            continue  # actors of one process cannot sleep side by side
        samples = plan.peer_samples if carrier.is_peer else plan.samples
        steps += Curve("b", carrier, carrier.run, plan, samples, plan.actors).steps(skipped)
    return Part("b", steps)


def part_c(plan: Plan, carriers: list[Carrier], skipped: Skipped) -> Part:
    """The same with the actors spread over several hosts, the receiver alone on another."""
    hosts, steps = Hosts(plan.n_hosts, LINK_BITS), []
    for carrier in carriers:
        if not carrier.is_peer:
            run, n = partial(_across, carrier, hosts), len(hosts)
            curve = Curve("c", carrier, run, plan, plan.host_samples, plan.host_actors, n)
            steps += curve.steps(skipped)
    return Part("c", steps, hosts)


def _across(carrier: Carrier, hosts: Hosts, experiment: Experiment) -> Collected:
    return crossing(carrier, hosts, experiment)[0]


class Curve:
    """Collection times of one carrier over numbers of actors and sample times.

    What equation 1 is given is measured apart from what it predicts: Tsp and Tsd of a single actor,
    and Trv where that many actors send without sampling, so that the receiver never waits. Across
    hosts Trv is what the link takes for a message: the least that any number of actors so far has
    shown, for a link that is at times not used to the full is no slower for that.
    """

    def __init__(
        self,
        part: str,
        carrier: Carrier,
        run: Callable[[Experiment], Collected],
        plan: Plan,
        samples: int,
        actors: tuple[int, ...],
        n_hosts: int = 1,
    ) -> None:
        self._part = part
        self._carrier = carrier
        self._run = run
        self._plan = plan
        self._samples = samples
        self._actors = actors
        self._n_hosts = n_hosts
        self._rounds = 1 if carrier.is_peer else plan.actor_rounds
        self._times = plan.sample_seconds if carrier.is_peer else (0.0, *plan.sample_seconds)
        self._alone: dict[float, Collected] = {}  # one actor, by sample time
        self._link_seconds = math.inf  # of a message across the link, at best

    def steps(self, skipped: Skipped) -> list[Step]:
        """One for each number of actors, with all sample times and rounds of it."""
        where = f"{self._part}: {self._carrier.name}"
        return [
            Step(f"{where}, {count_of(n, 'actor')}", partial(self._measure, skipped, n))
            for n in self._actors
        ]

    def _measure(self, skipped: Skipped, n_actors: int) -> list[Row]:
        """The rounds of one number of actors, side by side."""
        found: dict[float, list[Collected]] = {seconds: [] for seconds in self._times}
        for _ in range(self._rounds):
            for seconds in self._times:
                experiment = self._experiment(n_actors, seconds)
                one = run_or_skip(self._carrier, self._run, experiment, skipped)
                found[seconds] += [] if one is None else [one]
        asked = [seconds for seconds in self._times if seconds and found[seconds]]
        return [self._row(n_actors, seconds, found) for seconds in asked]

    def _experiment(self, n_actors: int, seconds: float) -> Experiment:
        n = self._plan.n_samples(self._samples, n_actors, seconds)
        return Experiment(MESSAGE_BYTES, n, n_actors, seconds, Use.STORE, DEPTH)

    def _row(self, n_actors: int, seconds: float, found: dict[float, list[Collected]]) -> Row:
        """The median round: of the errors where there is a prediction, else of the times.

        Trv and the time are of the same round, because a noisy minute hits both.
        """
        rounds = found[seconds]
        full: list[Collected | None] = [*found.get(0.0, ())] or [None] * len(rounds)
        by_time = sorted(rounds, key=lambda each: each.seconds)
        self._alone.setdefault(seconds, by_time[len(rounds) // 2])
        each = [
            self._of_round(n_actors, seconds, one, self._costs(seconds, n_actors, other))
            for one, other in zip(rounds, full, strict=True)
        ]
        each.sort(key=lambda row: row.seconds if row.costs is None else row.error_percent or 0.0)
        return each[len(each) // 2]

    def _of_round(
        self, n_actors: int, seconds: float, found: Collected, costs: Costs | None
    ) -> Row:
        n = self._experiment(n_actors, seconds).n_messages
        return Row(
            self._part,
            self._carrier.name,
            Use.STORE.value,
            MESSAGE_BYTES,
            self._samples,
            found.seconds * self._samples / n,
            n_actors,
            self._n_hosts,
            seconds,
            costs=costs,
            n_wrong=found.n_wrong,
        )

    def _costs(self, seconds: float, n_actors: int, full: Collected | None) -> Costs | None:
        alone = self._alone[seconds]
        if full is None or alone.sample_seconds is None or alone.send_seconds is None:
            return None
        received = full.receive_seconds or 0.0
        if self._n_hosts > 1:
            each = full.seconds / self._experiment(n_actors, 0.0).n_messages
            received = self._link_seconds = min(self._link_seconds, each)
        return Costs(alone.sample_seconds, alone.send_seconds, received)
