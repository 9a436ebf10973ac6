"""What a part of a run consists of, and how a peer that fails is left out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tianji.core.errors import TianJiError
from tianji.transmission.carriers import RATE, Carrier, Processes
from tianji.transmission.experiment import Collected, Experiment
from tianji.transmission.hosts import Hosts
from tianji.transmission.plan import LINK_BITS
from tianji.transmission.rows import Row

PROCESS_SECONDS = 0.25  # of one core, until a process of Python has loaded numpy
RANK_SECONDS = 0.5  # the same with MPI, and to leave it
JOB_SECONDS = 1.5  # for mpirun itself
HOST_SECONDS = 0.5  # for mpirun to start its own on one more host

Skipped = dict[str, str]  # what was left out, and why
T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One size or one number of actors, which is announced before it is measured."""

    words: str
    seconds: float  # that it will take, roughly
    measure: Callable[[], list[Row]]


@dataclass(frozen=True)
class Part:
    """The steps of one of the four panels of Figure 5."""

    name: str
    steps: list[Step]
    hosts: Hosts | None = None  # that are there while the part is measured


def run_or_skip(
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


def crossing(carrier: Carrier, hosts: Hosts, experiment: Experiment) -> tuple[Collected, int]:
    """One run between hosts, and the bytes that came over the receiver's link."""
    assert carrier.across is not None
    before = hosts[0].received_bytes()
    found = carrier.across(experiment, hosts)
    came = hosts[0].received_bytes() - before
    if came < (wanted := experiment.n_bytes):
        raise TianJiError(
            f"{carrier.name}: {wanted:,} bytes were sent, but {came:,} came over the link: "
            "it has found another way between the hosts, and the figure would mean nothing"
        )
    return found, came


def guess(carrier: Carrier, experiment: Experiment, n_hosts: int = 1) -> float:
    """Seconds that one run takes, with all that starts and ends it; rough, on any machine.

    It is only good for saying how much time is left.
    """
    n, cores = experiment.n_actors, len(os.sched_getaffinity(0))
    start = {
        Processes.NONE: 0.0,
        Processes.CHILDREN: PROCESS_SECONDS * max(1.0, n / cores),
        Processes.RANKS: JOB_SECONDS
        + RANK_SECONDS * max(1.0, (n + 1) / cores)
        + HOST_SECONDS * (n_hosts - 1),
    }[carrier.processes]
    return start + _carrying_seconds(experiment, carrier.rate, n_hosts)


def guess_limit(experiment: Experiment, n_hosts: int = 1) -> float:
    """The same of what carriers are compared with, which has a child beside it."""
    return PROCESS_SECONDS + _carrying_seconds(experiment, RATE, n_hosts)


def _carrying_seconds(experiment: Experiment, rate: float, n_hosts: int) -> float:
    carrying = experiment.n_bytes / (rate if n_hosts == 1 else LINK_BITS / 8)
    n = experiment.n_actors
    return max(carrying, experiment.n_messages / n * (experiment.sample_seconds or 0.0))
