"""Rings and cells over a flat block of memory: channel ends without locks, private or shared.

Every control word lies on a cache line of its own and has one writer. A message becomes visible by
the last store of its sender, which on x86-64 is seen after all stores before it; so a sender that
dies at any point leaves no half message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tianji.core.channel import ChannelSpec, Copying, Delivery, Inbox, Message, Outbox, number_of
from tianji.core.schema import ALIGNMENT, Arrays, align
from tianji.core.state import State
from tianji.transports.bell import Bell, Silence

Block = npt.NDArray[np.uint8]

WORD = ALIGNMENT // 8  # int64 words from one control word to the next
WRITTEN, READ = 0, WORD  # messages committed; messages freed by the receiver (EVERY)
TAKEN = READ + 1  # messages that the receiver has looked at, the one it still holds too (EVERY)
CLOSED, ABANDONED = 2 * WORD, 3 * WORD  # the sender has finished; the receiver has
AWAY = 2  # in place of CLOSED: the sender was lost, and another takes over where it stood
CONTROL_BYTES = 4 * ALIGNMENT
N_CELLS = 4  # LATEST: a reader has this many publications of time to finish its copy
ATTEMPTS = 4  # LATEST: copies begun again before take() leaves it for the next probe


def n_slots(spec: ChannelSpec) -> int:
    """Messages for which a channel has room."""
    return spec.depth if spec.delivery is Delivery.EVERY else N_CELLS


def n_bytes(spec: ChannelSpec) -> int:
    """Bytes of one channel: control words, a version and a sequence word per slot, the slots."""
    slots = n_slots(spec)
    return CONTROL_BYTES + 2 * align(8 * slots) + slots * spec.schema.n_bytes


class End:
    """What both ends of a channel see of its memory."""

    def __init__(self, spec: ChannelSpec, block: Block) -> None:
        slots = n_slots(spec)
        self.spec = spec
        self._n_slots = slots
        words = block.data.cast("B")
        first = CONTROL_BYTES + align(8 * slots)
        self._control = words[:CONTROL_BYTES].cast("q")
        self._versions = words[CONTROL_BYTES : CONTROL_BYTES + 8 * slots].cast("q")
        self._sequence = words[first : first + 8 * slots].cast("q")
        start, size = first + align(8 * slots), spec.schema.n_bytes
        self._blocks = [block[start + i * size : start + (i + 1) * size] for i in range(slots)]
        self._arrays = [spec.schema.view(b) for b in self._blocks]


class _Sender(Copying, End):
    """What is common to both kinds of outbox."""

    def __init__(self, spec: ChannelSpec, block: Block, bells: Sequence[Bell]) -> None:
        super().__init__(spec, block)
        self._bells = bells
        self._written = self._control[WRITTEN]
        self.refused = 0

    @property
    def abandoned(self) -> bool:
        """True when the receiver takes nothing more."""
        return self._control[ABANDONED] == 1

    def close(self) -> None:
        """Ends the stream."""
        self._control[CLOSED] = 1
        self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()

    def state(self) -> State:
        """What this end knows besides the block."""
        return {"refused": self.refused}

    def restore(self, state: State) -> None:
        """Goes on with a block that was restored before."""
        self.refused = state["refused"]
        self._written = self._control[WRITTEN]


class RingOutbox(_Sender):
    """Sends every message once and in order; refuses while `depth` of them are in flight.

    Each end looks at the other's counter only when what it saw last is used up: the counter lies
    in the other core's cache, and fetching it costs more than all the rest of a small message.
    """

    def __init__(self, spec: ChannelSpec, block: Block, bells: Sequence[Bell]) -> None:
        super().__init__(spec, block, bells)
        [bell] = bells or [Silence()]  # one target, one bell
        self._flag, self._wake = bell.flag, bell.wake
        self._full_at = self._control[READ] + self._n_slots

    @property
    def in_flight(self) -> int:
        """Messages committed and not freed by the receiver."""
        return self._written - self._control[READ]

    def slot(self) -> Arrays | None:
        """The next slot, or None while all are in flight: pacing, not an error."""
        written = self._written
        if written == self._full_at:
            self._full_at = self._control[READ] + self._n_slots
            if written == self._full_at:
                self.refused += 1
                return None
        return self._arrays[written % self._n_slots]

    def commit(self, version: int) -> None:
        """Makes the slot visible to the receiver."""
        written = self._written
        self._versions[written % self._n_slots] = version
        self._written = written = written + 1
        self._control[WRITTEN] = written  # last: what came before is complete
        if self._flag[0]:
            self._wake()

    def restore(self, state: State) -> None:
        """Goes on with a block that was restored before."""
        super().restore(state)
        self._full_at = self._control[READ] + self._n_slots


class RingInbox(End):
    """Receives what a `RingOutbox` sent, as views into the ring."""

    def __init__(self, spec: ChannelSpec, block: Block, bell: Bell) -> None:
        super().__init__(spec, block)
        self._bell = bell
        self._flag = bell.flag
        self._read = self._control[READ]
        self._empty_at = self._control[WRITTEN]  # as far as is known; more may have come since
        self._held = 0  # 1 while the message of the last take is in use

    @property
    def waiting(self) -> int:
        """Messages that could be taken now."""
        return self._control[WRITTEN] - self._read - self._held

    @property
    def closed(self) -> bool:
        """True when the sender has closed and everything was taken."""
        return self._control[CLOSED] == 1 and self.waiting == 0  # in this order

    @property
    def away(self) -> bool:
        """True while the sender is lost and not replaced yet, and everything was taken."""
        return self._control[CLOSED] == AWAY and self.waiting == 0

    def close(self) -> None:
        """Says that nothing more will be taken."""
        self._control[ABANDONED] = 1
        self._bell.ring()

    def take(self) -> Message | None:
        """Frees the message taken before and returns the next one, if it has come."""
        if self._held:
            self.free()
        read = self._read
        if read == self._empty_at:
            self._empty_at = self._control[WRITTEN]
            if read == self._empty_at:
                return None
        self._held = 1
        self._control[TAKEN] = read + 1  # for who takes over from a receiver that dies now
        i = read % self._n_slots
        return Message(self._arrays[i], self._versions[i], read)

    def peek(self) -> Message | None:
        """What the next `take` returns, if it has come; frees nothing."""
        at = self._read + self._held
        if at == self._control[WRITTEN]:
            return None
        i = at % self._n_slots
        return Message(self._arrays[i], self._versions[i], at)

    def free(self) -> None:
        """Makes room for the sender, who otherwise had one slot less until the next `take`."""
        if self._held:
            self._held = 0
            self._read += 1
            self._control[READ] = self._read
            if self._flag[0]:
                self._bell.wake()

    def state(self) -> State:
        """What this end knows besides the block."""
        return {"held": self._held}

    def restore(self, state: State) -> None:
        """Goes on with a block that was restored before."""
        self._held = state["held"]
        self._read = self._control[READ]
        self._empty_at = self._control[WRITTEN]


class CellOutbox(_Sender):
    """Publishes the newest message to any number of readers, over the older ones.

    Publication number k goes into cell k modulo N; its sequence word is odd while it is written
    and 2k when it is whole, so that a reader who was overtaken in the middle of its copy finds
    out.
    """

    @property
    def in_flight(self) -> int:
        """Nothing is: a publication is for whoever reads it."""
        return 0

    def slot(self) -> Arrays:
        """The cell after the newest; no reader is sent there yet."""
        k = self._written + 1
        self._sequence[k % self._n_slots] = 2 * k - 1
        return self._arrays[k % self._n_slots]

    def catch_up(self) -> None:
        """Goes on after what another outbox of the same channel has published."""
        self._written = self._control[WRITTEN]

    @property
    def block(self) -> Block:
        """The bytes of what `slot` answered with."""
        return self._blocks[(self._written + 1) % self._n_slots]

    def commit(self, version: int) -> None:
        """Makes the cell the newest one."""
        k = self._written + 1
        self._versions[k % self._n_slots] = version
        self._sequence[k % self._n_slots] = 2 * k
        self._written = k
        self._control[WRITTEN] = k
        self._ring()


class CellInbox(End):
    """Copies the newest publication: never half of two, never an older one after a newer."""

    def __init__(self, spec: ChannelSpec, block: Block) -> None:
        super().__init__(spec, block)
        self._seen = 0
        self.copy = np.empty(spec.schema.n_bytes, np.uint8)  # of what was taken last
        self._view = spec.schema.view(self.copy)

    @property
    def waiting(self) -> int:
        """1 if there is a newer publication than the one taken last."""
        return int(self._control[WRITTEN] != self._seen)

    @property
    def closed(self) -> bool:
        """True when the publisher has closed; what it published last need not have been read."""
        return self._control[CLOSED] == 1

    def close(self) -> None:
        """Changes nothing: a publisher has other readers, or none."""

    def take(self) -> Message | None:
        """A copy of the newest publication, if it is new and was not overwritten while copying."""
        for _ in range(ATTEMPTS):
            k = self._control[WRITTEN]
            if k == self._seen:
                return None
            cell = k % self._n_slots
            version = self._versions[cell]
            np.copyto(self.copy, self._blocks[cell])
            if self._sequence[cell] == 2 * k:  # as when it became the newest: the copy is whole
                self._seen = k
                return Message(self._view, version, k - 1)
        return None

    def free(self) -> None:
        """Changes nothing: what was taken is a copy."""

    def state(self) -> State:
        """What this end knows besides the block."""
        return {"seen": self._seen}

    def restore(self, state: State) -> None:
        """Goes on with a block that was restored before; a copy that was taken is not needed."""
        self._seen = state["seen"]


def first_slot(spec: ChannelSpec, block: Block) -> Arrays:
    """The memory of a channel's first message, for what is written there without sending it."""
    return End(spec, block)._arrays[0]


