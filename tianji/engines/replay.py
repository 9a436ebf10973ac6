"""A run once more, in one process: its roles take turns, and take only what their records say.

Every role is made as it was. Between the roles are the channels of the local engine, with gates:
an actor gets the weights of the recorded version after the recorded number of steps, and a buffer
takes trajectories and hands out batches in the recorded order. All else follows from the seed.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tianji.core.algorithm import Weights
from tianji.core.channel import Inbox, InFront, Message, Outbox
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays
from tianji.core.tracer import Tracer, What
from tianji.core.wording import count_of
from tianji.engines.run_roles import use_threads
from tianji.job import factory
from tianji.job.job import Job
from tianji.job.wiring import channels_of
from tianji.observe.replay_record import STEP, Checksums, RecordedRows, Taken, checksum_of, left_at
from tianji.roles import Actor, Buffer, Learner
from tianji.roles.lost_actor import NOBODY
from tianji.roles.role import Role
from tianji.roles.role_specs import Kind, batches_of, priorities_of, role_name, roles_of, weights_of
from tianji.transports.local import LocalTransport

ROUNDS_PER_LOOK = 64  # turns of every role from one call of `tick` to the next
ENDLESS = 1 << 62
NO_ROW = (-1, 0, 0, 0)


class Left(TianJiError):
    """A replay did something else than the run."""


class Script(Tracer):
    """What a role's record says comes next, and how much it has done since what came last."""

    def __init__(self, name: str, rows: RecordedRows) -> None:
        self.name = name
        self._rows = _effective(rows)
        self._place = 0
        self._at = 0  # the place among all its work at which the row is due
        self.work = 0  # actions, batches or updates
        self._steps: Counter[int] = Counter()  # taken from each actor
        self._trajectories: Counter[int] = Counter()
        self._checksums = rows.steps
        self._look()

    @property
    def due(self) -> bool:
        """Whether what comes next comes now."""
        return self.work == self._at

    @property
    def may_work(self) -> bool:
        """Whether there is work until then; a role that failed goes on until it fails again."""
        return self.work < self._at or (self.what, self.value) == (Taken.END, 0)

    @property
    def is_over(self) -> bool:
        """Whether the role has done all that it had done when its work was done."""
        return self.due and (self.what, self.value) == (Taken.END, 1)

    @property
    def is_cut(self) -> bool:
        """Whether nothing more is known, although the role had not ended."""
        return self.what == NO_ROW[0]

    def takes(self, what: Taken, who: int = 0) -> bool:
        """Whether this comes now."""
        return self.work == self._at and self.what == what and self.who == who

    def values(self, what: Taken, who: int = 0) -> list[int]:
        """Which ones were ever taken, of what can be told apart by a number."""
        return [row[2] for row in self._rows if row[:2] == (what, who)]

    def advance(self) -> None:
        """What was due has come."""
        self._place += 1
        self._look()

    def _look(self) -> None:
        is_there = self._place < len(self._rows)
        self.what, self.who, self.value, before = self._rows[self._place] if is_there else NO_ROW
        self._at = self.work + before

    def acted(self) -> None:
        """An actor has made a step."""
        self.work += 1

    def updated(self) -> None:
        """A learner has made an update."""
        self.work += 1

    def sent(self, what: What, version: int) -> None:
        """A buffer has handed out a batch."""
        self.work += what is What.BATCH

    def received(self, what: What, message: Message, peer: int = 0) -> None:
        """What was due has come; a trajectory must be the one that came then."""
        if what is What.TRAJECTORY and message.sequence != NOBODY:
            self._compare(message, peer)
        if what is not What.BATCH:
            self.advance()

    def _compare(self, message: Message, peer: int) -> None:
        before, of_actor = self._steps.total(), self._steps[peer]
        steps = Checksums(message.arrays).of(message)
        self._steps[peer] += len(steps) // STEP.itemsize
        self._trajectories[peer] += 1
        if zlib.crc32(steps) == self.value:
            return
        at, actor = left_at(self._checksums, before, steps), role_name(Kind.ACTOR, peer)
        which = f"its trajectory {self._trajectories[peer]:,}"
        if at is None:
            where = f"steps {of_actor + 1:,} to {self._steps[peer]:,} of {actor} ({which})"
        else:
            where = f"step {of_actor + at + 1:,} of {actor} (step {at + 1:,} of {which})"
        raise Left(
            f"the replay left the record in {where}, before batch {self.work + 1:,}: what it did "
            "or saw is not what was recorded. Either its environment does not repeat itself with "
            "the same seed, or the code has changed since"
        )


