"""Objects over MPI: `isend`, `iprobe` and `recv`, which pickle; what the original release does."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tianji.core.channel import Message
from tianji.machine import mpirun
from transmission import ranks
from transmission.child import die_with_parent
from transmission.experiment import Collected, Experiment
from transmission.hosts import Hosts
from transmission.loops import ActorEnds, Numbers, ReceiverEnds, collect, produce
from transmission.peers.common import Naps, asked, message, nothing

MODULE = "transmission.peers.pickled_mpi"
SAMPLES, GO, STOP, REPORT = 1, 2, 3, 4  # tags


def pickled_mpi(experiment: Experiment, hosts: Hosts | None = None) -> Collected:
    """What the original release does: `isend` of an object, `iprobe` and `recv`."""
    return ranks.run_ranks(_plain_mpirun, MODULE, experiment, hosts)


def _plain_mpirun(n: int, words: Sequence[str], hostfile: Path | None) -> list[str]:
    """As its users start it: without what our own transport turns on."""
    command = [str(mpirun.find()), "-n", str(n), "--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    if hostfile is None:
        return [*command, "--map-by", "slot:OVERSUBSCRIBE", *words]
    return [*command, "--hostfile", str(hostfile), "--map-by", "slot", *words]


def _rank(experiment: Experiment, answer: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    pending: list[Any] = []
    if comm.rank:
        produce(_pickling(comm, experiment, pending), experiment)
        MPI.Request.waitall(pending)
        comm.Ibarrier().Wait()
        return
    ends = _unpickling(comm, experiment, pending)
    found = collect(ends, experiment, nothing)
    answer.write_text(json.dumps(found.to_json()))
    leaving = comm.Ibarrier()
    while not leaving.Test():  # what was sent too much must be received all the same
        ends.takes[0]()


def _pickling(comm: Any, experiment: Experiment, pending: list[Any]) -> ActorEnds:
    def send(sample: Any, number: int) -> bool:
        pending[:] = [request for request in pending if not request.test()[0]]
        if len(pending) >= experiment.depth:
            return False
        pending.append(comm.isend((number, sample), 0, SAMPLES))
        return True

    def report(numbers: Numbers) -> bool:
        pending.append(comm.isend(numbers, 0, REPORT))
        return True

    naps = Naps(comm.size)
    return ActorEnds(
        naps, send, lambda: bool(comm.iprobe(0, GO)), lambda: bool(comm.iprobe(0, STOP)), report
    )


def _unpickling(comm: Any, experiment: Experiment, pending: list[Any]) -> ReceiverEnds:
    def take() -> Message | None:
        return message(*comm.recv(tag=SAMPLES)) if comm.iprobe(tag=SAMPLES) else None

    def report() -> Message | None:
        return message(0, comm.recv(tag=REPORT)) if comm.iprobe(tag=REPORT) else None

    def tell(tag: int) -> None:
        pending.extend(comm.isend(None, rank, tag) for rank in range(1, comm.size))

    reports = [report] * experiment.n_actors
    return ReceiverEnds(Naps(comm.size), [take], reports, lambda: tell(GO), lambda: tell(STOP))


def main() -> None:
    """One rank."""
    experiment, answer, [where] = asked()
    if where == ranks.NEAR:
        die_with_parent()
    _rank(experiment, answer)
