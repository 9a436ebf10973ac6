"""The roles' side of a checkpoint: they copy what they must remember, a thread writes it down.

An order comes from whoever watches the run. It is looked at between two steps, never in one. Then
the roles' states are copied, which is all that training has to wait for, and a thread of the same
process writes the copies. At the end of a run, when nobody works any more, they are written at
once and without copies.
"""

from __future__ import annotations

import errno
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np

from tianji.config import Config
from tianji.core import checkpoint, disk
from tianji.core.channel import Inbox, Outbox
from tianji.core.counts import Count
from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays, Field, Schema
from tianji.core.state import State, copied, n_bytes
from tianji.roles import Learner, role_state
from tianji.roles.episodes import Clock
from tianji.roles.role import Role
from tianji.roles.role_specs import Kind, group_of, role_name

ORDER_SCHEMA = Schema(
    (
        Field("number", "int64"),  # of the checkpoint to take part in; 0: none yet
        Field("largest_store", "int64"),  # bytes of samples beyond which they are left out
        Field("deadline", "float64"),  # for the parts written at the end, on the monotonic clock
    )
)
"""What the launcher wants to be saved."""

ANY_SIZE = 1 << 62  # bytes
SAVE_SECONDS = 5.0  # for the roles to write down what they must remember at their end
LAST = ".last"  # the folder that the parts of the last checkpoint are written into


def order(outbox: Outbox, number: int, largest_store: int, deadline: float = float("inf")) -> None:
    """Sends an order to all roles."""
    values = {"number": number, "largest_store": largest_store, "deadline": deadline}
    outbox.push({name: np.asarray(value) for name, value in values.items()}, number)


def order_last(outbox: Outbox, config: Config) -> None:
    """Says what the last checkpoint may hold, and until when it must be written."""
    largest = 0 if config.exp.save_replay == "never" else ANY_SIZE
    order(outbox, 0, largest, time.monotonic() + SAVE_SECONDS)


def writing(number: int) -> str:
    """The folder that the parts of a checkpoint are written into."""
    return f".writing-{number}"


class Saver:
    """Takes part in the checkpoints of a run, for the roles of one process."""

    def __init__(
        self,
        roles: list[Role],
        orders: Inbox,
        folder: Path,
        clock: Clock = time.monotonic,
        control: Inbox | None = None,
        seen: int = 0,
    ) -> None:
        self._roles = roles
        self._seen = seen  # the last checkpoint that was asked of a process lost since
        self._clock = clock  # of whoever gives the orders
        self._orders = orders
        self._control = control  # on which a learner is told that the run ends, and of what is left
        self._folder = folder
        self._order: Arrays = ORDER_SCHEMA.empty()
        self._order["largest_store"][...] = ANY_SIZE
        self._order["deadline"][...] = float("inf")
        self._thread: Thread | None = None
        for role in roles:
            if isinstance(role, Learner) and role.exchange is None:
                role.rescue = partial(_rescue, folder)
        self._ending = False  # what is still being written in the background is not needed

    def look(self, more: Callable[[], dict[str, State]] = dict) -> None:
        """Begins to write if a new order has come; `more` are parts besides the roles'.

        While a role is in the middle of something it leaves the order for later.
        """
        if not all(role.settled for role in self._roles) or not self._newer_order(self._orders):
            return
        number, largest = int(self._order["number"]), int(self._order["largest_store"])
        if number <= self._seen:
            return
        if self._thread is not None:
            self._thread.join()  # it has said that it is done, or this order would not be here
        try:
            states = {role.name: role_state.state(role) for role in self._roles} | more()
            parts = {name: copied(part) for name, part in _parts(states, largest).items()}
        except Exception:  # of a user's `state()`: no reason to end a run
            _say(traceback.format_exc())
            self._answer(number, errno.EINVAL)
            return
        self._thread = Thread(target=self._write, args=(number, parts), daemon=True)
        self._thread.start()

    def finish(self, more: Callable[[], dict[str, State]] = dict) -> None:
        """Writes the roles as they are now, the samples only as long as there is time."""
        self._ending = True
        if self._thread is not None:
            self._thread.join()
        self._newer_order(self._orders)
        if self._control is not None:
            self._newer_order(self._control)
        deadline = float(self._order["deadline"])
        try:
            states = {role.name: role_state.state(role) for role in self._roles} | more()
            parts = _parts(states, int(self._order["largest_store"]))
            self._write_parts(self._folder / LAST, parts, lambda: self._clock() > deadline)
        except Exception as error:  # of the disk, or of a user's `state()`
            _say(f"the last checkpoint could not be written: {error}")

    def _newer_order(self, inbox: Inbox) -> bool:
        message = inbox.take()
        if message is None:
            return False
        for name, array in self._order.items():
            array[...] = message.arrays[name]
        return True

    def _write(self, number: int, parts: Mapping[str, State]) -> None:
        error = 0
        try:
            self._write_parts(self._folder / writing(number), parts, lambda: self._ending)
        except OSError as failure:
            error = failure.errno or errno.EIO
        except Exception:  # the top of a thread: whoever ordered it must hear of it
            _say(traceback.format_exc())
            error = errno.EINVAL
        self._answer(number, error)

    def _answer(self, number: int, error: int) -> None:
        for role in self._roles:
            role.counts[Count.SAVE_ERROR] = error
            role.counts[Count.SAVED] = number

    def _write_parts(
        self, folder: Path, parts: Mapping[str, State], is_late: Callable[[], bool]
    ) -> None:
        """The samples come last, and only as long as it is not late."""
        disk.FILES.make_folder(folder)
        for name, part in sorted(parts.items(), key=lambda item: item[0].endswith(STORE)):
            if not name.endswith(STORE):
                checkpoint.write_part(folder, name, part, disk.FILES)
                continue
            try:
                checkpoint.write_part(folder, name, part, disk.FILES, is_late)
            except checkpoint.OutOfTime:
                self._leave_out(folder, name, "there was no more time")
            except OSError as error:
                if folder.name != LAST:
                    raise
                self._leave_out(folder, name, error.strerror or str(error))

    def _leave_out(self, folder: Path, name: str, why: str) -> None:
        """Says at the end of a run that its samples are not kept; the manifest repeats it."""
        if folder.name == LAST:
            _say(f"{name} was left out: {why}")
            disk.FILES.note(folder / f"{name}{LEFT_OUT}", why)