def _effective(rows: RecordedRows) -> list[tuple[int, int, int, int]]:
    """Without weights that others replaced before the actor made a step with them."""
    kept: list[tuple[int, int, int, int]] = []
    for what, who, value, before in zip(*rows[:4], strict=True):
        if what == Taken.WEIGHTS and not before and kept and kept[-1][0] == what:
            before = kept.pop()[3]
        kept.append((what, who, value, before))
    return kept


class Shelf:
    """Messages of which the newest counts, kept for as long as a record will want them."""

    def __init__(self) -> None:
        self.wanted: Counter[tuple[str, int]] = Counter()  # by channel and version
        self._kept: dict[tuple[str, int], Arrays] = {}

    def put(self, channel: str, arrays: Arrays, version: int) -> None:
        """Keeps a copy, if somebody will want it."""
        key = channel, version
        if self.wanted[key] and key not in self._kept:
            self._kept[key] = {name: array.copy() for name, array in arrays.items()}

    def has(self, channel: str, version: int) -> bool:
        """Whether it was sent."""
        return (channel, version) in self._kept

    def take(self, channel: str, version: int) -> Message | None:
        """The message of this version, if it was sent."""
        key = channel, version
        if (arrays := self._kept.get(key)) is None:
            return None
        self.wanted[key] -= 1
        if not self.wanted[key]:
            del self._kept[key]
        return Message(arrays, version, version)


class _FromShelf(InFront):
    """An inbox that gives what the record names, when it names it."""

    def __init__(self, name: str, inbox: Inbox, script: Script, shelf: Shelf, what: Taken) -> None:
        super().__init__(inbox)
        self._name, self._script, self._shelf, self._what = name, script, shelf, what

    def take(self) -> Message | None:
        """The recorded version, where it is due."""
        if not self._script.takes(self._what):
            return None
        return self._shelf.take(self._name, self._script.value)


class _InOrder(InFront):
    """An actor's trajectories, each when its turn in the record has come."""

    def __init__(self, inbox: Inbox, script: Script, actor: int) -> None:
        super().__init__(inbox)
        self._script, self._actor = script, actor

    @property
    def closed(self) -> bool:
        """True where the record has an empty trajectory of an actor that was lost."""
        return self._script.takes(Taken.NOTHING, self._actor)

    def take(self) -> Message | None:
        """The next one, if it is this actor's turn."""
        return self._inbox.take() if self._script.takes(Taken.TRAJECTORY, self._actor) else None


