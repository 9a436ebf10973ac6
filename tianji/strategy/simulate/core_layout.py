"""A split of cores that is asked about, and the costs that it has by a profile."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tianji.core.balance import depth_for, slack_for
from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.strategy.plan.costs import (
    Turn,
    actor_cost_at,
    contended_share,
    learner_cost_at,
    share_in_turns,
    shared_update_seconds,
)
from tianji.strategy.plan.profile import Profile, Work


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

    def __post_init__(self) -> None:
        for name in ("groups", "learners", "learner_cores", "actors", "hosts"):
            if getattr(self, name) < 1:
                raise TianJiError(f"{name}: want at least 1, got {getattr(self, name)}")
        if self.envs is not None and self.envs < 1:
            raise TianJiError(f"envs: want at least 1, got {self.envs}")
        if self.link_bytes_per_second is not None and self.link_bytes_per_second <= 0:
            raise TianJiError(f"link: want a speed above 0, got {self.link_bytes_per_second:g}")

    @property
    def learning_cores(self) -> int:
        """Of one group, beside its actors."""
        return self.learners * self.learner_cores + self.buffer_alone

    def group_cores(self, work: Work) -> int:
        """Of one group."""
        return work.cores_of(self.learning_cores, self.actors)

    @property
    def groups_per_host(self) -> int:
        """Of the host that has most of them."""
        return math.ceil(self.groups / self.hosts)

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
    slackless: bool = False  # nothing comes ahead
    takes_once: bool = False  # each sample is learned from in one batch only
    remote: int = 0  # actors on other hosts than the learner
    remote_hosts: int = 0
    link_bytes_per_second: float = math.inf
    link_seconds: float = 0.0
    trajectory_bytes: int = 0
    weights_bytes: int = 0

    def times(self, share: float) -> Costs:
        """The same with a share of the time of learner and buffer; of all, if they take turns."""
        return replace(
            self,
            rollout_seconds=(share if self.alternates else 1.0) * self.rollout_seconds,
            receive_seconds=share * self.receive_seconds,
            update_seconds=share * self.update_seconds,
            draw_seconds=share * self.draw_seconds,
        )

    @property
    def acting_seconds(self) -> float:
        """Of one turn of synchronous training."""
        making = self.per_version * (self.rollout_seconds + self.send_seconds)
        return making + self.load_seconds

    @property
    def learning_seconds(self) -> float:
        """The same; what came before the last trajectory is in by then."""
        return self.actors * self.receive_seconds + self.draw_seconds + self.update_seconds

    @property
    def depth(self) -> int:
        """Trajectories that an actor may have under way."""
        if self.slackless:
            return 1
        return depth_for(self.batch, self.ratio, self.actors * self.units, self.takes_once)

    @property
    def slack(self) -> int:
        """Units that may come ahead, as `job.Job.slack` has them."""
        if self.slackless or not self.is_alone:
            return 0
        return slack_for(self.batch, self.ratio, self.actors * self.units, self.takes_once)

    @property
    def batches_ahead(self) -> int:
        """As `job.Job.batches_ahead`."""
        return 1 if self.takes_once else 2

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
    actor = actor_cost_at(profile, envs)
    units = work.steps * envs
    batch, pool = work.batch, work.pool
    if work.on_policy or work.alternates:  # whole trajectories, as many batches as ever in the pool
        batch = max(1, work.rollouts or layout.actors) * units
        pool = batch if work.alternates else max(1, round(work.pool / work.batch)) * batch
    cores = layout.learner_cores
    remote = _remote(layout, work)
    link = layout.link_bytes_per_second or profile.link_bytes_per_second
    if remote and link is None:
        raise TianJiError(
            f"{count_of(layout.hosts, 'host')} for {count_of(layout.groups, 'group')}: what actors "
            "send crosses a link whose speed is not known: say it with --link-gbit"
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
        update_seconds=shared_update_seconds(
            profile, cores, batch, layout.learners, layout.groups_per_host
        ),
        draw_seconds=learner_cost_at(profile, cores, batch).draw_seconds,  # of all parts
        ratio=work.ratio,
        send_interval=work.send_interval,
        is_alone=layout.buffer_alone,
        alternates=work.alternates,
        per_version=max(1, batch // (units * layout.actors)),
        slackless=work.slackless,
        takes_once=work.on_policy or work.alternates,
        remote=remote,
        remote_hosts=min(remote, layout.hosts_per_group - 1),
        link_bytes_per_second=link or math.inf,
        link_seconds=layout.link_seconds,
        trajectory_bytes=actor.trajectory_bytes,
        weights_bytes=work.weights_bytes,
    )


def share_beside(profile: Profile, layout: Layout, busy: float) -> float:
    """The share of their measured costs that learner and buffer have beside actors so `busy`."""
    actors, cores = layout.actors - _remote(layout, profile.work), profile.machine.cores
    learner = learner_cost_at(profile, layout.learner_cores, profile.work.batch)
    if profile.work.alternates:
        measured = costs_of(profile, layout)
        learning = Turn(measured.learning_seconds, layout.learning_cores)
        acting = Turn(measured.acting_seconds, actors)
        return share_in_turns(cores, learner, layout.groups_per_host - 1, learning, acting)
    here = layout.groups_per_host * (layout.learning_cores + actors * busy)
    return contended_share(cores, learner, here - layout.learner_cores)


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


def _remote(layout: Layout, work: Work) -> int:
    """Actors of a group that its learner's host has no room for."""
    hosts = layout.hosts_per_group
    if hosts == 1:
        return 0
    per_host = math.ceil(layout.group_cores(work) / hosts)
    here = per_host if work.alternates else max(0, per_host - layout.learning_cores)
    return layout.actors - min(layout.actors, here)
