"""MPI: this process among its ranks, and words between them before there are channels."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from tianji.core.errors import USER_MISTAKE, TianJiError
from tianji.machine import mpirun
from tianji.transports.descriptors import DescriptorService
from tianji.transports.mpi_library import MPI, library
from tianji.transports.mpi_wire import MpiWire

TALK, MEET = 3, 4  # tags beside the wire's
NAP_SECONDS = 0.001  # from one look for words to the next
START_SECONDS = 60.0  # for all ranks to come up
SAY_SECONDS = 10.0  # for words to leave
MEET_SECONDS = 20.0  # for a peer to come to where its wire is made


class World:
    """This process among all ranks of the job: who is where, and words before there are channels.

    Made once per process. The machines are told apart by name and by network.
    """

    def __init__(self) -> None:
        self.comm = MPI.COMM_WORLD
        self._decided = False  # what becomes of the ranks: a run has begun, or they were dismissed
        self._kept: list[Any] = []  # words on their way
        with _patience():
            level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
            self.comm.Set_errhandler(MPI.ERRORS_RETURN)
            self.rank, self.size = self.comm.rank, self.comm.size
            self.meeting = DescriptorService(self.size)
            network = os.stat("/proc/self/ns/net").st_ino
            name = os.environ.get("TIANJI_HOST") or socket.gethostname()  # what it passes for
            told = self._tell_all([name, network, self.meeting.name])
        self.hosts = [f"{name}/{network}" for name, network, _ in told]  # by rank
        self.host_names = [name for name, _, _ in told]
        self.meetings = [name for _, _, name in told]
        if level < MPI.THREAD_SERIALIZED:
            raise TianJiError(
                f"this MPI ({library()}) lets no second thread use it (level {level}): use the "
                "Open MPI of pip install 'tianji[mpi]'"
            )

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
