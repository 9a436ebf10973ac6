"""Every role in a rank of an MPI job, on one machine or on many: the engine for clusters."""

from __future__ import annotations

from pathlib import Path

from tianji.core.checkpoint import Checkpoint
from tianji.engines.ranks import Ranks
from tianji.engines.remote import RemoteEngine
from tianji.engines.worker_loop import description_of, shared_channels
from tianji.job.job import Job
from tianji.machine.resources import Share
from tianji.roles.role_specs import LAUNCHER, homes_of
from tianji.transports.cluster import ClusterTransport
from tianji.transports.mpi import World


def mpi_engine(
    world: World,
    job: Job,
    ranks: Ranks,
    folder: Path,
    shares: dict[str, Share],
    resumed: Checkpoint | None = None,
) -> RemoteEngine:
    """Runs a job with the ranks that were gathered."""
    ranks.brief(description_of(job, folder, shares, resumed))
    homes = homes_of(job.config)
    transport = ClusterTransport(world, shared_channels(job), homes, ranks.ranks, LAUNCHER)
    transport.start()
    ranks.watch(transport)
    return RemoteEngine("mpi", job, ranks, transport, shares)
