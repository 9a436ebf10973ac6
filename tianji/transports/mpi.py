"""MPI: this process among its ranks, words between them, and the wire that a courier uses.

MPI moves buffers as they lie in memory; nothing is pickled.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

import mpi4py
import numpy as np

from tianji.errors import TianJiError
from tianji.transports import ring
from tianji.transports.meeting import Meeting
from tianji.transports.wire import Event, Happening, Note, Word

mpi4py.rc.initialize = False  # `World` does it, when the settings below are made
mpi4py.rc.finalize = False
SETTINGS = {
    "OMPI_MCA_btl_tcp_progress_thread": "1",  # large messages move on while a role computes
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
for _name, _value in SETTINGS.items():
    os.environ.setdefault(_name, _value)
from mpi4py import MPI  # noqa: E402  # after its settings

NOTES, PAYLOADS, TALK = 1, 2, 3  # tags
ABOUT_BYTES = 512  # what each rank says of itself at the beginning
NAP_SECONDS = 0.001  # from one look for words to the next
SAY_SECONDS = 10.0  # for words to leave


class World:
    """This process among all ranks of the job: who is where, and words before there are channels.

    Made once per process. The machines are told apart by name and by network.
    """

    def __init__(self) -> None:
        level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
        if level < MPI.THREAD_SERIALIZED:
            raise TianJiError(
                f"this MPI ({library()}) lets no second thread use it (level {level}): use the "
                "Open MPI of pip install 'tianji[mpi]'"
            )
        self.comm = MPI.COMM_WORLD
        self.comm.Set_errhandler(MPI.ERRORS_RETURN)
        self.rank, self.size = self.comm.rank, self.comm.size
        self.busy = False  # the ranks have a run to do, or were dismissed
        self._kept: list[Any] = []  # words on their way
        self.meeting = Meeting(self.size)
        network = os.stat("/proc/self/ns/net").st_ino
        name = os.environ.get("TIANJI_HOST") or socket.gethostname()  # or what it is to pass for
        told = self._tell_all([name, network, self.meeting.name])
        self.hosts = [f"{name}/{network}" for name, network, _ in told]  # by rank
        self.host_names = [name for name, _, _ in told]
        self.meetings = [name for _, _, name in told]

    def _tell_all(self, about: list[Any]) -> list[list[Any]]:
        text = json.dumps(about).encode()
        mine = np.zeros(ABOUT_BYTES, np.uint8)
        all_of_us = np.zeros((self.size, ABOUT_BYTES), np.uint8)
        mine[: len(text)] = np.frombuffer(text, np.uint8)
        self.comm.Allgather(mine, all_of_us)
        return [json.loads(row.tobytes().rstrip(b"\0")) for row in all_of_us]

    def mates(self) -> list[int]:
        """The ranks on this machine, in order; the first leads."""
        return [rank for rank, host in enumerate(self.hosts) if host == self.hosts[self.rank]]

    def say(self, rank: int, what: dict[str, Any]) -> None:
        """Begins to send a few words to a rank that is about to `hear` them."""
        text = np.frombuffer(json.dumps(what).encode(), np.uint8).copy()
        with suppress(MPI.Exception):  # whoever has gone needs no words
            self._kept.append((self.comm.Isend(text, rank, TALK), text))

    def settle(self) -> None:
        """Waits until all words have left, or whoever they were for has gone."""
        deadline = time.monotonic() + SAY_SECONDS
        for request, _ in self._kept:
            with suppress(MPI.Exception):
                while not request.Test() and time.monotonic() < deadline:
                    time.sleep(NAP_SECONDS)
        self._kept.clear()

    def hear(
        self, rank: int, seconds: float, check: Callable[[], None] = lambda: None
    ) -> dict[str, Any] | None:
        """The next words of a rank; None if it says nothing for so long, or has gone."""
        deadline, status = time.monotonic() + seconds, MPI.Status()
        try:
            while (message := self.comm.Improbe(rank, TALK, status)) is None:
                check()
                if time.monotonic() > deadline:
                    return None
                time.sleep(NAP_SECONDS)
            text = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            request = message.Irecv(text)
            while not request.Test():  # a blocking receive would wait for ever on a cut link
                check()
                if time.monotonic() > deadline:
                    return None
        except MPI.Exception:
            return None
        said: dict[str, Any] = json.loads(text.tobytes())
        return said

    def dismiss(self) -> None:
        """Lets every rank go that was told nothing yet, or nothing that it could begin with."""
        if not self.busy:
            self.busy = True
            for rank in range(1, self.size):
                self.say(rank, {"leave": True})
            self.settle()

    def wire(self, peers: Iterable[int]) -> MpiWire:
        """Notes and payloads between this rank and its peers."""
        return MpiWire(self.comm, peers)


@cache
def world() -> World:
    """The world of this process, which is made when it is first asked for."""
    return World()


def refuse_mixed(told: tuple[int, int] | None) -> None:
    """Raises where mpi4py does not see the ranks that the launcher says it has started."""
    if told is not None and world().size != told[1]:
        raise TianJiError(
            f"two MPIs are mixed: the launcher has started {told[1]} ranks, and mpi4py, made for "
            f"{library()}, sees {world().size}: use the mpirun that belongs to it, as "
            "tianji train CONFIG --engine mpi does"
        )


def leave() -> None:
    """The end of MPI for this process, before it ends itself.

    With fault tolerance a rank just goes. Without, mpirun takes that for a crash unless all ranks
    finish together.
    """
    if world().rank == 0:
        world().dismiss()
    if "OMPI_MCA_mpi_ft_enable" not in os.environ and MPI.Is_initialized():
        MPI.Finalize()


def library() -> str:
    """The MPI that mpi4py was made for, as in `Open MPI v5.0.11`."""
    return MPI.Get_library_version().partition(",")[0].partition("\n")[0]


PAYLOAD = (Happening.SENT, Happening.RECEIVED)


class _Flight(NamedTuple):
    """What a request that was started is about."""

    peer: int
    what: Happening | None  # that it will have been; None: nothing worth telling
    note: Note
    memory: Any  # that the request uses: kept for as long


class MpiWire:
    """Notes and payloads between ranks: requests that were started, and what they are about.

    One receive for the next note of every peer is always posted. With fault tolerance it is also
    what tells that a peer has died.
    """

    def __init__(self, comm: MPI.Intracomm, peers: Iterable[int]) -> None:
        self._comm = comm
        self._requests: list[MPI.Request] = []
        self._flights: list[_Flight] = []
        self._statuses: list[MPI.Status] = []
        self._notes = {peer: np.zeros(4, np.int64) for peer in peers}  # where each one's next comes
        self._lost: set[int] = set()
        self._dying: set[int] = set()  # lost, and not told yet
        self._news: list[Event] = []
        for peer in self._notes:
            self._listen(peer)

    @property
    def busy(self) -> bool:
        """Whether payloads are on their way."""
        return any(flight.what in PAYLOAD for flight in self._flights)

    @property
    def pending(self) -> bool:
        """Whether anything of ours has not left yet."""
        return len(self._requests) > len(self._notes) - len(self._lost)

    def send(self, peer: int, note: Note, payload: ring.Block | None = None) -> None:
        """Starts to send."""
        text = np.array(note, np.int64)
        self._start(self._comm.Isend, _Flight(peer, None, note, text), NOTES)
        if payload is not None:
            self._start(self._comm.Isend, _Flight(peer, Happening.SENT, note, payload), PAYLOADS)

    def receive(self, peer: int, note: Note, payload: ring.Block) -> None:
        """Starts to receive; MPI keeps the order of payloads of one peer."""
        self._start(self._comm.Irecv, _Flight(peer, Happening.RECEIVED, note, payload), PAYLOADS)

    def poll(self) -> list[Event]:
        """Tests all requests at once."""
        while len(self._statuses) < len(self._requests):
            self._statuses.append(MPI.Status())
        try:
            done = MPI.Request.Testsome(self._requests, self._statuses) or []
        except MPI.Exception:
            done = self._after_failure()
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

    def _after_failure(self) -> list[int]:
        """The requests that are done; the peers of those that have failed are going to be lost.

        MPI has cleared both kinds, and tells their errors in the same order.
        """
        cleared = [i for i, request in enumerate(self._requests) if request == MPI.REQUEST_NULL]
        failed = {i for i, status in zip(cleared, self._statuses, strict=False) if status.error}
        self._dying |= {self._flights[i].peer for i in failed}
        return [i for i in cleared if i not in failed]

    def _land(self, flight: _Flight) -> None:
        if flight.what is Happening.NOTED:
            word, channel, number, version = flight.memory.tolist()
            note = Note(Word(word), channel, number, version)
            self._news.append(Event(flight.what, flight.peer, note))
            self._listen(flight.peer)
        elif flight.what is not None:
            self._news.append(Event(flight.what, flight.peer, flight.note))

    def _listen(self, peer: int) -> None:
        flight = _Flight(peer, Happening.NOTED, Note(Word.BEAT), self._notes[peer])
        self._start(self._comm.Irecv, flight, NOTES)

    def _start(
        self, begin: Callable[[Any, int, int], MPI.Request], flight: _Flight, tag: int
    ) -> None:
        if flight.peer in self._lost:
            return
        try:
            self._requests.append(begin(flight.memory, flight.peer, tag))
        except MPI.Exception:
            self._dying.add(flight.peer)
            return
        self._flights.append(flight)

    def forget(self, peer: int) -> None:
        """Says so once, and drops what was on its way to or from it."""
        if peer in self._lost:
            return
        self._lost.add(peer)
        self._news.append(Event(Happening.LOST, peer, Note(Word.BEAT)))
        kept = [i for i, flight in enumerate(self._flights) if flight.peer != peer]
        self._requests = [self._requests[i] for i in kept]
        self._flights = [self._flights[i] for i in kept]
