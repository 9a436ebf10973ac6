"""Advice from the launcher: who rests, how many threads learners have, where a buffer works.

It is looked at between two steps, like an order to save. Nobody waits for any, and without new
advice a role goes on as it is: training does not depend on the one who gives it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from tianji.core.channel import Inbox, Outbox
from tianji.core.counts import Count
from tianji.core.schema import Field, Schema
from tianji.machine.resources import available_cores, idle_seconds
from tianji.roles.episodes import Clock
from tianji.roles.role import Role
from tianji.roles.role_specs import Kind, RoleSpec, kind_of

FREE_SECONDS = 1.0  # between two looks at how busy the cores are


@dataclass(frozen=True)
class Advice:
    """All that holds from now on, by the names of roles; what was said before is forgotten."""

    paused: Collection[str] = ()  # actors that begin no further trajectory
    threads: Mapping[str, int] = field(default_factory=dict)  # of learners; others keep theirs
    apart: Collection[str] = ()  # buffers with a thread of their own in their learner's process


def advice_schema(n_roles: int) -> Schema:
    """A place for every role, in the order of `roles_of`."""
    return Schema(
        (
            Field("paused", "bool", (n_roles,)),  # begins no further trajectory
            Field("threads", "int64", (n_roles,)),  # 0: as many as it has
            Field("apart", "bool", (n_roles,)),  # takes its turns in a thread of its own
        )
    )


def advise(outbox: Outbox, roles: Collection[RoleSpec], advice: Advice) -> None:
    """Sends it to everybody."""
    names = [role.name for role in roles]
    arrays = {
        "paused": np.array([name in advice.paused for name in names]),
        "threads": np.array([advice.threads.get(name, 0) for name in names], np.int64),
        "apart": np.array([name in advice.apart for name in names]),
    }
    outbox.push(arrays, 0)


class Listener:
    """Does what the newest advice says, for the roles of one process.

    Without `set_threads`, as where updates are made on a GPU, learners keep the threads they have
    and say of no core that it is free, so nobody advises more of them.
    """

    def __init__(
        self,
        roles: list[Role],
        advice: Inbox,
        everybody: Collection[RoleSpec],
        set_threads: Callable[[int], None] | None = None,
        threads: int = 0,
        clock: Clock = time.monotonic,
    ) -> None:
        places = {role.name: place for place, role in enumerate(everybody)}
        self._actors = {places[role.name]: role for role in roles if _is(role, Kind.ACTOR)}
        self._learners = {places[role.name]: role for role in roles if _is(role, Kind.LEARNER)}
        self._buffers = {places[role.name]: role for role in roles if _is(role, Kind.BUFFER)}
        self._advice = advice
        self._set_threads = set_threads
        self._clock = clock
        self._cores = available_cores()
        self._looked_at = self._idled = 0.0
        for learner in self._learners.values():
            learner.counts[Count.THREADS] = threads

    def look(self) -> None:
        """Follows what has come, if anything has; learners must be between two updates."""
        if self._learners and self._set_threads is not None:
            self._see_free_cores()
        if (message := self._advice.take()) is None:
            return
        for place, actor in self._actors.items():
            actor.paused = bool(message.arrays["paused"][place])
        for place, buffer in self._buffers.items():
            buffer.apart = bool(message.arrays["apart"][place])
        for place, learner in self._learners.items():
            n = int(message.arrays["threads"][place])
            if n and self._set_threads is not None and n != learner.counts[Count.THREADS]:
                self._set_threads(n)
                learner.counts[Count.THREADS] = n

    def _see_free_cores(self) -> None:
        now = self._clock()
        if now - self._looked_at < FREE_SECONDS or (idled := idle_seconds(self._cores)) is None:
            return
        if self._looked_at:
            free = (idled - self._idled) / (now - self._looked_at)
            for learner in self._learners.values():
                learner.counts[Count.FREE_CORES] = free
        self._looked_at, self._idled = now, idled


def _is(role: Role, kind: Kind) -> bool:
    return kind_of(role.name) is kind
