"""The four parts of Figure 5: message sizes, actors, actors on several hosts, a link's limit."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from tianji.errors import TianJiError
from tianji.transmission import hosts as namespaces
from tianji.transmission.carriers import Carrier, available
from tianji.transmission.equation import Costs
from tianji.transmission.experiment import Collected, Experiment, Use
from tianji.transmission.hosts import Hosts
from tianji.transmission.limits import (
    copy_between_seconds,
    memcpy_beside_seconds,
    memcpy_seconds,
    raw_tcp_seconds,
)
from tianji.transmission.plan import LINK_BITS, MESSAGE_BYTES, Plan
from tianji.transmission.rows import Row

LOOK_SECONDS = 0.5  # at what others use of this machine
DEPTH = 8  # messages in flight where one actor sends
LINK_BYTES = 1 << 19  # in flight across a link: four milliseconds of 1 Gbit/s
CROWD_DEPTH = 4  # messages of each in flight where many do
MEMCPY, COPY, RAW_TCP = "memcpy", "plain copy", "raw TCP"

Say = Callable[[str], None]
Times = dict[str, list[float]]  # seconds of every round
Skipped = dict[str, str]  # what was left out, and why
T = TypeVar("T")


@dataclass
class Measured:
    """Everything that a run has found."""

    rows: list[Row]
    skipped: Skipped
    foreign_load: float = 0.0  # the share of this machine that others used when the run began


def measure(plan: Plan, say: Say) -> Measured:
    """Runs the parts that are asked for; what cannot run here is named, with the reason."""
    carriers, skipped = available((*plan.transports, *plan.peers))
    others = foreign_load()
    rows: list[Row] = []
    if "a" in plan.parts:
        rows += sizes(plan, carriers, skipped, say)
    if "b" in plan.parts:
        rows += actors(plan, carriers, skipped, say)
    far = [carrier for carrier in carriers if carrier.across is not None]
    for part, measured in (("c", far_actors), ("d", link)):
        if part not in plan.parts:
            continue
        if reason := namespaces.refusal() or (None if far else "nothing to carry: needs MPI"):
            skipped[f"part {part}"] = reason
        else:
            rows += measured(plan, far, skipped, say)
    return Measured(rows, skipped, others)


def tried(
    carrier: Carrier, run: Callable[[Experiment], T], experiment: Experiment, skipped: Skipped
) -> T | None:
    """A peer that fails is named and left out from then on; our own transports may not fail."""
    if carrier.name in skipped:
        return None
    try:
        return run(experiment)
    except TianJiError as error:
        if not carrier.is_peer:
            raise
        skipped[carrier.name] = f"failed: {error}"
        return None


def foreign_load(seconds: float = LOOK_SECONDS) -> float:
    """The share of this machine that is in use while this process sleeps."""
    before = _cpu_times()
    time.sleep(seconds)
    busy, total = (after - first for after, first in zip(_cpu_times(), before, strict=True))
    return busy / max(total, 1)


def _cpu_times() -> tuple[int, int]:
    """Busy and all ticks since the machine was started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


# ------------------------------------------------------------------------------------ (a) and (d)


