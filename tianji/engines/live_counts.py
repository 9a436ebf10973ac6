"""Counters that outlive the process that counts: they lie in the run's shared memory."""

from __future__ import annotations

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.counts import Vector, report_schema
from tianji.job.job import Job
from tianji.roles.role_specs import LAUNCHER, evaluator_of, roles_of
from tianji.transports import ring
from tianji.transports.shm import ShmTransport


def counts_channels(job: Job) -> list[ChannelSpec]:
    """Memory for the counters of every role, laid out as channels on which nothing is sent."""
    layout, latest = report_schema(), Delivery.LATEST
    evaluator = evaluator_of(job.config)
    return [
        ChannelSpec(_name(role.name), role.name, (), layout, latest, readers=(LAUNCHER,))
        for role in (*roles_of(job.config), *([evaluator] if evaluator else []))
    ]


def live_counts(transport: ShmTransport, role: str) -> Vector:
    """The counters of a role as they are at this moment, in whichever process."""
    spec = ChannelSpec(_name(role), role, (), report_schema(), Delivery.LATEST)
    return ring.first_slot(spec, transport.block(_name(role)))["counts"]


def _name(role: str) -> str:
    return f"counts {role}"
