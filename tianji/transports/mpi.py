"""MPI: this process among its ranks, and words between them before there are channels."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from tianji.core.errors import USER_MISTAKE, TianJiError
from tianji.machine import mpirun
from tianji.transports.descriptors import DescriptorService
from tianji.transports.mpi_library import MPI, library
from tianji.transports.mpi_wire import MpiWire

TALK, MEET, JOIN = 3, 4, 5  # tags beside the wire's
BRIDGES = 64  # the first tag of those that groups are made with: Open MPI mixes them with others
N_GUESTS = 64  # that may wait at the door of a process for its machine's memory
NAP_SECONDS = 0.001  # from one look for words to the next
START_SECONDS = 60.0  # for all ranks to come up
SAY_SECONDS = 10.0  # for words to leave
MEET_SECONDS = 20.0  # for a peer to come to where its wire is made


class Talk:
    """Words between this process and others of a communicator, beside the channels."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self._kept: list[Any] = []  # words on their way

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


class World(Talk):
    """This process among all ranks of the job: who is where, and words before there are channels.

    Made once per process. The machines are told apart by name and by network.
    """

    def __init__(self) -> None:
        super().__init__(MPI.COMM_WORLD)
        self._decided = False  # what becomes of the ranks: a run has begun, or they were dismissed
        with _patience():
            level = MPI.Init_thread(MPI.THREAD_MULTIPLE)
            self.comm.Set_errhandler(MPI.ERRORS_RETURN)
            self.rank, self.size = self.comm.rank, self.comm.size
            self.meeting = DescriptorService(self.size)
            network = os.stat("/proc/self/ns/net").st_ino
            name = os.environ.get("TIANJI_HOST") or socket.gethostname()  # what it passes for
            told = self._tell_all([name, network, self.meeting.name, socket.gethostname()])
        self.hosts = [f"{name}/{network}" for name, network, _, _ in told]  # by rank
        self.host_names = [name for name, _, _, _ in told]
        self.meetings = [name for _, _, name, _ in told]
        self.nodes = [node for _, _, _, node in told]
        self.replaces = mpirun.survives() and level == MPI.THREAD_MULTIPLE
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

    def bridge(self, number: int, ranks: list[int]) -> Bridge | None:
        """Ties `ranks`, this one among them, so that another process can join them later.

        All of them call this at the same time, once they have met.
        """
        try:
            with _patience():  # for one that is stopped, or whose link is cut, just now
                here = self.comm.Get_group().Incl(ranks)
                comm = MPI.COMM_WORLD.Create_group(here, BRIDGES + number)
        except MPI.Exception:  # one of them has died already
            return None
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        return Bridge(comm)

    def start_newcomer(self, words: list[str], rank: int) -> Newcomer:
        """Starts a process on the machine of that rank; rank 0 may call this in any thread."""
        about = MPI.Info.Create()
        if len(set(self.nodes)) > 1:
            about.Set("host", self.nodes[rank])
        about.Set("wdir", os.getcwd())
        about.Set("map_by", "slot:OVERSUBSCRIBE")  # the lost one may count still
        MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)
        try:
            there = MPI.COMM_SELF.Spawn(words[0], words[1:], 1, about)
            return Newcomer(there.Merge(high=False))
        except MPI.Exception as error:
            raise TianJiError(f"MPI starts no other process: {error}") from None

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


class Newcomer(Talk):
    """What rank 0 has of a process that it has started: a communicator with nobody else."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        super().__init__(comm)
        self.intracomm = comm


class Bridge:
    """The processes that talk to the actors of a group, tied together before any was lost.

    MPI ties no processes of a communicator of which one has died.
    """

    def __init__(self, comm: MPI.Intracomm) -> None:
        self._comm = comm

    def join(self, number: int, newcomer: Newcomer | None) -> MpiWire:
        """Lets a new process in; all call this, rank 0 with the process. Waits for all of them."""
        peer = MPI.COMM_SELF if newcomer is None else newcomer.intracomm
        try:
            once = self._comm.Dup()  # of no use any more if the new one dies meanwhile
            once.Barrier()  # MPI crashes where one is revoked that not all have made yet
        except MPI.Exception as error:
            raise TianJiError(f"one of those who let another process in is lost: {error}") from None
        try:
            joined = once.Create_intercomm(0, peer, 1, JOIN)
        except MPI.Exception as error:
            with suppress(MPI.Exception):
                once.Revoke()  # nobody waits there for ever
            raise TianJiError(f"MPI lets no other process in: {error}") from None
        return MpiWire(_greet(joined), [number], {number: 0})


class NewcomerWorld(Talk):
    """A process that rank 0 has started in the place of one that was lost."""

    def __init__(self) -> None:
        with _patience():
            MPI.Init_thread(MPI.THREAD_MULTIPLE)
            comm = MPI.Comm.Get_parent().Merge(high=True)
        comm.Set_errhandler(MPI.ERRORS_RETURN)
        super().__init__(comm)
        self._with_rank_0 = comm
        self.meeting = DescriptorService(N_GUESTS)
        self.replaces = True
        self.rank = 0
        self.hosts: dict[int, str] = {}
        self.meetings: dict[int, str] = {}
        self._bridge: list[int] = []

    def learn(self, about: Mapping[str, Any]) -> None:
        """Who is who, as rank 0 tells it."""
        self.rank, self._bridge = about["number"], about["bridge"]
        self.hosts = {int(rank): host for rank, host in about["hosts"].items()}
        self.meetings = {int(rank): name for rank, name in about["meetings"].items()}

    def wire(self, peers: Iterable[int]) -> MpiWire:
        """To those who let it in, and nobody else."""
        MPI.COMM_SELF.Set_errhandler(MPI.ERRORS_RETURN)
        joined = MPI.COMM_SELF.Create_intercomm(0, self._with_rank_0, 0, JOIN)
        ranks = {peer: place for place, peer in enumerate(self._bridge)}
        return MpiWire(_be_greeted(joined), self._bridge, ranks)

    def bridge(self, number: int, ranks: list[int]) -> None:
        """It ties nobody."""


def _greet(comm: MPI.Intercomm) -> MPI.Intercomm:
    """Speaks first with the new process: MPI connects two only when one of them begins."""
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    talk = Talk(comm)
    talk.say(0, {}, MEET)
    talk.hear(0, MEET_SECONDS, tag=MEET)
    return comm


def _be_greeted(comm: MPI.Intercomm) -> MPI.Intercomm:
    """Answers all on the other side, one after the other."""
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    talk = Talk(comm)
    for rank in range(comm.Get_remote_size()):
        if talk.hear(rank, MEET_SECONDS, tag=MEET) is not None:
            talk.say(rank, {}, MEET)
    talk.settle()
    return comm


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
