"""The wire that a courier uses between ranks of MPI.

MPI moves buffers as they lie in memory; nothing is pickled.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from tianji.transports import ring
from tianji.transports.mpi_library import MPI
from tianji.transports.wire import Event, Happening, Note, Word

NOTES, PAYLOADS = 1, 2  # tags
NAP_SECONDS = 0.001  # from one look at requests that must end to the next
CANCEL_SECONDS = 1.0  # for receives to be cancelled
KNOWN_SECONDS = 1.0  # for MPI to know who has died, after the first request has failed of it
N_WORDS = len(Note._fields) + 1  # with whether the payload is in the same message
HEAD_BYTES = 64
SMALL_BYTES = 32 << 10  # payloads that a copy costs less than a message of their own
_WORDS = frozenset(Word)
POSTED = 4  # notes of a peer that can come between two polls without waiting


class _Flight(NamedTuple):
    """What a request that was started is about."""

    peer: int
    what: Happening | None  # that it will have been; None: nothing worth telling
    note: Note
    memory: Any  # that the request uses: kept for as long


class MpiWire:
    """Notes and payloads between ranks: requests that were started, and what they are about.

    A small payload travels with its note, in one message; a large one follows in a message of its
    own, from slot to slot. Some receives for the next notes of every peer are always posted. With
    fault tolerance they are also what tells that a peer has died. `ranks` says which rank of `comm`
    a peer is, where it is not the one of its number.
    """

    def __init__(
        self, comm: MPI.Comm, peers: Iterable[int], ranks: Mapping[int, int] | None = None
    ) -> None:
        self._comm = comm
        self._ranks = dict(ranks or {peer: peer for peer in peers})
        self._peers = {rank: peer for peer, rank in self._ranks.items()}
        self._requests: list[MPI.Request] = []
        self._flights: list[_Flight] = []
        self._statuses: list[MPI.Status] = []
        self._expected: dict[int, deque[_Flight]] = {peer: deque() for peer in self._ranks}  # notes
        self._came: set[int] = set()  # ids of those of them that overtook others
        self._with_note: dict[tuple[int, Note], ring.Block] = {}  # small payloads, not fetched yet
        self._lost: set[int] = set()
        self._dying: set[int] = set()  # lost, and not told yet
        self._abandoned: list[tuple[MPI.Request, _Flight]] = []  # MPI may still write there
        self._news: list[Event] = []
        for peer in self._expected:
            for _ in range(POSTED):
                self._listen(peer, np.empty(HEAD_BYTES + SMALL_BYTES, np.uint8))

    def send(self, peer: int, note: Note, payload: ring.Block | None = None) -> None:
        """Starts to send."""
        small = payload is not None and payload.nbytes <= SMALL_BYTES
        text = np.empty(HEAD_BYTES + (payload.nbytes if payload is not None and small else 0), "u1")
        text[:HEAD_BYTES].view(np.int64)[:N_WORDS] = (*note, small)
        if payload is not None and small:
            text[HEAD_BYTES:] = payload
            self._news.append(Event(Happening.SENT, peer, note))  # its memory may be used again
        self._start(self._comm.Isend, _Flight(peer, None, note, text), NOTES)
        if payload is not None and not small:
            self._start(self._comm.Isend, _Flight(peer, Happening.SENT, note, payload), PAYLOADS)

    def receive(self, peer: int, note: Note, payload: ring.Block) -> None:
        """Starts to receive; MPI keeps the order of payloads of one peer."""
        if (text := self._with_note.pop((peer, note), None)) is not None:
            payload[:] = text[HEAD_BYTES : HEAD_BYTES + payload.nbytes]
            self._news.append(Event(Happening.RECEIVED, peer, note))
            self._listen(peer, text)
            return
        self._start(self._comm.Irecv, _Flight(peer, Happening.RECEIVED, note, payload), PAYLOADS)

    def close(self) -> None:
        """Cancels the receives that are posted: MPI is not to be finalised with any."""
        for request, flight in zip(self._requests, self._flights, strict=True):
            if flight.what in (Happening.NOTED, Happening.RECEIVED):
                request.Cancel()
        deadline = time.monotonic() + CANCEL_SECONDS
        with suppress(MPI.Exception):
            while not MPI.Request.Testall(self._requests) and time.monotonic() < deadline:
                time.sleep(NAP_SECONDS)

    def poll(self) -> list[Event]:
        """Tests all requests at once."""
        while len(self._statuses) < len(self._requests):
            self._statuses.append(MPI.Status())
        try:
            done = MPI.Request.Testsome(self._requests, self._statuses) or []
        except MPI.Exception as error:
            done = self._after_failure(error)
        flights = [self._flights[i] for i in done]
        for i in sorted(done, reverse=True):
            del self._requests[i], self._flights[i]
        for flight in flights:
            self._land(flight)
        for peer in self._dying:
            self.forget(peer)
        self._dying.clear()
        news, self._news = self._news, []
        return news

    def _after_failure(self, error: MPI.Exception) -> list[int]:
        """The requests that are done, after some have failed: their peers are going to be lost.

        MPI has cleared both kinds, and also what has failed since it looked. Its statuses are of
        what it has looked at, so they cannot be put beside the requests that are cleared: where
        several peers die at a time, one that lives would be taken for dead. But the status of a
        receive names its peer, and MPI can be asked who is dead. Of such a peer nothing counts but
        notes that did come.
        """
        told = {status.source for status in self._statuses[: len(self._requests)] if status.error}
        dead = self._dead() | {self._peers[rank] for rank in told & self._peers.keys()}
        deadline = time.monotonic() + KNOWN_SECONDS
        while dead <= self._lost:  # a send has failed, and who is dead is about to be known
            if time.monotonic() > deadline:
                raise error
            time.sleep(NAP_SECONDS)
            dead = self._dead()
        self._dying |= dead
        return [
            i
            for i, (request, flight) in enumerate(zip(self._requests, self._flights, strict=True))
            if request == MPI.REQUEST_NULL
            and (flight.peer not in dead or flight.what is Happening.NOTED)
        ]

    def _dead(self) -> set[int]:
        """The peers that MPI knows to have died; an only one it need not name."""
        if len(self._ranks) == 1:
            return set(self._ranks)
        failed = self._comm.Get_failed()
        ranks = failed.Translate_ranks(None, self._comm.Get_group())
        return {self._peers[rank] for rank in {*map(int, ranks)} & self._peers.keys()}

    def _land(self, flight: _Flight) -> None:
        if flight.what is Happening.NOTED:
            self._came.add(id(flight))
            expected = self._expected[flight.peer]
            while expected and id(expected[0]) in self._came:  # in the order that they were sent in
                self._came.remove(id(expected[0]))
                self._read(expected.popleft())
        elif flight.what is not None:
            self._news.append(Event(flight.what, flight.peer, flight.note))

    def _read(self, flight: _Flight) -> None:
        peer, text = flight.peer, flight.memory
        *words, small = text[:HEAD_BYTES].view(np.int64)[:N_WORDS].tolist()
        if words[0] not in _WORDS:  # nothing came: so ends a receive from a peer that has died
            self._dying.add(peer)
            return
        note = Note(Word(words[0]), *words[1:])
        self._news.append(Event(Happening.NOTED, peer, note))
        if small:
            self._with_note[peer, note] = text
        else:
            self._listen(peer, text)

    def _listen(self, peer: int, text: ring.Block) -> None:
        text[:HEAD_BYTES] = 0
        flight = _Flight(peer, Happening.NOTED, Note(Word.BEAT), text)
        if self._start(self._comm.Irecv, flight, NOTES):
            self._expected[peer].append(flight)

    def _start(
        self, begin: Callable[[Any, int, int], MPI.Request], flight: _Flight, tag: int
    ) -> bool:
        if flight.peer in self._lost:
            return False
        try:
            self._requests.append(begin(flight.memory, self._ranks[flight.peer], tag))
        except MPI.Exception:
            self._dying.add(flight.peer)
            return False
        self._flights.append(flight)
        return True

    def forget(self, peer: int) -> None:
        """Tells once that a peer is lost, and looks no more at what was on its way to or from it.

        Its memory is kept: a receive that is posted can be filled for as long as the process lives.
        """
        if peer in self._lost:
            return
        self._lost.add(peer)
        self._news.append(Event(Happening.LOST, peer, Note(Word.BEAT)))
        started = list(zip(self._requests, self._flights, strict=True))
        kept = [(request, flight) for request, flight in started if flight.peer != peer]
        self._abandoned += [(request, flight) for request, flight in started if flight.peer == peer]
        self._requests = [request for request, _ in kept]
        self._flights = [flight for _, flight in kept]
        self._expected[peer].clear()
