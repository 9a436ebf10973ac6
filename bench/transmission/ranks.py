"""The experiment over our own transport between ranks of MPI: rank 0 receives, the others send."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from tianji.core.errors import TianJiError
from tianji.machine import mpirun
from transmission.child import command, die_with_parent
from transmission.experiment import RECEIVER, Collected, Experiment, actor, channels
from transmission.hosts import Hosts
from transmission.loops import actor_ends, collect, produce, receiver_ends

if TYPE_CHECKING:
    from tianji.transports.cluster import ClusterTransport
    from tianji.transports.courier import Courier

MOST_SECONDS = 100.0  # for one experiment, however long: a test that hangs can still say where
START_SECONDS = 30.0  # for processes to come and go
TIMES_SLOWER = 3.0  # than it should be, before an experiment counts as hung
SLOWEST_RATE = 20e6  # bytes per second that anything here brings
LAST_LINES = 8  # of what a failed command has said
MODULE = "transmission.ranks"
AGENT = "PRTE_MCA_plm_ssh_agent"  # what mpirun calls in the place of ssh

NEAR, FAR = "near", "far"  # a rank of another host has a parent that comes and goes

Start = Callable[[int, Sequence[str], Path | None], list[str]]
"""The command that starts so many ranks of these words, on the hosts of a hostfile."""


def missing() -> str | None:
    """What to install for ranks to be started; None where nothing is missing."""
    try:
        mpirun.find()
    except TianJiError as error:
        return str(error).removeprefix("engine mpi needs ")
    return None


def mpi(experiment: Experiment, hosts: Hosts | None = None) -> Collected:
    """Ranks on this machine share memory; ranks on several hosts use the network."""
    return run_ranks(as_in_training, MODULE, experiment, hosts, mpirun.SETTINGS)


def as_in_training(n: int, words: Sequence[str], hostfile: Path | None) -> list[str]:
    """With progress and fault tolerance turned on."""
    return mpirun.command(n, words, hostfile, environment=os.environ | {AGENT: "ours"})


def run_ranks(
    start: Start,
    module: str,
    experiment: Experiment,
    hosts: Hosts | None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Collected:
    """Starts a module on one rank for the receiver and one for each actor; returns its answer."""
    n, given = experiment.n_actors + 1, {**settings, **os.environ}
    with tempfile.TemporaryDirectory(prefix="tianji-ranks-") as folder:
        answer = Path(folder) / "answer.json"
        where = NEAR if hosts is None else FAR
        said = [json.dumps(experiment.to_json()), str(answer), where]
        words = command(module, *said)
        if hosts is None:
            environment = given | {mpirun.SCRATCH: folder}
            run(start(n, words, None), environment, most_seconds(experiment))
        else:
            environment = given | {AGENT: str(hosts.agent())}
            hostfile = hosts.hostfile(slots(experiment.n_actors, len(hosts)))
            run(hosts[0].command(start(n, words, hostfile)), environment, most_seconds(experiment))
        return Collected(**json.loads(answer.read_text()))


def slots(n_actors: int, n_hosts: int) -> list[int]:
    """Ranks of each host: the first is the receiver's alone, the actors share the others."""
    away = n_hosts - 1
    return [1, *(n_actors // away + (i < n_actors % away) for i in range(away))]


def most_seconds(experiment: Experiment) -> float:
    """How long an experiment is waited for, with all that starts and ends it."""
    n_sampled = experiment.n_messages / experiment.n_actors
    sampling = n_sampled * (experiment.sample_seconds or 0.0)
    carrying = experiment.n_messages * experiment.message_bytes / SLOWEST_RATE
    return min(MOST_SECONDS, START_SECONDS + TIMES_SLOWER * (sampling + carrying))


def run(words: list[str], environment: dict[str, str], seconds: float) -> None:
    """Runs a command to its end; what it says is shown only if it fails."""
    given = environment | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(words, env=given, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise TianJiError(f"no answer within {seconds:.0f} s of {words[0]}") from error
    if done.returncode:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-LAST_LINES:])
        raise TianJiError(f"{words[0]} ended with {done.returncode}:\n{said}")


def watch(transport: ClusterTransport) -> Callable[[], None]:
    """Raises when an actor was lost: with fault tolerance mpirun lets the others go on."""

    def check() -> None:
        if transport.failure is not None:
            raise TianJiError("the receiver's courier has failed")
        if lost := sorted(transport.courier.lost):
            raise TianJiError(f"rank {lost[0]} of the experiment was lost")

    return check


def leave_with_receiver(courier: Courier) -> None:
    """Ends an actor when nobody will take what it sends."""
    if 0 in courier.lost:
        os._exit(1)


def fail() -> None:
    """Ends an actor whose courier has failed: the receiver finds it lost."""
    os._exit(1)


def main() -> None:
    """One rank."""
    from tianji.transports.mpi import leave

    if sys.argv[3] == NEAR:
        die_with_parent()  # mpirun ends its ranks, unless it was killed itself
    try:
        _take_part(Experiment.from_json(json.loads(sys.argv[1])), Path(sys.argv[2]))
    except TianJiError as error:
        print(error, file=sys.stderr)
        mpirun.vanish(1)
    leave()
    mpirun.vanish(0)


def _take_part(experiment: Experiment, answer: Path) -> None:
    from tianji.transports.cluster import ClusterTransport
    from tianji.transports.mpi import world

    here = world()
    specs, homes = channels(experiment)
    names = [RECEIVER, *(actor(i) for i in range(experiment.n_actors))]
    ranks = {name: rank for rank, name in enumerate(names)}
    transport = ClusterTransport(here, specs, homes, ranks, names[here.rank])
    if here.rank:
        transport.start(leave_with_receiver, fail)
        produce(actor_ends(transport, names[here.rank]), experiment)
    else:
        transport.start()
        ends = receiver_ends(transport, experiment.n_actors)
        answer.write_text(json.dumps(collect(ends, experiment, watch(transport)).to_json()))
    transport.close()
