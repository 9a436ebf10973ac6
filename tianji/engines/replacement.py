"""A new life of a process that was lost: its roles go on where the last one stood."""

from __future__ import annotations

from collections.abc import Sequence

from tianji.core.channel import Carrier
from tianji.core.counts import OF_THIS_PROCESS, Vector
from tianji.engines.live_counts import live_counts
from tianji.roles import Actor, role_state
from tianji.roles.role import Role
from tianji.transports import ring
from tianji.transports.shm import ShmTransport


def counts_for(names: Sequence[str], shared: Carrier) -> dict[str, Vector | None]:
    """Where each role counts: in memory that outlives this process, if there is any."""
    if not isinstance(shared, ShmTransport):
        return dict.fromkeys(names)
    return {name: live_counts(shared, name) for name in names}


def take_over(roles: Sequence[Role], shared: Carrier) -> list[int]:
    """Makes each role go on after a lost one; the messages that each had sent by then."""
    assert isinstance(shared, ShmTransport)
    sent = []
    for role in roles:
        for count in OF_THIS_PROCESS:
            role.counts[count] = 0
        if isinstance(role, Actor):
            role_state.take_over(role)
            sent.append(ring.take_over(shared.block(f"trajectories {role.name}")))
    return sent
