"""Every role in a process of its own, over shared memory: the engine for one machine.

The launcher starts the children first and works out sizes while they load their libraries; then it
hands each its description.
"""

from __future__ import annotations

from pathlib import Path

from tianji.core.checkpoint import Checkpoint
from tianji.engines.child_processes import Crew
from tianji.engines.remote import RemoteEngine
from tianji.engines.worker_loop import description_of, shared_channels, transport_class
from tianji.job.job import Job
from tianji.machine.resources import Share
from tianji.roles.role_specs import homes_of


def process_engine(
    job: Job, crew: Crew, folder: Path, shares: dict[str, Share], resumed: Checkpoint | None = None
) -> RemoteEngine:
    """Runs a job with a crew, over shared memory or a transport of the user's."""
    homes, reserved = homes_of(job.config), (crew.memory, crew.events)
    transport = transport_class(job).create(shared_channels(job), homes, reserved)
    about = description_of(job, folder, shares, resumed)
    crew.brief(about | {"transport": transport.describe()})
    return RemoteEngine("process", job, crew, transport, shares)