def in_flight(spec: ChannelSpec, block: Block) -> list[Arrays]:
    """The messages of a ring that were sent and not freed, the oldest first."""
    end = End(spec, block)
    first, last = end._control[READ], end._control[WRITTEN]
    return [end._arrays[i % end._n_slots] for i in range(first, last)]


def leave(block: Block) -> None:
    """Says of a channel that its sender was lost; what it had sent is there, and nothing else."""
    control = block.data.cast("B")[:CONTROL_BYTES].cast("q")
    if control[CLOSED] == 0:
        control[CLOSED] = AWAY


def take_over(block: Block) -> int:
    """Says that there is a sender again, and returns how much the lost one had sent."""
    control = block.data.cast("B")[:CONTROL_BYTES].cast("q")
    if control[CLOSED] == AWAY:
        control[CLOSED] = 0
    return control[WRITTEN]


def n_sent(block: Block) -> int:
    """The messages that were sent so far, all of them whole."""
    return int(block.data.cast("B")[:CONTROL_BYTES].cast("q")[WRITTEN])


def skip_taken(block: Block) -> int:
    """Frees what a lost receiver had taken: nobody takes it twice. How much that is in all."""
    control = block.data.cast("B")[:CONTROL_BYTES].cast("q")
    control[READ] = max(control[READ], control[TAKEN])
    return control[READ]


def skip_before(spec: ChannelSpec, block: Block, number: int) -> None:
    """Frees the messages of lower numbers, by their versions; what is left is there to be taken.

    The receiver was lost, and may have held one that it had not finished with.
    """
    end = End(spec, block)
    control = end._control
    while control[READ] < control[WRITTEN]:
        if number_of(end._versions[control[READ] % end._n_slots]) >= number:
            return
        control[READ] += 1


def last_sent(spec: ChannelSpec, block: Block) -> Message | None:
    """The newest message, read or not, while nobody writes another; None if there was none."""
    end = End(spec, block)
    sequence = end._control[WRITTEN] - 1
    i = sequence % end._n_slots
    return None if sequence < 0 else Message(end._arrays[i], end._versions[i], sequence)


def sender(spec: ChannelSpec, block: Block, bells: Sequence[Bell]) -> Outbox:
    """The sending end of any channel."""
    kind = RingOutbox if spec.delivery is Delivery.EVERY else CellOutbox
    return kind(spec, block, bells)


def receiver(spec: ChannelSpec, block: Block, bell: Bell) -> Inbox:
    """A receiving end of any channel."""
    if spec.delivery is Delivery.EVERY:
        return RingInbox(spec, block, bell)
    return CellInbox(spec, block)
