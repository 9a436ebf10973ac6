"""What a run of the benchmark measures, and how long it may take over each figure."""

from __future__ import annotations

from dataclasses import dataclass

KB, MB = 1 << 10, 1 << 20
PARTS = ("a", "b", "c", "d")
TRANSPORTS = ("local", "shm", "mpi")
PEERS = ("pickled-mpi", "queue", "zeromq-ipc", "zeromq-tcp", "ray")
SIZES = tuple(KB << i for i in range(14))  # 1 KB - 8 MB
MESSAGE_BYTES = 512 * KB
LINK_BITS = 1e9


@dataclass(frozen=True)
class Plan:
    """One run."""

    parts: tuple[str, ...] = PARTS
    transports: tuple[str, ...] = TRANSPORTS
    peers: tuple[str, ...] = PEERS
    rounds: int = 3  # of each figure of part a and d; medians are shown
    sizes: tuple[int, ...] = SIZES
    peer_sizes: tuple[int, ...] = (KB, 16 * KB, 64 * KB, MESSAGE_BYTES, 2 * MB, 8 * MB)
    peer_rounds: int = 3
    most_messages: int = 100_000  # of one figure of part a, however small they are
    figure_bytes: int = 1 << 30  # sent for one figure of part a; peers send an eighth
    actors: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    sample_seconds: tuple[float, ...] = (0.001, 0.01)
    samples: int = 10_000  # of each point of part b, in all rounds together
    peer_samples: int = 500
    actor_rounds: int = 3
    point_seconds: float = 10.0  # a point of part b is given fewer samples rather than more time
    crowds: tuple[str, ...] = (*TRANSPORTS, *PEERS)  # part b is measured with, if they are here
    host_actors: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    n_hosts: int = 4  # of part c: the receiver's, and those of the actors
    host_samples: int = 900  # 512 KB cross a link in 4.3 ms
    link_sizes: tuple[int, ...] = SIZES[4:]  # 16 KB - 8 MB
    link_bytes: int = 80_000_000  # sent for one figure of part d
    link_rounds: int = 3

    def n_messages(self, message_bytes: int, total_bytes: int) -> int:
        """Enough messages of a size to say something, not too many of a small one."""
        return max(16, min(self.most_messages, total_bytes // message_bytes))

    def n_samples(self, samples: int, n_actors: int, seconds: float) -> int:
        """Samples of one round of a point of part b or c."""
        in_time = int(self.point_seconds * n_actors / max(seconds, 1e-9))
        return max(8 * n_actors, min(samples, in_time) // self.actor_rounds)


def quick(parts: tuple[str, ...] = PARTS) -> Plan:
    """The same in less than half a minute: fewer points, once each."""
    return Plan(
        parts=parts,
        rounds=1,
        sizes=(KB, 64 * KB, MESSAGE_BYTES, 8 * MB),
        peer_sizes=(MESSAGE_BYTES,),
        peer_rounds=1,
        figure_bytes=1 << 28,
        most_messages=20_000,
        actors=(1, 4, 8),
        samples=600,
        peer_samples=100,
        actor_rounds=1,
        point_seconds=0.5,
        crowds=("shm",),
        host_actors=(1, 4),
        n_hosts=3,
        host_samples=240,
        link_sizes=(16 * KB, MESSAGE_BYTES, 8 * MB),
        link_bytes=30_000_000,
        link_rounds=1,
    )
