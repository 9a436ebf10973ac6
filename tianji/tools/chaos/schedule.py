"""Which fault comes when, and whom it hits: all of it follows from a seed."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tianji.config.section import nearest
from tianji.core.errors import TianJiError
from tianji.roles.role_specs import Kind, kind_of

T = TypeVar("T")
RUN = "run"  # the victim of a fault that hits every process
REPLACED = frozenset({Kind.ACTOR, Kind.BUFFER, Kind.LEARNER})  # unless a configuration says less


class Fault(enum.StrEnum):
    """What is done to a run."""

    KILL = "kill"
    STOP = "stop"
    ACTORS = "actors"
    SEGFAULT = "segfault"
    SLOW = "slow"
    HANG = "hang"
    RAISE = "raise"
    NAN = "nan"
    DISK = "disk"


MEANINGS = {
    Fault.KILL: "SIGKILL of a process",
    Fault.STOP: "a process stands still for some seconds",
    Fault.ACTORS: "SIGKILL of all actors at once",
    Fault.SEGFAULT: "an environment crashes with its actor",
    Fault.SLOW: "an environment takes longer for some seconds",
    Fault.HANG: "a step of an environment never ends",
    Fault.RAISE: "an environment raises an exception",
    Fault.NAN: "an environment pays NaN",
    Fault.DISK: "no file can be written for some seconds",
}

LASTING = {Fault.STOP: (1.0, 4.0), Fault.SLOW: (1.0, 4.0), Fault.DISK: (6.0, 8.0)}
"""Seconds that a fault lasts, at least and at most; the others are done at once.

The disk is full for longer than from one checkpoint to the next.
"""

CHANGING = {Fault.KILL, Fault.ACTORS, Fault.SEGFAULT, Fault.HANG}
"""Faults that cost a process, so that another must take its place."""

IN_ENVIRONMENT = {Fault.SLOW, Fault.HANG, Fault.RAISE, Fault.NAN}
"""Faults that happen within a step of an environment."""


@dataclass(frozen=True)
class Strike:
    """One fault of a schedule."""

    pause: float  # seconds from the recovery of the one before
    fault: Fault
    victim: str  # a process, or `RUN`
    seconds: float = 0.0  # that it lasts

    def __str__(self) -> str:
        """As in `kill actor-0.1`."""
        return self.fault if self.victim == RUN else f"{self.fault} {self.victim}"


def schedule(
    seed: int,
    seconds: float,
    faults: Sequence[Fault],
    homes: Sequence[str],
    every: float,
    replaced: Collection[Kind] = REPLACED,
) -> list[Strike]:
    """The faults of `seconds` seconds, one about `every` so many; the same for the same seed.

    Every kind of fault comes once before any comes again, and so does everyone it can hit. `homes`
    are the processes of the run, of which those of some kinds are `replaced`.
    """
    random = np.random.default_rng(seed)
    strikes, at = list[Strike](), 0.0
    kinds = _in_turns(faults, random)
    whom = {fault: _in_turns(victims(fault, homes, replaced), random) for fault in faults}
    for fault in kinds:
        low, high = LASTING.get(fault, (0.0, 0.0))
        strike = Strike(
            round(float(random.uniform(0.5, 1.5)) * every, 3),
            fault,
            next(whom[fault]),
            round(float(random.uniform(low, high)), 3),
        )
        at += strike.pause
        if at > seconds:
            return strikes
        strikes.append(strike)
    raise AssertionError


def _in_turns(things: Sequence[T], random: np.random.Generator) -> Iterator[T]:
    """All of them in any order, then all again in another one, without end."""
    while True:
        yield from (things[int(i)] for i in random.permutation(len(things)))


def chosen(words: str | None) -> list[Fault]:
    """The faults that `--faults` names, as in "kill,hang"; without it all that can be had here."""
    if words is None:
        return list(Fault)
    names = [word.strip() for word in words.split(",")]
    for name in names:
        if name not in list(Fault):
            near = nearest(name, [fault.value for fault in Fault], "There are")
            raise TianJiError(f"--faults: {name!r} is no fault. {near}")
    return list(dict.fromkeys(map(Fault, names)))


def victims(fault: Fault, homes: Sequence[str], replaced: Collection[Kind]) -> list[str]:
    """Whom a fault may hit; a process that nobody replaces is not to be lost."""
    if fault in (Fault.ACTORS, Fault.DISK):
        return [RUN]
    if fault is Fault.STOP:
        return list(homes)
    if fault is Fault.KILL:
        return [home for home in homes if kind_of(home) in replaced]
    return [home for home in homes if kind_of(home) is Kind.ACTOR]
