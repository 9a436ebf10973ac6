"""Everything that can carry the experiment's messages, by name, and what each one lacks here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from transmission import ours, ranks
from transmission.experiment import Collected, Experiment
from transmission.hosts import Hosts
from transmission.peers.common import missing
from transmission.peers.mp_queue import mp_queue
from transmission.peers.pickled_mpi import pickled_mpi
from transmission.peers.ray_store import ray
from transmission.peers.zeromq import zmq_ipc, zmq_tcp
from transmission.plan import PEERS


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Carrier:
    """One transport, or one peer."""

    name: str
    run: Callable[[Experiment], Collected]
    missing: Callable[[], str | None] = _nothing  # what to install
    has_views: bool = False  # whether a receiver can use a message where it lies
    is_one_process: bool = False  # whose actors cannot sleep side by side
    across: Callable[[Experiment, Hosts], Collected] | None = None  # between hosts

    @property
    def is_peer(self) -> bool:
        """Whether it is somebody else's."""
        return self.name in PEERS


CARRIERS = {
    carrier.name: carrier
    for carrier in (
        Carrier("local", ours.local, has_views=True, is_one_process=True),
        Carrier("shm", ours.shm, has_views=True),
        Carrier("mpi", ranks.mpi, ranks.missing, has_views=True, across=ranks.mpi),
        Carrier("pickled-mpi", pickled_mpi, ranks.missing, has_views=True, across=pickled_mpi),
        Carrier("queue", mp_queue),
        Carrier("zeromq-ipc", zmq_ipc, lambda: missing("zmq", "pyzmq")),
        Carrier("zeromq-tcp", zmq_tcp, lambda: missing("zmq", "pyzmq")),
        Carrier("ray", ray, lambda: missing("ray", "ray")),
    )
}


def available(names: Iterable[str]) -> tuple[list[Carrier], dict[str, str]]:
    """The carriers that can run here, and for the others what to install."""
    asked = list(names)
    lacking = {name: lack for name in asked if (lack := CARRIERS[name].missing())}
    return [CARRIERS[name] for name in asked if name not in lacking], lacking