def sizes(plan: Plan, carriers: list[Carrier], skipped: Skipped, say: Say) -> list[Row]:
    """Part a: one actor that sends as fast as it can, beside plain copies of the same bytes."""
    rows = []
    for size in plan.sizes:
        say(f"a: {size // 1024:,} KB")
        experiment = Experiment(size, plan.n_messages(size, plan.figure_bytes), depth=DEPTH)
        few = Experiment(size, max(16, experiment.n_messages // 8), depth=DEPTH)
        times: dict[str, list[float]] = defaultdict(list)
        wrong: dict[str, int] = defaultdict(int)
        for i in range(plan.rounds):
            times[MEMCPY].append(memcpy_seconds(experiment))
            times["beside"].append(memcpy_beside_seconds(experiment))
            times[COPY].append(copy_between_seconds(experiment))
            for carrier, use in _uses(plan, carriers, size, i):
                given = few if carrier.is_peer else experiment
                found = tried(carrier, carrier.run, _using(given, use), skipped)
                if found is not None:
                    scale = experiment.n_messages / given.n_messages
                    times[f"{carrier.name} {use.value}"].append(found.seconds * scale)
                    wrong[f"{carrier.name} {use.value}"] += found.n_wrong
        for carrier, use in _uses(plan, carriers, size, 0):
            if (key := f"{carrier.name} {use.value}") in times:
                rows.append(_size_row(experiment, carrier.name, use, times, wrong[key]))
    return rows


def _uses(plan: Plan, carriers: list[Carrier], size: int, i: int) -> list[tuple[Carrier, Use]]:
    """What is measured at a size in round `i`."""
    found = []
    for carrier in carriers:
        if carrier.name in ("local", "shm"):
            found += [(carrier, use) for use in Use]
        elif size in plan.peer_sizes and i < plan.peer_rounds:
            found += [(carrier, use) for use in Use if carrier.has_views or use is Use.STORE]
    return found


def _using(experiment: Experiment, use: Use) -> Experiment:
    return Experiment(experiment.message_bytes, experiment.n_messages, use=use, depth=DEPTH)


def _size_row(experiment: Experiment, carrier: str, use: Use, times: Times, wrong: int) -> Row:
    taken = times[f"{carrier} {use.value}"]
    limit = MEMCPY if use is Use.VIEWS else COPY
    return Row(
        "a",
        carrier,
        use.value,
        experiment.message_bytes,
        experiment.n_messages,
        median(taken),
        limit=limit,
        limit_seconds=median(times[limit]),
        of_limit=_ratio(times[limit], taken),
        of_beside=_ratio(times["beside"], taken) if use is Use.VIEWS else None,
        n_wrong=wrong,
    )


def _ratio(limit: list[float], taken: list[float]) -> float:
    """Within each round, because a noisy minute hits both."""
    return median(least / took for least, took in zip(limit, taken, strict=False))


def link(plan: Plan, carriers: list[Carrier], skipped: Skipped, say: Say) -> list[Row]:
    """Part d: one actor on another host, beside raw TCP over the same link."""
    rows = []
    with Hosts(2, LINK_BITS) as hosts:
        for size in plan.link_sizes:
            say(f"d: {size // 1024:,} KB over the link")
            depth = max(DEPTH, LINK_BYTES // size)
            experiment = Experiment(size, plan.n_messages(size, plan.link_bytes), depth=depth)
            n_bytes = size * experiment.n_messages
            raw: list[float] = []
            found: dict[str, list[tuple[Collected, int]]] = defaultdict(list)
            for i in range(plan.link_rounds):
                raw.append(raw_tcp_seconds(hosts[1], hosts[0], n_bytes))
                for carrier in carriers:
                    if carrier.is_peer and (i or size not in plan.peer_sizes):
                        continue
                    across = partial(_crossing, carrier, hosts)
                    if (came := tried(carrier, across, experiment, skipped)) is not None:
                        found[carrier.name].append(came)
            rows += [_link_row(experiment, name, raw, each) for name, each in found.items()]
    return rows


def _link_row(
    experiment: Experiment, carrier: str, raw: list[float], found: list[tuple[Collected, int]]
) -> Row:
    taken = [collected.seconds for collected, _ in found]
    return Row(
        "d",
        carrier,
        experiment.use.value,
        experiment.message_bytes,
        experiment.n_messages,
        median(taken),
        n_hosts=2,
        limit=RAW_TCP,
        limit_seconds=median(raw),
        of_limit=_ratio(raw, taken),
        wire_bytes=found[-1][1],
        wire_payload_bytes=_sent_bytes(experiment),
        n_wrong=sum(collected.n_wrong for collected, _ in found),
    )


def _crossing(carrier: Carrier, hosts: Hosts, experiment: Experiment) -> tuple[Collected, int]:
    """One run between hosts, and the bytes that came over the receiver's link."""
    assert carrier.across is not None
    before = hosts[0].received_bytes()
    found = carrier.across(experiment, hosts)
    came = hosts[0].received_bytes() - before
    if came < (wanted := _sent_bytes(experiment)):
        raise TianJiError(
            f"{carrier.name}: {wanted:,} bytes were sent, but {came:,} came over the link: "
            "it has found another way between the hosts, and the figure would mean nothing"
        )
    return found, came


def _sent_bytes(experiment: Experiment) -> int:
    """At least, with the messages that warm the memory."""
    n = experiment.n_messages + experiment.n_actors * experiment.depth
    return n * experiment.message_bytes


# ------------------------------------------------------------------------------------ (b) and (c)


def actors(plan: Plan, carriers: list[Carrier], skipped: Skipped, say: Say) -> list[Row]:
    """Part b: actors that sleep for the sample time, all on this machine."""
    rows = []
    for carrier in carriers:
        if carrier.name == "local" or carrier.name not in plan.crowds:
            continue  # actors of one process cannot sleep side by side
        samples = plan.peer_samples if carrier.is_peer else plan.samples
        curve = _Curve("b", carrier, carrier.run, plan, samples, plan.actors)
        rows += curve.measure(skipped, say)
    return rows


def far_actors(plan: Plan, carriers: list[Carrier], skipped: Skipped, say: Say) -> list[Row]:
    """Part c: the same with the actors spread over several hosts, the receiver alone on another."""
    rows = []
    with Hosts(plan.n_hosts, LINK_BITS) as hosts:
        for carrier in carriers:
            if carrier.is_peer:
                continue

            def run(experiment: Experiment, carrier: Carrier = carrier) -> Collected:
                return _crossing(carrier, hosts, experiment)[0]

            curve = _Curve(
                "c", carrier, run, plan, plan.host_samples, plan.host_actors, plan.n_hosts
            )
            rows += curve.measure(skipped, say)
    return rows


class _Curve:
    """Collection times of one carrier over numbers of actors and sample times.

    What equation 1 is given is measured apart from what it predicts: Tsp and Tsd of a single actor,
    and Trv where that many actors send without sampling, so that the receiver never waits.
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
        self._alone: dict[float, Collected] = {}  # one actor, by sample time

    def measure(self, skipped: Skipped, say: Say) -> list[Row]:
        """Every point, with the rounds of one number of actors side by side."""
        rows = []
        for n_actors in self._actors:
            say(f"{self._part}: {self._carrier.name}, {n_actors} actors")
            times = (0.0, *self._plan.sample_seconds)
            found: dict[float, list[Collected]] = {seconds: [] for seconds in times}
            for _ in range(1 if self._carrier.is_peer else self._plan.actor_rounds):
                for seconds in times:
                    if not seconds and self._carrier.is_peer:
                        continue
                    experiment = self._experiment(n_actors, seconds)
                    one = tried(self._carrier, self._run, experiment, skipped)
                    found[seconds] += [] if one is None else [one]
            rows += [self._row(n_actors, each, found) for each in times[1:] if found[each]]
        return rows

    def _experiment(self, n_actors: int, seconds: float) -> Experiment:
        n = self._plan.n_samples(self._samples, n_actors, seconds)
        return Experiment(MESSAGE_BYTES, n, n_actors, seconds, Use.STORE, CROWD_DEPTH)

    def _row(self, n_actors: int, seconds: float, found: dict[float, list[Collected]]) -> Row:
        """The median round: of the errors where there is a prediction, else of the times.

        Trv and the time are of the same round, because a noisy minute hits both.
        """
        rounds = found[seconds]
        full: list[Collected | None] = [*found[0.0]] or [None] * len(rounds)
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
        if self._n_hosts > 1:  # the receiver's link is what it spends the time on
            received = full.seconds / self._experiment(n_actors, 0.0).n_messages
        return Costs(alone.sample_seconds, alone.send_seconds, received)
