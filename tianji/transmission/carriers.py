"""Everything that can carry the experiment's messages, by name, and what each one lacks here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tianji.errors import TianJiError
from tianji.transmission import ours, peers, ranks
from tianji.transmission.experiment import Collected, Experiment
from tianji.transmission.hosts import Hosts
from tianji.transmission.plan import PEERS, TRANSPORTS


@dataclass(frozen=True)
class Carrier:
    """One transport, or one peer."""

    name: str
    run: Callable[[Experiment], Collected]
    missing: Callable[[], str | None]  # what to install
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
        Carrier("local", ours.local, _nothing, has_views=True),
        Carrier("shm", ours.shm, _nothing, has_views=True),
        Carrier("mpi", ranks.mpi, ranks.missing, has_views=True, across=ranks.mpi),
        Carrier(
            "pickled MPI",
            peers.pickled_mpi,
            ranks.missing,
            has_views=True,  # what was unpickled is the receiver's own
            across=peers.pickled_mpi,
        ),
        Carrier("queue", peers.mp_queue, _nothing),
        Carrier("ZeroMQ ipc", peers.zmq_ipc, lambda: peers.missing("zmq")),
        Carrier("ZeroMQ tcp", peers.zmq_tcp, lambda: peers.missing("zmq")),
        Carrier("Ray", peers.ray, lambda: peers.missing("ray")),
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
