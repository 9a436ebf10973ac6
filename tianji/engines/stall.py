"""A run in which nothing moves: what each role waits for, and where in its code each process is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tianji.core.alarm import STALL_SECONDS, START_SECONDS
from tianji.core.counts import WAITS, Count, Vector
from tianji.observe.watch import Progress
from tianji.roles.role_specs import Kind, kind_of

if TYPE_CHECKING:
    from tianji.engines.remote import Processes

STACK_SECONDS = 0.5  # for a process to write down where it is
MOST_LINES = 16  # of each stack


WORDS = {
    Count.WAITED_WEIGHTS: "weights",
    Count.WAITED_TRAJECTORIES: "trajectories",
    Count.WAITED_BATCH: "a batch",
    Count.WAITED_GRADIENTS: "the gradients of another learner",
    Count.WAITED_PARAMETERS: "parameters",
    Count.WAITED_ACTIONS: "actions",
    Count.WAITED_STEPS: "steps of environments",
    Count.WAITED_ORDER: "an order",
}
OF_ACTOR, OF_BUFFER = "waits for room: its buffer takes nothing", "waits for its learner to learn"


class StallWatch:
    """Tells of a run whose actors push nothing and whose learners learn nothing, or never begin.

    It is told after a minute, or two at the start, and then after twice as long every time.
    """

    def __init__(self, processes: Processes, clock: Callable[[], float] = time.monotonic) -> None:
        self._processes, self._clock = processes, clock
        self._moved_at, self._patience = clock(), START_SECONDS
        self._made: tuple[int, ...] = ()  # by then
        self._before: dict[str, Vector] = {}  # counters then
        self._asked_at: float | None = None

    def look(self, progress: Progress) -> str | None:
        """What is to be told, if anything; called as often as one likes."""
        now = self._clock()
        begun = progress.started_at is not None
        made = progress.produced, progress.received, progress.consumed, progress.updates, begun
        if made != self._made:
            self._made, self._moved_at = made, now
            self._patience = STALL_SECONDS if begun else START_SECONDS
            self._before, self._asked_at = progress.counts.copy(), None
            return None
        if self._asked_at is None:
            if now - self._moved_at >= self._patience:
                self._processes.ask_for_stacks()
                self._asked_at = now
            return None
        if now - self._asked_at < STACK_SECONDS:
            return None
        seconds, self._asked_at = now - self._moved_at, None
        self._patience = 2 * seconds
        return self._told(seconds, progress.counts)

    def _told(self, seconds: float, counts: Mapping[str, Vector]) -> str:
        lines = [f"nothing has moved for {seconds:.0f} s: no step was sent, none learned from"]
        lines += [
            f"  {name} {waits_for(name, self._before[name], counts[name])}" for name in counts
        ]
        for home, stack in self._processes.stacks().items():
            lines += [f"{home}:", *stack.splitlines()[:MOST_LINES]]
        return "\n".join(lines)


def waits_for(name: str, before: Vector, now: Vector) -> str:
    """What a role waits for, by what its counters have done meanwhile."""
    grown = now - before
    if not now[Count.READY_AT]:
        return "is not ready yet"
    if now is before or not grown.any():
        return "has said nothing since: it is in the middle of a step"
    if grown[Count.PAUSED_SECONDS] > grown[Count.IDLE_SECONDS]:
        return "was told to rest"
    what = max(WAITS, key=lambda wait: float(grown[wait]))
    if not grown[what]:
        return "works, and nothing has come of it"
    if what is Count.WAITED_ROOM:
        return OF_BUFFER if kind_of(name) is Kind.BUFFER else OF_ACTOR
    return f"waits for {WORDS[what]}"
