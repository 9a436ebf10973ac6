"""How fast a run goes and where the time of its roles went, from two readings of their counters."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tianji.core.counts import SPENT, WAITS, Count, Vector, whole_of
from tianji.job.job import Job
from tianji.job.wiring import channels_of
from tianji.observe.watch import Progress, updates_by_group
from tianji.roles.role_specs import MEAN, Kind, kind_of, roles_of

WORK: dict[Kind | None, Count] = {
    Kind.ACTOR: Count.PRODUCED,
    Kind.INFERENCE: Count.PRODUCED,
    Kind.BUFFER: Count.RECEIVED,
    Kind.LEARNER: Count.VERSION,
    Kind.REDUCER: Count.FUSIONS,
}
"""The counter by which the rate of each kind of role is measured."""

Counts = Mapping[str, Vector]  # by role


class TimeShare(NamedTuple):
    """Where the time of a role went; the rest is that of roles in the same process.

    All of a process adds up to its time: the busy shares of its roles, and what they have in
    common, idle, paused and overhead. What is idle is divided once more, for each role by what it
    waited for, in the order of `WAITS`.
    """

    busy: float  # in steps that did something
    idle: float  # its process had nothing to do
    paused: float = 0.0  # it was told to rest
    overhead: float = 0.0  # its process looked in vain, reported or copied for a checkpoint
    wait_weights: float = 0.0
    wait_trajectories: float = 0.0
    wait_batch: float = 0.0
    wait_gradients: float = 0.0
    wait_parameters: float = 0.0
    wait_actions: float = 0.0
    wait_steps: float = 0.0
    wait_order: float = 0.0
    wait_room: float = 0.0

    def row(self, kind: Kind | None) -> dict[str, float]:
        """All by name, without what no role of this kind ever waits for."""
        waits = WAITS_OF.get(kind, ())
        said = self._asdict().items()
        return {name: v for name, v in said if not name.startswith("wait_") or name in waits}


WAITS_OF: dict[Kind | None, tuple[str, ...]] = {
    Kind.ACTOR: ("wait_weights", "wait_actions", "wait_room"),
    Kind.INFERENCE: ("wait_weights", "wait_steps", "wait_room"),
    Kind.BUFFER: ("wait_trajectories", "wait_room"),
    Kind.LEARNER: ("wait_batch", "wait_gradients"),
    Kind.REDUCER: ("wait_parameters",),
}

NOTHING = TimeShare(0.0, 0.0)


@dataclass(frozen=True)
class Rates:
    """How fast things went over an interval."""

    production: float = 0.0  # steps per second
    receiving: float = 0.0  # steps per second
    consumption: float = 0.0  # samples per second
    roles: dict[str, float] = field(default_factory=dict)  # work per second, as in `WORK`
    shares: dict[str, TimeShare] = field(default_factory=dict)
    n_bytes: float = 0.0  # pushed per second
    lost: frozenset[str] = frozenset()  # roles that have died

    @property
    def n_awake(self) -> float:
        """Actors that live, each by the share of its time that it was not paused."""
        living = [name for name in self.shares if name not in self.lost]
        return sum(1.0 - self.shares[n].paused for n in living if kind_of(n) is Kind.ACTOR)


class Meter:
    """Turns counters into rates over the last `seconds`, or since the last reading if longer."""

    def __init__(
        self,
        homes: Mapping[str, str],
        seconds: float = 1.0,
        message_bytes: Mapping[str, int] | None = None,
    ) -> None:
        self._homes = homes
        self._seconds = seconds
        self._message_bytes = message_bytes or {}
        self._readings: deque[tuple[float, Counts]] = deque()

    def read(self, progress: Progress, now: float) -> Rates:
        """The rates of this process until now, over all of its time while that is shorter."""
        if progress.started_at is None:
            return Rates()
        if not self._readings:
            self._readings.append((progress.started_at, at_start(progress)))
        while len(self._readings) > 1 and self._readings[1][0] <= now - self._seconds:
            self._readings.popleft()
        self._readings.append((now, dict(progress.counts)))
        (began, before), after = self._readings[0], progress.counts
        seconds = max(now - began, 1e-3)
        speed = {name: (counts - before[name]) / seconds for name, counts in after.items()}
        per_role = {n: float(s[WORK[kind_of(n)]]) for n, s in speed.items() if kind_of(n) in WORK}
        totals = dict.fromkeys(WORK, 0.0)
        for name, rate in per_role.items():
            totals[kind_of(name)] += rate
        return Rates(
            totals[Kind.ACTOR],
            totals[Kind.BUFFER],
            float(sum(s[Count.CONSUMED] for s in speed.values())),
            per_role,
            shares(before, after, self._homes),
            float(sum(s[Count.PUSHED] * self._message_bytes.get(n, 0) for n, s in speed.items())),
            frozenset(progress.lost),
        )


def message_bytes(job: Job) -> dict[str, int]:
    """The size of what each role pushes: a trajectory, a whole batch, the weights or the mean."""
    pushed = ("trajectories", "batches", "weights", MEAN)
    sizes: dict[str, int] = {}
    for spec in channels_of(job):
        if spec.name.partition(" ")[0] in pushed:
            sizes[spec.source] = sizes.get(spec.source, 0) + spec.schema.n_bytes
    return sizes


def at_start(progress: Progress) -> Counts:
    """The counters when all roles were ready: what a resumed run began with, and waiting."""
    counts = {}
    for name, now in progress.counts.items():
        ready = now[Count.READY_AT]
        base = counts[name] = progress.base.get(name, np.zeros(len(Count))).copy()
        if progress.started_at is not None and ready:
            idle = now[Count.IDLE_SECONDS] - base[Count.IDLE_SECONDS]
            waited = max(0.0, progress.started_at - ready)  # one that was replaced has none
            base[Count.IDLE_SECONDS] += min(waited, idle)
            _take_off(base, now, min(waited, idle))
    return counts


def _take_off(base: Vector, now: Vector, waited: float) -> None:
    """Of what a role waited for, that comes first which it lacks first: `WAITS` begins with it."""
    for what in WAITS:
        taken = min(waited, now[what] - base[what])
        base[what] += taken
        waited -= taken


def updates_since(progress: Progress) -> int:
    """Updates of this process: those before a resume are not measured in it."""
    return progress.updates - sum(updates_by_group(progress.base).values())


def homes_in(job: Job, engine: str) -> dict[str, str]:
    """Which process each role lives in; the local engine has only one."""
    return {role.name: "here" if engine == "local" else role.home for role in roles_of(job.config)}


def shares(before: Counts, after: Counts, homes: Mapping[str, str]) -> dict[str, TimeShare]:
    """Where the time of every role went; roles that live together share one time."""
    since = {name: counts - before[name] for name, counts in after.items()}
    spent = {name: counts[SPENT + WAITS] for name, counts in since.items()}
    together: dict[str, list[Vector]] = {}
    for name, counts in since.items():
        together.setdefault(homes[name], []).append(counts)
    whole = {home: whole_of(all_) for home, all_ in together.items()}
    return {
        name: TimeShare(*(times / whole[homes[name]]).tolist())
        if whole[homes[name]] > 0
        else NOTHING
        for name, times in spent.items()
    }
