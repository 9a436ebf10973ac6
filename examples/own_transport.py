"""A transport of one's own: shared memory as always, and a tally of what each channel carried.

Named in examples/own_parts_config.py. A role writes the tally of its trajectories or weights
into its log, `logs/<role>.log` of the run, when it closes them.
"""

from __future__ import annotations

from tianji import Arrays, Outbox, ShmTransport


class CountedOutbox:
    """An outbox that counts what is sent and leaves the rest to another."""

    def __init__(self, outbox: Outbox, name: str, n_bytes: int) -> None:
        self._outbox, self._name, self._n_bytes = outbox, name, n_bytes
        self._messages = 0
        self.refused = 0  # how often the channel was full

    def __str__(self) -> str:
        """As in `trajectories actor-0.0: 120 messages, 0.5 MB`."""
        megabytes = self._messages * self._n_bytes / 1e6
        return f"{self._name}: {self._messages:,} messages, {megabytes:,.1f} MB"

    def slot(self) -> Arrays | None:
        """The memory itself: counting costs no copy."""
        arrays = self._outbox.slot()
        self.refused += arrays is None
        return arrays

    def commit(self, version: int) -> None:
        """Counts one message."""
        self._messages += 1
        self._outbox.commit(version)

    def push(self, arrays: Arrays, version: int) -> bool:
        """Counts a message unless it was refused."""
        sent = self._outbox.push(arrays, version)
        self._messages += sent
        return sent

    def close(self) -> None:
        """Ends the stream and prints the tally, which goes to the role's log."""
        if self._messages:
            print(self)
        self._outbox.close()

    @property
    def in_flight(self) -> int:
        """Messages on their way."""
        return self._outbox.in_flight

    @property
    def abandoned(self) -> bool:
        """Whether the receiver has gone."""
        return self._outbox.abandoned


class CountingTransport(ShmTransport):
    """Shared memory whose outboxes count."""

    def outbox(self, name: str) -> Outbox:
        """The seam: a role gets what this returns and knows nothing of it but the protocol."""
        return CountedOutbox(super().outbox(name), name, self._specs[name].schema.n_bytes)
