"""What one role costs, measured by giving the role itself turns in the loop of a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np

from tianji.config import Config
from tianji.config.parallel import ExitConfig
from tianji.core.counts import Count
from tianji.core.schema import Arrays
from tianji.engines.worker_loop import Loop, ProcessPorts
from tianji.job.factory import build, build_buffer, make_env, make_store
from tianji.job.job import Job, prepare
from tianji.models.acting import acts_with_others
from tianji.roles import Actor, Learner
from tianji.roles.inference import Inference
from tianji.roles.role import Role
from tianji.roles.role_specs import (
    Kind,
    RoleSpec,
    actions_of,
    batches_of,
    role_name,
    roles_of,
    steps_of,
    weights_of,
)
from tianji.strategy.probe.probe_ends import (
    Clockwork,
    Drain,
    ProbePorts,
    Published,
    Spring,
    TimedStore,
)

WARM_SECONDS = 0.15  # before an actor is measured
WARM_LEARNER_SECONDS = 0.3  # torch's first updates take long
LEAST_STEPS, LEAST_UPDATES = 2, 2  # however long they take
FAR_VERSION = 2**31  # a synchronous actor waits for no version before it
ENDLESS = 2**62  # environment steps
PLAYING_SECONDS = 0.3  # for the trajectory that a buffer gets again and again
SCHEDSTAT = Path("/proc/self/schedstat")  # of the main thread: ns on a core, ns waiting for one


@dataclass(frozen=True)
class ActorTiming:
    """What an actor did in a time."""

    seconds: float
    n_steps: int  # of all its environments at once
    n_sent: int
    length: float  # steps of a trajectory, on average
    sending: float  # seconds
    loading: float  # seconds to take newer weights once
    deciding: float  # seconds of one inference for all its environments
    trajectory_bytes: int
    memory_bytes: int
    computing: float  # share of the time in which this process had a core, or waited for one
    rollouts: list[float]  # seconds of each that is whole, where there are pauses between them
    one_pass: bool  # its policy may act for other actors together with this one


@dataclass(frozen=True)
class LearnerTiming:
    """What a learner with its buffer did in a time."""

    seconds: float
    updates: int
    n_received: int  # trajectories
    updating: float  # seconds, of the learner
    adding: float  # seconds, of the store
    drawing: float  # seconds, of the store
    storing: float  # seconds of one trajectory; of those before, if none came in this time
    memory_bytes: int  # with what little of the store was written to


def job_of(config: Config) -> Job:
    """The job of a configuration; what would end a run does not end a measurement."""
    parallel = config.parallel
    learner_cfg = replace(parallel.learner_cfg, exit_val=ExitConfig())
    config = replace(
        config,
        exp=replace(config.exp, train_steps=ENDLESS),
        parallel=replace(parallel, learner_cfg=learner_cfg),
    )
    env = make_env(config)
    spec = env.spec
    env.close()
    return prepare(config, spec)


class ActorProbe:
    """An actor with all its environments, ready to be measured, with a pause after each message.

    Where an inference role acts for it, both are measured, taking turns in one process: that is all
    that they do, but for waking each other.
    """

    def __init__(self, config: Config, pause: float = 0.0) -> None:
        self._job = job = _without_versions(job_of(config))
        group = {role.kind: role for role in reversed(roles_of(config)) if role.group == 0}
        name = group[Kind.ACTOR].name
        self._ports = ports = ProbePorts(job)
        self._weights = np.zeros(job.algorithm.n_weights(job.task), np.float32)
        ports.inboxes[weights_of(0)] = Published(self._weights, FAR_VERSION)
        self._roles: list[Role]
        self._acts: Actor | Inference
        if Kind.INFERENCE in group:
            ports.join(steps_of(name))
            ports.join(actions_of(name))
            self._acts = cast(Inference, build(group[Kind.INFERENCE], job, ports))
            self._roles = [self._acts, build(group[Kind.ACTOR], job, ports)]
            seat = self._acts.seats[0]
            self._writer, self._policies = seat.trajectory, seat.policies
        else:
            self._acts = cast(Actor, build(group[Kind.ACTOR], job, ports))
            self._roles = [self._acts]
            self._writer, self._policies = self._acts.trajectory, [self._acts.policy]
        self._drain = cast(Drain, ports.outbox(f"trajectories {name}"))
        self._drain.pause = pause

    def run(self, seconds: float, go: Callable[[], None] = lambda: None) -> ActorTiming:
        """Acts for `seconds`, once; `go` returns when everybody is warm."""
        acts, drain, writer = self._acts, self._drain, self._writer
        marks: list[tuple[float, float, float, float, float, float]] = []

        def steps_taken() -> int:
            return drain.n_steps + (writer.length if writer.is_open else 0)

        def read() -> None:
            awake = time.perf_counter() - drain.paused
            done = steps_taken(), drain.n_sent, drain.seconds
            busy = float(acts.counts[Count.BUSY_SECONDS]) - drain.paused
            marks.append((awake, *done, busy, time.process_time() + queued_seconds()))

        def enough() -> bool:
            return not marks or steps_taken() >= LEAST_STEPS + marks[0][1]

        own = dict[str, float]()
        deed = self._deciding()

        def ready() -> None:
            own["loading"] = _usual(self._load)
            own["deciding"] = _usual(deed)
            go()

        clock = Clockwork(WARM_SECONDS, seconds, read, enough, ready)
        acts.weights = Published(self._weights, FAR_VERSION, clock)
        _loop(self._roles, self._ports)
        took, steps, sent, sending, busy, computing = (b - a for a, b in zip(*marks, strict=True))
        alone = isinstance(acts, Actor)
        return ActorTiming(
            seconds=took,
            n_steps=int(steps),
            n_sent=int(sent),
            length=drain.n_steps / drain.n_sent if drain.n_sent else self._job.length,
            sending=sending,
            loading=own["loading"],
            deciding=own["deciding"] if alone else (busy - sending) / steps,
            trajectory_bytes=self._job.trajectory.n_bytes,
            memory_bytes=own_bytes(),
            computing=min(1.0, computing / took),
            rollouts=drain.rollouts[int(marks[0][2]) + 1 :],
            one_pass=all(map(acts_with_others, self._policies)),
        )

    def _load(self) -> None:
        for policy in self._policies:
            policy.load(self._weights, FAR_VERSION)

    def _deciding(self) -> Callable[[], object]:
        """One inference, as it will be asked for; of an inference role its own time says that."""
        if not isinstance(self._acts, Actor):
            return lambda: None
        actor = self._acts
        obs = {name: np.array(array) for name, array in actor.obs.items()}
        first, policy = np.array(actor.first), actor.policy
        return lambda: policy.act(obs, first)


class LearnerProbe:
    """A buffer and a learner as they share a process, with all the trajectories they can take."""

    def __init__(self, config: Config, pause: float = 0.0) -> None:
        config = _acting_alone(config)  # trajectories are the same, whoever acts
        self._job = job = job_of(config)
        group = [role for role in roles_of(config) if role.group == 0]
        roles = {role.kind: role for role in reversed(group)}  # the first of each kind
        trajectory = _one_trajectory(job, roles[Kind.ACTOR])
        self._ports = ports = ProbePorts(job)
        self._springs = [
            Spring(trajectory, self._version, 0.0 if i else pause) for i in range(job.task.n_actors)
        ]
        for i, spring in enumerate(self._springs):
            ports.inboxes[f"trajectories {role_name(Kind.ACTOR, i)}"] = spring
        ports.inboxes["control"] = Clockwork(0.0, 0.0, lambda: None)
        for i in range(job.config.n_learners):
            ports.join(batches_of(0, i))
        buffer = roles[Kind.BUFFER]
        self._store = TimedStore(make_store(buffer, job))
        self._buffer = build_buffer(buffer, job, ports, self._store)
        self._learner = cast(Learner, build(roles[Kind.LEARNER], job, ports))

    def _version(self) -> int:
        return self._learner.version

    def run(self, seconds: float, go: Callable[[], None] = lambda: None) -> LearnerTiming:
        """Learns for `seconds`; `go` returns when everybody is warm."""
        learner, adding, drawing = self._learner, self._store.adding, self._store.drawing
        marks: list[tuple[float, ...]] = []

        def read() -> None:
            busy = float(learner.counts[Count.BUSY_SECONDS])
            awake = time.perf_counter() - sum(spring.paused for spring in self._springs)
            done = learner.version, adding.times, busy, adding.seconds, drawing.seconds
            marks.append((awake, *done))

        def enough() -> bool:
            return learner.version >= (LEAST_UPDATES + marks[0][1] if marks else 1)

        learner.control = Clockwork(WARM_LEARNER_SECONDS, seconds, read, enough, go)
        _loop([self._buffer, learner], self._ports)
        took, updates, received, busy, added, drew = (b - a for a, b in zip(*marks, strict=True))
        storing = added / received if received else adding.seconds / adding.times
        done = int(updates), int(received), busy, added, drew
        return LearnerTiming(took, *done, storing, own_bytes())


def _without_versions(job: Job) -> Job:
    """The same where no version has its share: whoever acts makes as much as it can."""
    sampling: Any = job.sampling
    if sampling.per_version is None:
        return job
    return replace(job, sampling=replace(sampling, per_version=None))


def _acting_alone(config: Config) -> Config:
    actor_cfg = replace(config.parallel.actor_cfg, inference=False)
    return replace(config, parallel=replace(config.parallel, actor_cfg=actor_cfg))


def _one_trajectory(job: Job, role: RoleSpec) -> Arrays:
    """What an actor sends, made by one; of a slow one the first steps, again and again."""
    ports, name = ProbePorts(job), f"trajectories {role.name}"
    ports.join(name)
    weights = np.zeros(job.algorithm.n_weights(job.task), np.float32)
    ports.inboxes[weights_of(0)] = Published(weights, FAR_VERSION)
    actor, inbox = cast(Actor, build(role, job, ports)), ports.inbox(name)
    ends = time.perf_counter() + PLAYING_SECONDS
    actor.step()
    while (message := inbox.take()) is None and time.perf_counter() < ends:
        actor.step()
    if message is None:
        while actor.trajectory.length < job.length:
            actor.trajectory.repeat()
        actor.trajectory.send()
        message = inbox.take()
    assert message is not None
    actor.close()
    return {field: array.copy() for field, array in message.arrays.items()}


def _loop(roles: list[Role], ports: ProbePorts) -> None:
    Loop(roles, cast(ProcessPorts, ports)).run()


def _usual(deed: Callable[[], object], times: int = 21) -> float:
    """The median of how long it takes."""
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        deed()
        taken.append(time.perf_counter() - began)
    return median(taken)


def queued_seconds() -> float:
    """How long this thread could have run and others had its core; 0 where nobody counts that.

    On a machine that is shared with others this is no waiting for a sleep or a device.
    """
    try:
        return int(SCHEDSTAT.read_text().split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


def own_bytes() -> int:
    """Memory that only this process has."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
