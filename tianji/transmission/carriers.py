"""Everything that can carry the experiment's messages, by name, and what each one lacks here."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from tianji.core.errors import TianJiError
from tianji.transmission import ours, ranks
from tianji.transmission.experiment import Collected, Experiment
from tianji.transmission.hosts import Hosts
from tianji.transmission.peers.common import missing
from tianji.transmission.peers.mp_queue import mp_queue
from tianji.transmission.peers.pickled_mpi import pickled_mpi
from tianji.transmission.peers.ray_store import ray
from tianji.transmission.peers.zeromq import zmq_ipc, zmq_tcp
from tianji.transmission.plan import PEERS, TRANSPORTS

RATE = 4e9  # bytes per second within one host, of what is not known to be slower; rough


class Processes(enum.Enum):
    """What the actors of a carrier are."""

    NONE = enum.auto()  # they run within this one
    CHILDREN = enum.auto()
    RANKS = enum.auto()  # of mpirun, with the receiver


@dataclass(frozen=True)
class Carrier:
    """One transport, or one peer."""

    name: str
    run: Callable[[Experiment], Collected]
    missing: Callable[[], str | None]  # what to install
    processes: Processes = Processes.CHILDREN
    rate: float = RATE  # bytes per second within one host, to guess by
    has_views: bool = False  # whether a receiver can use a message where it lies
    across: Callable[[Experiment, Hosts], Collected] | None = None  # between hosts

    @property
    def is_peer(self) -> bool:
        """Whether it is somebody else's."""
        return self.name in PEERS


def _nothing() -> None:
    return None


CARRIERS = {
    carrier.name: carrier
    for carrier in (
        Carrier("local", ours.local, _nothing, Processes.NONE, has_views=True),
        Carrier("shm", ours.shm, _nothing, has_views=True),
        Carrier("mpi", ranks.mpi, ranks.missing, Processes.RANKS, has_views=True, across=ranks.mpi),
        Carrier(
            "pickled MPI",
            pickled_mpi,
            ranks.missing,
            Processes.RANKS,
            rate=3e8,
            has_views=True,  # what was unpickled is the receiver's own
            across=pickled_mpi,
        ),
        Carrier("queue", mp_queue, _nothing, rate=4e8),
        Carrier("ZeroMQ ipc", zmq_ipc, lambda: missing("zmq", "pyzmq"), rate=8e8),
        Carrier("ZeroMQ tcp", zmq_tcp, lambda: missing("zmq", "pyzmq"), rate=6e8),
        Carrier("Ray", ray, lambda: missing("ray", "ray"), rate=4e8),
    )
}


def chosen(said: str, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """The names in a list with commas, in our order; `all` and `none` are understood."""
    if said in ("all", "none"):
        return known if said == "all" else ()
    short = {_short(name): name for name in known}
    asked = [word.strip() for word in said.split(",") if word.strip()]
    if unknown := [word for word in asked if _short(word) not in short]:
        names = ", ".join(short)
        raise TianJiError(f"{option}: no {unknown[0]!r}; known are {names}, all and none")
    return tuple(name for name in known if _short(name) in map(_short, asked))


def _short(name: str) -> str:
    return name.lower().replace(" ", "-")


def available(names: tuple[str, ...]) -> tuple[list[Carrier], dict[str, str]]:
    """The carriers that can run here, and for the others what to install."""
    assert set(names) <= {*TRANSPORTS, *PEERS}
    lacking = {name: lack for name in names if (lack := CARRIERS[name].missing())}
    return [CARRIERS[name] for name in names if name not in lacking], lacking
