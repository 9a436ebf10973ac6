"""The roles of a run whose groups gossip in a ring or are averaged; for `gossip.py`.

Only the role that answers the learners differs between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tianji.core.algorithm import Weights
from tianji.core.channel import ChannelSpec, Delivery, Inbox, Outbox
from tianji.core.counts import Count
from tianji.job.factory import build
from tianji.job.job import Job
from tianji.job.wiring import channels_of
from tianji.roles.fusion import parameters_schema
from tianji.roles.role import Role
from tianji.roles.role_specs import MEAN, Kind, RoleSpec, parameters_of, role_name, roles_of
from tianji.transports.local import LocalTransport

AVERAGING, GOSSIP, NONE = "averaging", "gossip", "none"


def ring(rows: Weights) -> Weights:
    """The mean of each row and the one before it; before the first is the last."""
    mixed: Weights = (rows + np.roll(rows, 1, axis=0)) / np.float32(2)
    return mixed


class Ring(Role):
    """Stands in the reducer's place, and has an answer for each group instead of one for all.

    Groups would tell each other without it. Here it makes both ways wait equally long.
    """

    def __init__(
        self, name: str, parameters: Sequence[Inbox], answers: Sequence[Outbox], n_parameters: int
    ) -> None:
        super().__init__(name)
        self._parameters, self._answers = parameters, answers
        self._gathered = np.zeros((len(parameters), n_parameters), np.float32)
        self._came = np.zeros(len(parameters), bool)

    def step(self) -> bool:
        """Takes what has come, and answers once it has something of every group."""
        moved = False
        for i in np.flatnonzero(~self._came).tolist():
            if (message := self._parameters[i].take()) is not None:
                self._gathered[i] = message.arrays["parameters"]
                self._came[i] = moved = True
        if self._came.all():
            self._answer()
        return moved

    def _answer(self) -> None:
        rows = self._gathered
        for mixed, outbox in zip(ring(rows), self._answers, strict=True):
            outbox.push({"parameters": mixed}, int(self.counts[Count.FUSIONS]) + 1)
        apart = np.linalg.norm((rows - rows.mean(axis=0)).astype(np.float64), axis=1)
        self.counts[Count.DISTANCE] = np.sqrt(np.mean(apart**2))
        self.counts[Count.FUSIONS] += 1
        self._came[:] = False


@dataclass(frozen=True)
class Answers:
    """The channels of a run with gossip: what a learner takes for the mean is its own answer."""

    transport: LocalTransport
    group: int

    def outbox(self, name: str) -> Outbox:
        """As they are."""
        return self.transport.outbox(name)

    def inbox(self, name: str) -> Inbox:
        """As they are, but for the mean."""
        return self.transport.inbox(answer_of(self.group) if name == MEAN else name)


def answer_of(group: int) -> str:
    """The channel to one group."""
    return f"answer {group}"


def crew(job: Job, way: str) -> tuple[LocalTransport, list[Role]]:
    """All roles of a job and what they talk over; the reducer's place is taken if it gossips."""
    specs = channels_of(job)
    if way == GOSSIP:
        layout, reducer = parameters_schema(job.n_parameters), role_name(Kind.REDUCER)
        for group in range(job.config.n_groups):
            target = (role_name(Kind.LEARNER, 0, group),)
            name = answer_of(group)
            specs.append(ChannelSpec(name, reducer, target, layout, Delivery.LATEST))
    transport = LocalTransport(specs)

    def made(spec: RoleSpec) -> Role:
        if way != GOSSIP:
            return build(spec, job, transport)
        if spec.kind is not Kind.REDUCER:
            return build(spec, job, Answers(transport, spec.group))
        groups = range(job.config.n_groups)
        inboxes = [transport.inbox(parameters_of(group)) for group in groups]
        outboxes = [transport.outbox(answer_of(group)) for group in groups]
        return Ring(spec.name, inboxes, outboxes, job.n_parameters)

    return transport, [made(spec) for spec in roles_of(job.config)]
