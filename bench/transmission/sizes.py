"""Parts a and d: one actor that sends as fast as it can, on this host and across a link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from statistics import median

from transmission.carriers import Carrier
from transmission.experiment import Collected, Experiment, Use
from transmission.hosts import Hosts
from transmission.limits import (
    copy_between_seconds,
    memcpy_beside_seconds,
    memcpy_seconds,
    raw_tcp_seconds,
)
from transmission.plan import LINK_BITS, Plan
from transmission.rows import Row
from transmission.steps import Part, Skipped, Step, crossing, run_or_skip

DEPTH, LEAST_DEPTH = 8, 2  # messages in flight; a trajectory's channel has 2 to 16
FLIGHT_BYTES = 8 << 20  # of large messages fewer are: caches hold them, and so do those of a run
LINK_BYTES = 1 << 19  # in flight across a link: four milliseconds of 1 Gbit/s
FEWER = 8  # times fewer messages for a peer
MEMCPY, BESIDE, COPY, RAW_TCP = "memcpy", "memcpy beside", "plain copy", "raw TCP"
LIMITS = {
    MEMCPY: memcpy_seconds,
    BESIDE: memcpy_beside_seconds,
    COPY: copy_between_seconds,
}

Times = dict[str, list[float]]  # seconds of every round


def part_a(plan: Plan, carriers: list[Carrier], skipped: Skipped) -> Part:
    """Messages of all sizes, beside plain copies of the same bytes."""
    return Part("a", [_one_host(plan, carriers, skipped, size) for size in plan.sizes])


def _one_host(plan: Plan, carriers: list[Carrier], skipped: Skipped, size: int) -> Step:
    depth = max(LEAST_DEPTH, min(DEPTH, FLIGHT_BYTES // size))
    experiment = Experiment(size, plan.n_messages(size, plan.figure_bytes), depth=depth)
    return Step(f"a: {size // 1024:,} KB", partial(_sizes, plan, carriers, skipped, experiment))


def _sizes(
    plan: Plan, carriers: list[Carrier], skipped: Skipped, experiment: Experiment
) -> list[Row]:
    size = experiment.message_bytes
    times: Times = defaultdict(list)
    wrong: dict[str, int] = defaultdict(int)
    for i in range(plan.rounds):
        for name, seconds_of in LIMITS.items():
            times[name].append(seconds_of(experiment))
        for carrier, use in _uses(plan, carriers, size, i):
            given = _given(experiment, carrier, use)
            found = run_or_skip(carrier, carrier.run, given, skipped)
            if found is not None:
                scale = experiment.n_messages / given.n_messages
                times[_key(carrier, use)].append(found.seconds * scale)
                wrong[_key(carrier, use)] += found.n_wrong
    return [
        _size_row(experiment, carrier, use, times, wrong[_key(carrier, use)])
        for carrier, use in _uses(plan, carriers, size, 0)
        if _key(carrier, use) in times
    ]


def _uses(plan: Plan, carriers: list[Carrier], size: int, i: int) -> Iterable[tuple[Carrier, Use]]:
    """What is measured at a size in round `i`."""
    for carrier in carriers:
        if carrier.name in ("local", "shm"):
            yield from ((carrier, use) for use in Use)
        elif size in plan.peer_sizes and i < plan.peer_rounds:
            yield from ((carrier, use) for use in Use if carrier.has_views or use is Use.STORE)


def _given(experiment: Experiment, carrier: Carrier, use: Use) -> Experiment:
    n = experiment.n_messages
    return replace(experiment, use=use, n_messages=max(16, n // FEWER) if carrier.is_peer else n)


def _key(carrier: Carrier, use: Use) -> str:
    return f"{carrier.name} {use.value}"


def _size_row(
    experiment: Experiment, carrier: Carrier, use: Use, times: Times, n_wrong: int
) -> Row:
    taken = times[_key(carrier, use)]
    limit = MEMCPY if use is Use.VIEWS else COPY
    return Row(
        "a",
        carrier.name,
        use.value,
        experiment.message_bytes,
        experiment.n_messages,
        median(taken),
        limit=limit,
        limit_seconds=median(times[limit]),
        of_limit=_ratio(times[limit], taken),
        of_beside=_ratio(times[BESIDE], taken) if use is Use.VIEWS else None,
        n_wrong=n_wrong,
    )


def _ratio(limit: list[float], taken: list[float]) -> float:
    """Within each round, because a noisy minute hits both."""
    return median(least / took for least, took in zip(limit, taken, strict=False))


def part_d(plan: Plan, carriers: list[Carrier], skipped: Skipped) -> Part:
    """The actor is on another host, beside raw TCP over the same link."""
    hosts = Hosts(2, LINK_BITS)
    return Part("d", [_link(plan, carriers, skipped, hosts, n) for n in plan.link_sizes], hosts)


def _link(plan: Plan, carriers: list[Carrier], skipped: Skipped, hosts: Hosts, size: int) -> Step:
    depth = max(DEPTH, LINK_BYTES // size)
    experiment = Experiment(size, plan.n_messages(size, plan.link_bytes), depth=depth)
    measure = partial(_links, plan, carriers, skipped, hosts, experiment)
    return Step(f"d: {size // 1024:,} KB over the link", measure)


def _links(
    plan: Plan, carriers: list[Carrier], skipped: Skipped, hosts: Hosts, experiment: Experiment
) -> list[Row]:
    raw: list[float] = []
    found: dict[str, list[tuple[Collected, int]]] = defaultdict(list)
    n_bytes = experiment.message_bytes * experiment.n_messages
    for i in range(plan.link_rounds):
        raw.append(raw_tcp_seconds(hosts[1], hosts[0], n_bytes))
        for carrier in _crossed(plan, carriers, experiment.message_bytes, i):
            across = partial(crossing, carrier, hosts)
            if (came := run_or_skip(carrier, across, experiment, skipped)) is not None:
                found[carrier.name].append(came)
    return [_link_row(experiment, name, raw, each) for name, each in found.items()]


def _crossed(plan: Plan, carriers: list[Carrier], size: int, i: int) -> list[Carrier]:
    """Peers cross once, and not with every size."""
    is_asked = size in plan.peer_sizes and i == 0
    return [carrier for carrier in carriers if is_asked or not carrier.is_peer]


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
        wire_payload_bytes=experiment.n_bytes,
        n_wrong=sum(collected.n_wrong for collected, _ in found),
    )
