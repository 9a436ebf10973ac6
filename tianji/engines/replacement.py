"""A new life of a process that was lost: its roles go on where the last one stood.

What survives a process lies in shared memory: all it has sent, its counters, the weights that a
learner published last. Its newest checkpoint is there besides, which may have samples of a buffer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tianji.core.channel import Carrier, number_of
from tianji.core.counts import OF_THIS_PROCESS, Count, Vector
from tianji.engines.live_counts import live_counts
from tianji.job.job import Job
from tianji.job.wiring import channels_of
from tianji.roles import Actor, Buffer, Learner, lost_learner, role_state
from tianji.roles.env_actor import EnvActor
from tianji.roles.inference import Inference
from tianji.roles.role import Role
from tianji.roles.role_specs import (
    Kind,
    RoleSpec,
    batches_of,
    group_of,
    parameters_of,
    role_name,
    steps_of,
    weights_of,
)
from tianji.roles.saving import newest_part
from tianji.transports import ring
from tianji.transports.shm import ShmTransport

WEIGHTS_SECONDS = 5.0  # for the newest weights to come from another machine
LOOK_SECONDS = 0.002


def counts_for(
    names: Sequence[str], shared: Carrier, told: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Vector | None]:
    """Where each role counts: in memory that outlives this process, if there is any.

    Otherwise it begins with what it is `told` that a lost one had reported.
    """
    if isinstance(shared, ShmTransport):
        return {name: live_counts(shared, name) for name in names}
    known = told or {}
    return {name: np.array(known[name]) if name in known else None for name in names}


class Replacement:
    """What is done in the place of a process that was lost: `make_way`, and then `take_over`."""

    def __init__(self, job: Job, shared: Carrier, run: Path) -> None:
        from tianji.transports.cluster import ClusterTransport

        assert isinstance(shared, ShmTransport | ClusterTransport)
        self._job, self._shared, self._run = job, shared, run
        self._specs = {spec.name: spec for spec in channels_of(job)}

    def make_way(self, mine: Sequence[RoleSpec]) -> None:
        """Before the roles are made: nothing is taken again that was taken."""
        for role in mine:
            if role.kind is Kind.BUFFER:
                for name in self._trajectories(role.group):
                    ring.skip_taken(self._shared.block(name))
            elif role.kind is Kind.LEARNER and self._is_shared(batches_of(role.group, 0)):
                name = batches_of(role.group, 0)
                learned = int(self._counts(role.name)[Count.VERSION])
                ring.skip_before(self._specs[name], self._shared.block(name), learned)

    def take_over(self, roles: Sequence[Role]) -> list[list[int]]:
        """Makes each role go on after a lost one.

        Answers with the trajectories that each had sent by then, or taken of each actor.
        """
        for role in roles:
            for count in OF_THIS_PROCESS:
                role.counts[count] = 0
        return [self._take_over(role) for role in roles]

    def _take_over(self, role: Role) -> list[int]:
        if isinstance(role, Actor):
            sent = ring.take_over(self._shared.block(f"trajectories {role.name}"))
            self._make_up(role, sent)
            role_state.take_over(role)
            return [sent]
        if isinstance(role, EnvActor):
            ring.take_over(self._shared.block(f"trajectories {role.name}"))
            role.take_over(self._stream(role.name))
        if isinstance(role, Inference):
            actors = self._actors(group_of(role.name))
            made = [int(self._counts(actor)[Count.PRODUCED]) for actor in actors]
            role_state.take_over_inference(role, [self._stream(actor) for actor in actors], made)
        if isinstance(role, Buffer):
            handed, sampling = self._handed(group_of(role.name)), self._job.sampling
            saved = None if sampling.once else newest_part(self._run, role.name)
            lost_learner.take_over_buffer(role, handed, sampling, saved)
            names = self._trajectories(group_of(role.name))
            return [ring.skip_taken(self._shared.block(name)) for name in names]
        if isinstance(role, Learner):
            self._take_over_learner(role)
        return []

    def _make_up(self, actor: Actor, sent: int) -> None:
        """Counts what the lost actor has sent since its last report, where that is all there is.

        There the newest weights may still be on their way, too.
        """
        if isinstance(self._shared, ShmTransport):
            return
        missing = sent - int(actor.counts[Count.MESSAGES])  # negative: it was lost on its way
        actor.counts[Count.MESSAGES] = sent
        actor.counts[Count.PUSHED] += missing
        steps = max(0, missing) * self._job.length * self._job.task.env.n_envs
        actor.counts[Count.PRODUCED] += steps
        deadline = time.monotonic() + WEIGHTS_SECONDS
        weights = actor.weights
        while not (weights.waiting or weights.closed) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)  # by them the actor knows what it owes

    def _take_over_learner(self, learner: Learner) -> None:
        group, name = group_of(learner.name), learner.name
        said = self._shared.inbox(f"report {name}").take()
        lost_learner.take_over(
            learner,
            newest_part(self._run, name),
            self._shared.inbox(weights_of(group)).take(),
            None if said is None else said.arrays,
        )
        if learner.fusion is not None:
            spec = self._specs[parameters_of(group)]
            last = ring.last_sent(spec, self._shared.block(spec.name))
            learner.fusion.take_over(last, int(learner.counts[Count.FUSIONS]))

    def _handed(self, group: int) -> int:
        """Batches that were handed out and are not lost: those of a process of its own are not."""
        name = batches_of(group, 0)
        if self._is_shared(name):
            last = ring.last_sent(self._specs[name], self._shared.block(name))
            if last is not None:
                return number_of(last.version) + 1
        return int(self._counts(role_name(Kind.LEARNER, 0, group))[Count.VERSION])

    def _stream(self, actor: str) -> int:
        """Of what an actor has shown last to whom acts for it; -1: it has shown nothing."""
        name = steps_of(actor)
        last = ring.last_sent(self._specs[name], self._shared.block(name))
        return -1 if last is None else int(last.arrays["stream"])

    def _trajectories(self, group: int) -> list[str]:
        return [f"trajectories {actor}" for actor in self._actors(group)]

    def _actors(self, group: int) -> list[str]:
        return [role_name(Kind.ACTOR, i, group) for i in range(self._job.task.n_actors)]

    def _counts(self, name: str) -> Vector:
        assert isinstance(self._shared, ShmTransport)
        return live_counts(self._shared, name)

    def _is_shared(self, name: str) -> bool:
        assert isinstance(self._shared, ShmTransport)
        return self._shared.carries(name)
