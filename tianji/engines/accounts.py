"""Whether all that was sent was counted: what actors made, buffers took, and lies between them."""

from __future__ import annotations

from tianji.core.counts import Count
from tianji.core.store import n_valid
from tianji.engines.live_counts import live_counts
from tianji.engines.worker_loop import shared_channels
from tianji.job.job import Job
from tianji.roles.role_specs import Kind, roles_of
from tianji.transports import ring
from tianji.transports.shm import ShmTransport


def missing_steps(job: Job, transport: ShmTransport) -> int:
    """Valid steps that those who act count and nobody else: 0 if no count was lost.

    What a buffer refused for its age, or lost with its store, it had received before.

    All have ended by now, or it may be that something is on its way. A process that was killed
    between counting a trajectory and sending it, or between taking one and counting it, leaves one
    that is missing.
    """
    who_acts = Kind.INFERENCE if job.config.parallel.actor_cfg.inference else Kind.ACTOR
    made = _sum(job, transport, who_acts, Count.PRODUCED)
    taken = _sum(job, transport, Kind.BUFFER, Count.RECEIVED)
    under_way = 0
    for spec in shared_channels(job):
        if not spec.name.startswith("trajectories "):
            continue
        for rows in ring.in_flight(spec, transport.block(spec.name)):
            under_way += n_valid(rows)
    return made - taken - under_way


def _sum(job: Job, transport: ShmTransport, kind: Kind, count: Count) -> int:
    names = [role.name for role in roles_of(job.config) if role.kind is kind]
    return sum(int(live_counts(transport, name)[count]) for name in names)
