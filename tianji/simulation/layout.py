"""A split of cores that is asked about, and the costs that it has by a profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tianji.errors import TianJiError
from tianji.planning.profile import ActorCost, LearnerCost, Profile

DEPTH = 2  # trajectories that an actor may have under way, the one it writes among them
EXCHANGE_SECONDS = 15e-6  # of learners that share a batch: a message of no size (docs/groups.md)
EXCHANGE_BYTES_PER_SECOND = 7e9  # and of a large one


@dataclass(frozen=True)
class Layout:
    """How many of what, and what is between the hosts."""

    groups: int = 1
    learners: int = 1  # of each group; they share every batch
    learner_cores: int = 1  # of each learner
    actors: int = 1  # of each group
    envs: int | None = None  # of each actor; None: see `envs_of`
    hosts: int = 1
    link_bytes_per_second: float | None = None  # each way of each host; None: the profile's
    buffer_alone: bool = False  # on a core of its own
    gpu: bool = False
    link_seconds: float = 100e-6  # from the last byte sent to the first one used
    fusion_interval: int = 10  # updates from one fusion of the groups to the next

    def __post_init__(self) -> None:
        counts = ("groups", "learners", "learner_cores", "actors", "hosts", "fusion_interval")
        for name in counts:
            if getattr(self, name) < 1:
                raise TianJiError(f"{name}: want at least 1, got {getattr(self, name)}")
        if self.envs is not None and self.envs < 1:
            raise TianJiError(f"envs: want at least 1, got {self.envs}")
        if self.link_bytes_per_second is not None and self.link_bytes_per_second <= 0:
            raise TianJiError(f"link: want a speed above 0, got {self.link_bytes_per_second:g}")

    @property
    def fixed_cores(self) -> int:
        """Of one group, beside its actors."""
        return self.learners * self.learner_cores + self.buffer_alone

    def group_cores(self, alternates: bool) -> int:
        """Of one group; where acting and learning take turns, both use the same."""
        if alternates:
            return max(self.fixed_cores, self.actors)
        return self.fixed_cores + self.actors

    @property
    def hosts_per_group(self) -> int:
        """A group stays on one host where there are as many groups as hosts."""
        return max(1, math.ceil(self.hosts / self.groups))


@dataclass(frozen=True)
class Costs:
    """One group, in numbers that need no profile."""

    actors: int
    steps: int  # T
    units: int  # of one trajectory, T * E
    rollout_seconds: float  # T_sp: T steps of E environments
    send_seconds: float  # T_sd
    receive_seconds: float  # T_rv
    load_seconds: float  # an actor takes newer weights
    batch: int
    pool: int
    update_seconds: float
    draw_seconds: float
    ratio: float
    send_interval: int = 1
    is_alone: bool = False  # the buffer, on a core of its own
    alternates: bool = False
    per_version: int = 1  # trajectories that each actor sends for an update, if they alternate
    takes_once: bool = False  # each sample is learned from in one batch only
    remote: int = 0  # actors on other hosts than the learner
    remote_hosts: int = 0
    link_bytes_per_second: float = math.inf
    link_seconds: float = 0.0
    trajectory_bytes: int = 0
    weights_bytes: int = 0
    priority_seconds: float = 0.0  # new priorities of a batch, which the next draw waits for
    insert_seconds: float = 0.0  # priorities of a trajectory that has come

    @property
    def slack(self) -> int:
        """Units that may come ahead, as `job.Job.slack` has them."""
        return self.actors * self.units if self.is_alone else 0

    @property
    def batches_ahead(self) -> int:
        """As `job.Job.batches_ahead`; priorities must be back before the next batch is drawn."""
        return 1 if self.takes_once or self.priority_seconds else 2

    @property
    def knee(self) -> float:
        """Equation 1: actors beyond which one buffer cannot receive more."""
        if not self.receive_seconds:
            return math.inf
        return (self.rollout_seconds + self.send_seconds) / self.receive_seconds


def costs_of(profile: Profile, layout: Layout) -> Costs:
    """What one group of a layout costs; raises where the profile cannot say."""
    work = profile.work
    if layout.gpu and profile.machine.gpu is None:
        raise TianJiError(
            "--gpu: the profile was measured without a GPU: make one where there is one"
        )
    envs = envs_of(profile, layout)
    actor = actor_cost(profile.actors, envs)
    units = work.steps * envs
    batch, pool = work.batch, work.pool
    if work.on_policy or work.alternates:  # whole trajectories, as many batches as ever in the pool
        batch = max(1, work.rollouts or layout.actors) * units
        pool = batch if work.alternates else max(1, round(work.pool / work.batch)) * batch
    cores, part = layout.learner_cores, math.ceil(batch / layout.learners)
    whole = learner_cost(profile.learners, cores, batch)
    learner = learner_cost(profile.learners, cores, part)
    remote = _remote(layout, work.alternates)
    link = layout.link_bytes_per_second or profile.link_bytes_per_second
    if remote and link is None:
        raise TianJiError(
            f"{layout.hosts} hosts for {layout.groups} groups: trajectories cross a link whose "
            "speed is not known: say it with --link-gbit"
        )
    return Costs(
        actors=layout.actors,
        steps=work.steps,
        units=units,
        rollout_seconds=work.steps * actor.step_seconds,
        send_seconds=actor.send_seconds,
        receive_seconds=actor.receive_seconds,
        load_seconds=profile.load_seconds,
        batch=batch,
        pool=pool,
        update_seconds=learner.update_seconds + _exchange(layout.learners, work.weights_bytes),
        draw_seconds=whole.draw_seconds,  # one buffer makes all parts
        ratio=work.ratio,
        send_interval=work.send_interval,
        is_alone=layout.buffer_alone,
        alternates=work.alternates,
        per_version=max(1, batch // (units * layout.actors)),
        takes_once=work.on_policy or work.alternates,
        remote=remote,
        remote_hosts=layout.hosts_per_group - 1,
        link_bytes_per_second=link or math.inf,
        link_seconds=layout.link_seconds,
        trajectory_bytes=actor.trajectory_bytes,
        weights_bytes=work.weights_bytes,
    )


def envs_of(profile: Profile, layout: Layout) -> int:
    """Environments of each actor.

    Unless they were said: in synchronous training those of the configuration, spread over the
    actors; otherwise the measured number that gives an actor the most steps per second.
    """
    if layout.envs is not None:
        return layout.envs
    if profile.work.alternates:
        return max(1, profile.work.envs // layout.actors)
    return max(profile.actors, key=lambda cost: cost.envs / cost.step_seconds).envs


def actor_cost(measured: Sequence[ActorCost], envs: int) -> ActorCost:
    """The cost of an actor with so many environments, on the line through the two nearest."""
    if not measured:
        raise TianJiError("the profile has no actor: measure it again")
    low, high = _around([cost.envs for cost in measured], envs)
    a, b = measured[low], measured[high]

    def at(x: float, y: float) -> float:
        return _line(a.envs, x, b.envs, y, envs)

    return ActorCost(
        envs=envs,
        step_seconds=at(a.step_seconds, b.step_seconds),
        send_seconds=at(a.send_seconds, b.send_seconds),
        receive_seconds=at(a.receive_seconds, b.receive_seconds),
        trajectory_bytes=round(at(a.trajectory_bytes, b.trajectory_bytes)),
        memory_bytes=round(at(a.memory_bytes, b.memory_bytes)),
        act_seconds=None
        if a.act_seconds is None or b.act_seconds is None
        else at(a.act_seconds, b.act_seconds),
    )


def learner_cost(measured: Sequence[LearnerCost], cores: int, batch: int) -> LearnerCost:
    """The cost of a learner; more cores than were measured bring nothing that was not measured."""
    if not measured:
        raise TianJiError("the profile has no learner: measure it again")
    counts = sorted({cost.cores for cost in measured})
    nearest = max((n for n in counts if n <= cores), default=counts[0])
    slower = max(1.0, nearest / cores)
    known = sorted((c for c in measured if c.cores == nearest), key=lambda cost: cost.batch)
    low, high = _around([cost.batch for cost in known], batch)
    a, b = known[low], known[high]

    def at(x: float, y: float) -> float:
        return _line(a.batch, x, b.batch, y, batch)

    return LearnerCost(
        cores=cores,
        batch=batch,
        update_seconds=slower * at(a.update_seconds, b.update_seconds),
        draw_seconds=at(a.draw_seconds, b.draw_seconds),
        memory_bytes=round(at(a.memory_bytes, b.memory_bytes)),
    )


def _around(sizes: Sequence[int], wanted: int) -> tuple[int, int]:
    """The places of the two measured sizes whose line is followed; the same one twice if alone."""
    above = next((i for i, size in enumerate(sizes) if size >= wanted), len(sizes) - 1)
    if sizes[above] == wanted or len(sizes) == 1:
        return above, above
    return max(above - 1, 0), max(above, 1)


def _line(x0: int, y0: float, x1: int, y1: float, x: int) -> float:
    """A cost at x; in proportion to x where only one is known, never below zero."""
    if x0 == x1:
        return y0 * x / x0
    return max(y0 + (y1 - y0) * (x - x0) / (x1 - x0), min(y0, y1) * min(1.0, x / x0))


def _remote(layout: Layout, alternates: bool) -> int:
    """Actors of a group that its learner's host has no room for."""
    hosts = layout.hosts_per_group
    if hosts == 1:
        return 0
    per_host = math.ceil(layout.group_cores(alternates) / hosts)
    here = per_host if alternates else max(0, per_host - layout.fixed_cores)
    return layout.actors - min(layout.actors, here)


def _exchange(learners: int, weights_bytes: int) -> float:
    """Seconds in which learners send each other one gradient."""
    others = learners - 1
    return others * (EXCHANGE_SECONDS + weights_bytes / EXCHANGE_BYTES_PER_SECOND)