def _rescue(folder: Path, learner: Learner) -> str | None:
    """Gives a learner the algorithm of the newest intact checkpoint; the name of that, if any.

    Versions and counts go on. Not for several learners of a group: each could find another one.
    """
    found, _ = checkpoint.newest(folder.parent)
    part = None if found is None else part_of(found, learner.name)
    if found is None or part is None or role_state.is_bare(part):
        return None
    learner.algorithm.restore(part["algorithm"])
    _say(f"{learner.name}: goes back to {found.folder.name}")
    return found.folder.name


STORE = ".store"  # ends the name of a part that holds samples
LEFT_OUT = ".left-out"  # ends the name of a note that says why there is no such part


def _parts(states: Mapping[str, State], largest_store: int) -> dict[str, State]:
    """The files to write: the samples of a buffer are one of their own, where they are kept."""
    parts: dict[str, State] = {}
    for name, whole in states.items():
        store = whole.get("store")
        parts[name] = whole | {"store": None} if "store" in whole else whole
        if store is not None and n_bytes(store) <= largest_store:
            parts[f"{name}{STORE}"] = store
    return parts


def _say(text: str) -> None:
    """To the log of the process, or to whoever looks on, where there is room for it."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def recall(role: Role, saved: checkpoint.Checkpoint, in_flight: bool) -> None:
    """Makes a role go on from a checkpoint, which has what was `in_flight` too or has not.

    Without it the parts may be of different moments. Then the learners of a group all take what
    the first of them knew, so that they are the same again.
    """
    part, group = part_of(saved, role.name), group_of(role.name)
    if part is not None:
        role_state.restore(role, part)
    if in_flight:
        return
    first = role_name(Kind.LEARNER, 0, group)
    leader = part_of(saved, first)
    assert leader is not None, "no checkpoint is sealed without the first learner of each group"
    if isinstance(role, Learner) and role.name != first:
        role_state.follow(role, leader)
    role_state.rejoin(role, leader["version"])


def newest_part(run: Path, name: str) -> State | None:
    """What a role saved last, if that is whole; None where nothing is to be had.

    Only this part is looked at, with its samples: those of others may take long to read.
    """
    for folder in reversed(checkpoint.folders_of(run)):
        try:
            found = checkpoint.open_checkpoint(folder)
            checkpoint.verify(found, (f"{name}.safetensors", f"{name}{STORE}.safetensors"))
            part = part_of(found, name)
        except (TianJiError, OSError):  # damaged, or removed meanwhile: an older one will do
            continue
        if part is not None and not role_state.is_bare(part):
            return part
    return None


def part_of(saved: checkpoint.Checkpoint, name: str) -> State | None:
    """What a role called `name` saved, its samples in their place."""
    mapped = saved.part(name)
    if mapped is None:
        return None
    part = copied(mapped)  # whoever restores it may keep it and change it
    if "store" in part:
        part["store"] = saved.part(f"{name}{STORE}")
    return part