class _Outbox:
    """An outbox in front of another, which it passes on."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.refused = 0

    @property
    def in_flight(self) -> int:
        """Messages whose receiver is not finished with them."""
        return self._outbox.in_flight

    @property
    def abandoned(self) -> bool:
        """True when the receiver takes nothing more."""
        return self._outbox.abandoned

    def slot(self) -> Arrays | None:
        """Room for the next message."""
        return self._outbox.slot()

    def commit(self, version: int) -> None:
        """Sends what was filled in."""
        self._outbox.commit(version)

    def push(self, arrays: Arrays, version: int) -> bool:
        """Sends a copy."""
        return self._outbox.push(arrays, version)

    def close(self) -> None:
        """Ends the stream."""
        self._outbox.close()


class _ToShelf(_Outbox):
    """The sending end of what the record picks from."""

    def __init__(self, name: str, outbox: Outbox, shelf: Shelf) -> None:
        super().__init__(outbox)
        self._name, self._shelf = name, shelf

    def push(self, arrays: Arrays, version: int) -> bool:
        """Keeps a copy; there is always room."""
        self._shelf.put(self._name, arrays, version)
        return True


class _Batches(_Outbox):
    """Room for a batch only where the record has one."""

    def __init__(self, outbox: Outbox, script: Script) -> None:
        super().__init__(outbox)
        self._script = script

    def slot(self) -> Arrays | None:
        """None until the next batch is to be drawn."""
        return self._outbox.slot() if self._script.may_work else None


class Gates:
    """The channel ends of one role, which let through what its record says."""

    def __init__(self, script: Script, transport: LocalTransport, shelf: Shelf) -> None:
        self._script, self._transport, self._shelf = script, transport, shelf

    def inbox(self, name: str) -> Inbox:
        """A receiving end."""
        inbox, script = self._transport.inbox(name), self._script
        if name == weights_of(0):
            return _FromShelf(name, inbox, script, self._shelf, Taken.WEIGHTS)
        if name == priorities_of(0, 0):
            return _FromShelf(name, inbox, script, self._shelf, Taken.PRIORITIES)
        if name.startswith("trajectories "):
            return _InOrder(inbox, script, int(name.rpartition(".")[2]))
        return inbox

    def outbox(self, name: str) -> Outbox:
        """A sending end."""
        outbox = self._transport.outbox(name)
        if name in (weights_of(0), priorities_of(0, 0)):
            return _ToShelf(name, outbox, self._shelf)
        return _Batches(outbox, self._script) if name == batches_of(0, 0) else outbox


@dataclass(frozen=True)
class Followed:
    """How far a replay has come."""

    updates: int
    steps: int  # taken by the buffer
    checks: int  # times that the weights were compared with the record
    weights: Weights
    missing: str  # why it is not all of the run; empty where it is


class RunReplay:
    """Follows the records of all roles of a group of one learner."""

    def __init__(self, job: Job, records: Mapping[str, RecordedRows]) -> None:
        specs = roles_of(job.config)
        self._scripts = {spec.name: Script(spec.name, records[spec.name]) for spec in specs}
        shelf, transport = Shelf(), LocalTransport(channels_of(job))
        self._script = self._scripts[role_name(Kind.LEARNER)]
        self._threads = next(iter(self._script.values(Taken.THREADS)), 1)
        self._shelf, self._checks = shelf, 0
        self._roles: list[Role] = []
        for spec in specs:
            script = self._scripts[spec.name]
            use_threads(role_name(Kind.LEARNER), self._threads if script is self._script else 1)
            role = factory.build(spec, job, Gates(script, transport, shelf))
            role.tracer = script
            role.apart = True  # the record says what may be received, and it may be ahead
            self._roles.append(role)
            if spec.kind is Kind.ACTOR:
                shelf.wanted.update((weights_of(0), v) for v in script.values(Taken.WEIGHTS))
            elif spec.kind is Kind.BUFFER:
                values = script.values(Taken.PRIORITIES)
                shelf.wanted.update((priorities_of(0, 0), v) for v in values)
        [self.learner] = [role for role in self._roles if isinstance(role, Learner)]
        use_threads(self.learner.name, 1)

    def follow(self, tick: Callable[[int], None] = lambda _: None) -> Followed:
        """Goes on to the end of the record; `tick` is told of updates. Raises if it leaves it."""
        try:
            missing = None
            while missing is None:
                moved = False
                for _ in range(ROUNDS_PER_LOOK):
                    moved |= self._round()
                tick(self.learner.version)
                if self._script.is_over or not moved:
                    missing = self._why()
        finally:
            for role in self._roles:
                role.close()
        [buffer] = [role for role in self._roles if isinstance(role, Buffer)]
        weights = self.learner.algorithm.weights()
        return Followed(self.learner.version, buffer.received, self._checks, weights, missing)

    def _round(self) -> bool:
        moved = False
        for role in self._roles:
            if role.done:
                continue
            if isinstance(role, Learner):
                moved |= self._learn(role)
            elif not isinstance(role, Actor) or self._may_act(self._scripts[role.name]):
                moved |= self._step(role)
        return moved

    def _step(self, role: Role) -> bool:
        try:
            return role.step()
        except Left:
            raise
        except Exception as error:
            error.add_note(f"in the replay of {role.name}, step {self._scripts[role.name].work:,}")
            raise

    def _may_act(self, script: Script) -> bool:
        adopts = script.takes(Taken.WEIGHTS) and self._shelf.has(weights_of(0), script.value)
        return adopts or script.may_work

    def _learn(self, learner: Learner) -> bool:
        """An update, where one was made, with as many threads as it was made with."""
        script = self._script
        while script.due and script.what in (Taken.CHECKSUM, Taken.THREADS):
            if script.what == Taken.THREADS:
                self._threads = script.value
            elif checksum_of(learner.algorithm.weights()) != script.value:
                raise Left(
                    f"the replay left the record by update {script.work:,}: the weights are not "
                    f"those that were recorded, although all samples were ({self._words()})"
                )
            else:
                self._checks += 1
            script.advance()
        if script.is_over or not (script.may_work or script.is_cut):
            return False
        if self._threads == 1:
            return self._step(learner)
        use_threads(learner.name, self._threads)
        try:
            return self._step(learner)
        finally:
            use_threads(learner.name, 1)

    def _words(self) -> str:
        checked = f"{count_of(self._checks, 'checksum')} before agreed"
        return checked if self._threads == 1 else f"{checked}; {self._threads} threads learned"

    def _why(self) -> str:
        """What the record lacks; nothing, if the learner has done all its work."""
        if self._script.is_over:
            return ""
        cut = [name for name, script in self._scripts.items() if script.is_cut]
        if not cut:
            return "no role can go on, although the records of all of them have an end"
        return f"the record of {', '.join(cut)} ends there: a process was killed, or a file cut"
