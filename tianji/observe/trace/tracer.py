"""Puts a recorder beside the roles of one process; without it nothing of this is even loaded.

tracer = tracer_of(config, folder, home, names)     # None unless exp.trace_seconds
role = tracer.build(spec, job, ports)               # instead of topology.build
tracer.stepping(role)()                             # instead of role.step()
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from tianji.config import Config
from tianji.core.algorithm import Algorithm
from tianji.job import factory
from tianji.job.factory import Ports
from tianji.job.job import Job
from tianji.observe.trace import ENDING, FOLDER
from tianji.observe.trace.format import ROWS_PER_SECOND, Heading, Wait
from tianji.observe.trace.recorder import Recorder, Track
from tianji.observe.trace.traced_ends import TracedPorts
from tianji.observe.trace.traced_parts import TracedAlgorithm, TracedEnv, TracedPolicy, TracedStore
from tianji.roles import Actor, Buffer, Learner
from tianji.roles.episodes import Clock
from tianji.roles.role import Role
from tianji.roles.role_specs import RoleSpec


def tracer_of(
    config: Config,
    folder: Path,
    home: str,
    roles: Sequence[str],
    clock: Clock = time.monotonic,
) -> Tracer | None:
    """Records the roles of a process; None, with a word in its log, where the disk refuses."""
    seconds = config.exp.trace_seconds
    if seconds is None:
        return None
    heading = Heading(
        home=home,
        roles=tuple(roles),
        host=os.environ.get("TIANJI_HOST") or platform.node(),
        pid=os.getpid(),
        seconds=seconds,
        capacity=max(1, round(seconds * ROWS_PER_SECOND)),
        offset=0.0 if clock is time.monotonic else clock() - time.monotonic(),
        recorded_at=time.strftime("%Y-%m-%d %H:%M:%S"),
    )
    try:
        recorder = Recorder(folder / FOLDER / f"{home}{ENDING}", heading)
    except OSError as error:
        print(f"{home} is not traced: {error.filename}: {error.strerror}", file=sys.stderr)
        return None
    return Tracer(recorder, roles)


class Tracer:
    """Watches the roles of one process."""

    def __init__(self, recorder: Recorder, roles: Sequence[str]) -> None:
        self._recorder = recorder
        self._tracks = {name: Track(recorder, i) for i, name in enumerate(roles)}
        self._ports: dict[str, TracedPorts] = {}

    def build(self, spec: RoleSpec, job: Job, ports: Ports, clock: Clock = time.monotonic) -> Role:
        """Makes a role as `topology.build` does, of parts that write down when they work."""
        track = self._tracks[spec.name]
        own = self._ports[spec.name] = TracedPorts(ports, track)
        role = factory.build(spec, job, own, clock)
        if isinstance(role, Actor):
            policy = TracedPolicy(role.policy, track)
            role.policy, role.env = policy, TracedEnv(role.env, policy, track)
        elif isinstance(role, Buffer):
            role.store = TracedStore(role.store, track, own.handling)
        elif isinstance(role, Learner):
            algorithm = TracedAlgorithm(role.algorithm, track, lambda: role.version)
            role.algorithm = cast(Algorithm, algorithm)  # all that a learner uses of one
        return role

    def stepping(self, role: Role) -> Callable[[], bool]:
        """Its `step`, which also writes down that there was nothing to do."""
        step, track, why = role.step, self._tracks[role.name], waits_for(role)

        def traced() -> bool:
            if step():
                return True
            track.wait(why())
            return False

        return traced

    def resumed(self) -> None:
        """What is in flight now was sent by an earlier process."""
        for ports in self._ports.values():
            for inbox in ports.trajectories:
                inbox.skip_waiting()

    def close(self) -> None:
        """Nothing more will come."""
        for track in self._tracks.values():
            track.close()
        self._recorder.close()


def waits_for(role: Role) -> Callable[[], Wait]:
    """Says why a role has nothing to do, if it is asked right after a step that said so."""
    if isinstance(role, Actor):
        return partial(_actor_waits_for, role)
    if isinstance(role, Buffer):
        return partial(_buffer_waits_for, role)
    if isinstance(role, Learner):
        return partial(_learner_waits_for, role)
    return lambda: Wait.GROUPS


def _actor_waits_for(actor: Actor) -> Wait:
    due = 0 if actor.per_version is None else actor.trajectory.sent // actor.per_version
    return Wait.WEIGHTS if actor.version < due else Wait.BALANCE


def _buffer_waits_for(buffer: Buffer) -> Wait:
    """A batch that it owes finds no room, or it has nothing to make one of."""
    owes = buffer.store.ready() and buffer.balance.may_consume()
    return Wait.BALANCE if owes else Wait.TRAJECTORIES


def _learner_waits_for(learner: Learner) -> Wait:
    running = learner.exchange is not None and learner.exchange.running
    return Wait.LEARNERS if running else Wait.TRAJECTORIES
