"""The launcher's side of the balance at run time: reads the counters, sends advice, keeps a record.

It is on no path that data takes: roles probe for its advice, and without it they go on as they are.
What is decided, and when, is `decisions.py`'s.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from tianji.core.append_log import AppendLog, open_lines
from tianji.core.counts import Count
from tianji.job.advice import Advice
from tianji.job.job import Job
from tianji.observe.bottleneck import takes_turns
from tianji.observe.capacity import capacity
from tianji.observe.metrics import finite
from tianji.observe.rates import Counts, homes_in, updates_since
from tianji.observe.watch import Progress
from tianji.roles.role_specs import Kind, group_of, homes_of, kind_of, role_name, roles_of
from tianji.strategy.rebalance.decisions import Balancer
from tianji.strategy.rebalance.trial_changes import Change, Decision, Reading

FILE = "balance.jsonl"  # in the folder of a run: a line for every decision
READING_SECONDS = 1.0  # that a reading is taken over at least ...
LONGEST_SECONDS = 10.0  # ... and at most, where little is pushed and learned meanwhile
LEAST_WORK = 4  # trajectories of the awake actors in all, and updates, that a reading should have
SETTLING_SECONDS = 0.5  # after a change, before the next reading begins
TURN_SECONDS = 5.0  # after which one actor that rests changes places with one that does not ...
# ... at the end of a reading: where work is coarse one takes longer, and would never be completed.


class Engine(Protocol):
    """Whoever passes advice on to the roles."""

    name: str

    def advise(self, advice: Advice) -> None:
        """Says all that holds from now on."""


class Rebalancer:
    """Keeps the actors awake that the learner has use for, in every group by itself.

    `tell` hears of every decision. Nothing is done where the configuration says so, where acting
    and learning take turns, where actors wait for an inference role, and in the local engine.
    """

    def __init__(
        self, job: Job, folder: Path, engine: Engine, tell: Callable[[dict[str, Any]], None]
    ) -> None:
        parallel = job.config.parallel
        wanted = parallel.global_cfg.rebalance and not parallel.actor_cfg.inference
        self._active = wanted and not takes_turns(job, engine.name)
        self._job = job
        self._homes = homes_in(job, engine.name)
        self._engine = engine
        self._tell = tell
        self._groups = [_Group(job, number) for number in range(job.config.n_groups)]
        self._file = AppendLog(lambda: open_lines(folder / FILE))

    def tick(self, progress: Progress, now: float | None = None) -> None:
        """Reads, decides and advises where it is time to, which it nearly never is."""
        if not self._active or not updates_since(progress):
            return
        now = time.monotonic() if now is None else now
        changed = False
        for group in self._groups:
            group.lose(progress.lost)
            if (seen := group.read(progress.counts, self._homes, self._job.ratio, now)) is None:
                continue
            if (decision := group.decide(seen, now)) is not None:
                self._record(group, seen, decision, progress.elapsed(now))
                changed = True
            else:
                changed |= group.take_turns(now)
        if changed:
            self._advise()

    def close(self) -> None:
        """Nothing more will be decided."""
        with suppress(OSError):  # the summary has it
            self._file.close()

    def _advise(self) -> None:
        paused = [name for group in self._groups for name in group.paused]
        threads = {name: n for group in self._groups for name, n in group.threads.items()}
        apart = [group.buffer for group in self._groups if group.apart]
        self._engine.advise(Advice(paused, threads, apart))

    def _record(self, group: _Group, seen: Reading, decision: Decision, elapsed: float) -> None:
        numbers = {name: finite(value) for name, value in asdict(seen).items()}
        row: dict[str, Any] = {
            "elapsed_s": round(elapsed, 2),
            "group": group.number,
            **asdict(decision),
            "unit": decision.unit,
            "reading": numbers,
        }
        self._tell({name: value for name, value in row.items() if name != "reading"})
        with suppress(OSError):  # it waits, and goes first with the next; the summary has it too
            self._file.add(json.dumps(row).encode() + b"\n")


class _Group:
    """Who rests in one group, and the readings that its balancer decides by."""

    def __init__(self, job: Job, number: int) -> None:
        self.number = number
        self._names = [r.name for r in roles_of(job.config) if _is_of(r.name, number)]
        self._awake = deque(n for n in self._names if kind_of(n) is Kind.ACTOR)  # oldest first
        self.paused: deque[str] = deque()
        self.threads: dict[str, int] = {}  # of learners that were told how many to use
        self.buffer = role_name(Kind.BUFFER, 0, number)
        self.apart = False  # whether the buffer was told to work beside its learner
        # What is traced stays where it is: the rows of a process are written by one thread.
        rides = homes_of(job.config)[self.buffer] != self.buffer
        self._movable = rides and job.config.exp.trace_seconds is None
        # Rollouts of one batch should not be all of one actor.
        least = job.sampling.batch if job.sampling.once else 1
        self._balancer = Balancer(least)
        self._mark: tuple[float, Counts] | None = None  # where the reading begins
        self._begin_at = 0.0
        self._turn_at = 0.0

    @property
    def _learners(self) -> list[str]:
        return [name for name in self._names if kind_of(name) is Kind.LEARNER]

    def lose(self, lost: Collection[str]) -> None:
        """Does without roles that have died."""
        for name in [name for name in lost if name in self._names]:
            self._names.remove(name)
            for some in (self._awake, self.paused):
                if name in some:
                    some.remove(name)
            self._mark = None

    def read(
        self, counts: Counts, homes: Mapping[str, str], ratio: float, now: float
    ) -> Reading | None:
        """What the group did since the last reading, once that is enough to go by."""
        if self._mark is None:
            if now >= self._begin_at:
                self._mark = now, {name: counts[name].copy() for name in self._names}
            return None
        began, before = self._mark
        if now - began < READING_SECONDS:
            return None
        since = {name: counts[name] for name in self._names}
        if now - began < LONGEST_SECONDS and not self._has_worked(before, since):
            return None
        self._mark = now, {name: vector.copy() for name, vector in since.items()}
        found = capacity(before, since, homes, ratio, self._names)
        learners = self._learners
        free = min((float(since[name][Count.FREE_CORES]) for name in learners), default=0.0)
        # A learner that waits for a buffer beside it is no sign of too few actors.
        idle = min(found.learner_idle, 1 - found.buffer_busy) if self.apart else found.learner_idle
        return Reading(
            n_awake=len(self._awake),
            n_paused=len(self.paused),
            acting=found.acting,
            learning=found.learning,
            idle=idle,
            threads=max(1, found.threads // max(1, len(learners))),
            free_cores=free / max(1, len(learners)),
            update_seconds=found.update_seconds,
            batch_seconds=found.batch_seconds if self._movable else 0.0,
            apart=int(self.apart),
        )

    def _has_worked(self, before: Counts, since: Counts) -> bool:
        def done(count: Count, names: Collection[str]) -> float:
            return float(sum(since[name][count] - before[name][count] for name in names))

        pushed, updates = done(Count.PUSHED, self._awake), done(Count.VERSION, self._learners)
        return pushed >= max(LEAST_WORK, len(self._awake)) and updates >= LEAST_WORK

    def decide(self, seen: Reading, now: float) -> Decision | None:
        """Changes what the balancer says is to be changed, if anything is."""
        decision = self._balancer.decide(seen, now)
        if decision is None:
            return None
        if decision.kind is Change.THREADS:
            self.threads = dict.fromkeys(self._learners, decision.after)
        self.apart = bool(decision.after) if decision.kind is Change.BUFFER else self.apart
        while len(self._awake) > decision.after and decision.kind is Change.PAUSE:
            self.paused.append(self._awake.popleft())
        while len(self._awake) < decision.after and decision.kind is Change.WAKE:
            self._awake.append(self.paused.popleft())
        self._settle(now)
        return decision

    def take_turns(self, now: float) -> bool:
        """Whoever has rested longest changes places with whoever has worked longest.

        So all environments are played in, and what differs from actor to actor, such as how much
        it explores, stays mixed. The reading in progress is lost: call it when one has ended.
        """
        if not self.paused or not self._awake or now < self._turn_at:
            return False
        self._awake.append(self.paused.popleft())
        self.paused.append(self._awake.popleft())
        self._settle(now)
        return True

    def _settle(self, now: float) -> None:
        """After a change: what is being done meanwhile is of neither before nor after."""
        self._mark, self._begin_at = None, now + SETTLING_SECONDS
        self._turn_at = now + TURN_SECONDS


def _is_of(name: str, group: int) -> bool:
    return kind_of(name) is not Kind.REDUCER and group_of(name) == group
