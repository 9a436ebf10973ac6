"""What a part of a run consists of, and how a peer that fails is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tianji.core.errors import TianJiError
from transmission.carriers import Carrier
from transmission.experiment import Collected, Experiment
from transmission.hosts import Hosts
from transmission.rows import Row

Skipped = dict[str, str]  # what was left out, and why
T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One size or one number of actors, which is announced before it is measured."""

    words: str
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
