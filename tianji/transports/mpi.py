"""MPI: this process among its ranks, words between them, and the wire that a courier uses.

MPI moves buffers as they lie in memory; nothing is pickled.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

import mpi4py
import numpy as np

from tianji import mpirun
from tianji.errors import USER_MISTAKE, TianJiError
from tianji.transports import ring
from tianji.transports.meeting import Meeting
from tianji.transports.wire import Event, Happening, Note, Word

mpi4py.rc.initialize = False  # `World` does it, once the settings below are made
mpi4py.rc.finalize = False
mpirun.settle()
from mpi4py import MPI  # noqa: E402  # after its settings

NOTES, PAYLOADS, TALK, MEET = 1, 2, 3, 4  # tags
NAP_SECONDS = 0.001  # from one look for words to the next
START_SECONDS = 60.0  # for all ranks to come up
CANCEL_SECONDS = 1.0  # for receives to be cancelled
KNOWN_SECONDS = 1.0  # for MPI to know who has died, after the first request has failed of it
SAY_SECONDS = 10.0  # for words to leave
MEET_SECONDS = 20.0  # for a peer to come to where its wire is made


class World:
    """This process among all ranks of the job: who is where, and words before there are channels.

    Made once per process. The machines are told apart by name and by network.
    """

    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        with _patience():
            level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
            self.comm.Set_errhandler(MPI.ERRORS_RETURN)
            self._introduce()
        if level < MPI.THREAD_SERIALIZED:
            raise TianJiError(
                f"this MPI ({library()}) lets no second thread use it (level {level}): use the "
                "Open MPI of pip install 'tianji[mpi]'"
            )

    def _introduce(self) -> None:
        """Tells all others where this process is, and hears the same of them."""
        self.rank, self.size = self.comm.rank, self.comm.size
        self._decided = False  # what becomes of the ranks: a run has begun, or they were dismissed
        self._kept: list[Any] = []  # words on their way
        self.meeting = Meeting(self.size)
        network = os.stat("/proc/self/ns/net").st_ino
        name = os.environ.get("TIANJI_HOST") or socket.gethostname()  # or what it is to pass for
        told = self._tell_all([name, network, self.meeting.name])
        self.hosts = [f"{name}/{network}" for name, network, _ in told]  # by rank
        self.host_names = [name for name, _, _ in told]
        self.meetings = [name for _, _, name in told]

    def _tell_all(self, about: list[Any]) -> list[list[Any]]:
        """What every rank says of itself, gathered and told by rank 0.

        A collective operation of MPI would connect ranks that never speak again, both of them at a
        time: see `_meet`.
        """
        if self.rank:
            self.say(0, {"about": about})
            told = self.hear(0, START_SECONDS)
        else:
            others = [self.hear(rank, START_SECONDS) for rank in range(1, self.size)]
            found = [{"about": about}, *others]
            told = None if None in found else {"all": [one["about"] for one in found if one]}
            for rank in range(1, self.size):
                self.say(rank, told or {})
            self.settle()
        if not told:
            raise TianJiError("a rank was lost while all came up")
        all_of_us: list[list[Any]] = told["all"]
        return all_of_us

    def say(self, rank: int, what: dict[str, Any], tag: int = TALK) -> None:
        """Begins to send a few words to a rank that is about to `hear` them."""
        text = np.frombuffer(json.dumps(what).encode(), np.uint8).copy()
        with suppress(MPI.Exception):  # whoever has gone needs no words
            self._kept.append((self.comm.Isend(text, rank, tag), text))

    def settle(self) -> None:
        """Waits until all words have left, or whoever they were for has gone."""
        deadline = time.monotonic() + SAY_SECONDS
        for request, _ in self._kept:
            with suppress(MPI.Exception):
                while not request.Test() and time.monotonic() < deadline:
                    time.sleep(NAP_SECONDS)
        self._kept.clear()

    def hear(
        self,
        rank: int,
        seconds: float,
        check: Callable[[], None] = lambda: None,
        tag: int = TALK,
    ) -> dict[str, Any] | None:
        """The next words of a rank; None if it says nothing for so long, or has gone."""
        deadline, status = time.monotonic() + seconds, MPI.Status()
        try:
            while (message := self.comm.Improbe(rank, tag, status)) is None:
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

    def begun(self) -> None:
        """The ranks have a run to do: from now on they are told what they need on its channels."""
        self._decided = True

    def dismiss(self) -> None:
        """Lets every rank go that was told nothing yet, or nothing that it could begin with."""
        if not self._decided:
            self._decided = True
            for rank in range(1, self.size):
                self.say(rank, {"leave": True})
            self.settle()

    def wire(self, peers: Iterable[int]) -> MpiWire:
        """Notes and payloads between this rank and its peers, who make theirs at the same time."""
        others = list(peers)
        self._meet(others)
        return MpiWire(self.comm, others)

    def _meet(self, peers: list[int]) -> None:
        """Speaks with every peer once, the higher rank of each two first.

        Open MPI connects two ranks when one first sends to the other. Where both do so at a time it
        may close the connection that it meant to keep, and then one of them counts as dead. Who is
        not there in time is left to the signs of life.
        """
        for peer in peers:
            if peer < self.rank:
                self.say(peer, {}, MEET)
        for peer in peers:
            if peer > self.rank and self.hear(peer, MEET_SECONDS, tag=MEET) is not None:
                self.say(peer, {}, MEET)
        for peer in peers:
            if peer < self.rank:
                self.hear(peer, MEET_SECONDS, tag=MEET)
        self.settle()


@contextmanager
def _patience() -> Iterator[None]:
    """Ends this process if the body takes too long: MPI waits for ever for ranks that never come.

    It holds the interpreter meanwhile, so no thread of ours could say a word: a shell does it for
    rank 0, and the others just go.
    """
    rank, _ = mpirun.inside() or (0, 1)
    signal.setitimer(signal.ITIMER_REAL, START_SECONDS + 1.0)  # its default is to end the process
    words = (
        f"tianji: not all ranks have come up within {START_SECONDS:.0f} s: is tianji[mpi] installed"
        " on every machine, and does every machine reach the others?"
    )
    script = f'sleep {START_SECONDS}; echo "{words}" >&2; echo {USER_MISTAKE} > "$0"'
    told = os.environ.get(mpirun.STATUS, os.devnull)
    watcher = None if rank else subprocess.Popen(["sh", "-c", script, told], process_group=0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        if watcher is not None:
            os.killpg(watcher.pid, signal.SIGKILL)  # with its sleep
            watcher.wait()


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
    if not mpirun.survives() and MPI.Is_initialized():
        MPI.Finalize()


def library() -> str:
    """The MPI that mpi4py was made for, as in `Open MPI v5.0.11`."""
    return MPI.Get_library_version().partition(",")[0].partition("\n")[0]


PAYLOAD = (Happening.SENT, Happening.RECEIVED)
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
    fault tolerance they are also what tells that a peer has died.
    """

    def __init__(self, comm: MPI.Intracomm, peers: Iterable[int]) -> None:
        self._comm = comm
        self._requests: list[MPI.Request] = []
        self._flights: list[_Flight] = []
        self._statuses: list[MPI.Status] = []
        self._expected: dict[int, deque[_Flight]] = {peer: deque() for peer in peers}  # notes
        self._came: set[int] = set()  # ids of those of them that overtook others
        self._with_note: dict[tuple[int, Note], ring.Block] = {}  # small payloads, not fetched yet
        self._lost: set[int] = set()
        self._dying: set[int] = set()  # lost, and not told yet
        self._abandoned: list[tuple[MPI.Request, _Flight]] = []  # MPI may still write there
        self._news: list[Event] = []
        for peer in self._expected:
            for _ in range(POSTED):
                self._listen(peer, np.empty(HEAD_BYTES + SMALL_BYTES, np.uint8))

    @property
    def busy(self) -> bool:
        """Whether payloads are on their way."""
        return any(flight.what in PAYLOAD for flight in self._flights)

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
        dead = self._dead() | (told & self._expected.keys())
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
        """The peers that MPI knows to have died."""
        failed = self._comm.Get_failed()
        ranks = failed.Translate_ranks(None, self._comm.Get_group())
        return {int(rank) for rank in ranks} & self._expected.keys()

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
            self._requests.append(begin(flight.memory, flight.peer, tag))
        except MPI.Exception:
            self._dying.add(flight.peer)
            return False
        self._flights.append(flight)
        return True

    def forget(self, peer: int) -> None:
        """Says so once, and looks no more at what was on its way to or from it.

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
