"""The roles of one process of the process or the MPI engine: libraries, resumed states, turns."""

from __future__ import annotations

import gc
import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tianji.core.lazy import loading
from tianji.roles.role_specs import Kind, evaluator_of, kind_of, roles_of

if TYPE_CHECKING:  # what a role needs is loaded when it is known which one it is
    from tianji.core.alarm import HangAlarm
    from tianji.engines.worker_loop import ProcessPorts
    from tianji.job.job import Job
    from tianji.observe.trace.recording import TraceRecording
    from tianji.roles.episodes import Clock
    from tianji.roles.role import Role


def preload(home: str) -> None:
    """Loads what the roles of a process will need, while the launcher is still measuring sizes."""
    kind = kind_of(home)
    with loading():
        if kind is Kind.LEARNER:
            import torch  # noqa: F401
        elif kind in (Kind.ACTOR, Kind.EVALUATOR):
            import gymnasium  # noqa: F401
        import tianji.job.factory  # noqa: F401

        gc.freeze()  # none of it will ever be garbage


def yield_to_others(home: str) -> None:
    """Has the operating system put others first where a core is shared.

    An evaluator takes what the others leave. An actor that is woken does not push away who woke it:
    a learner on the same core, which in synchronous training still has to wake the others.
    """
    kind = kind_of(home)
    if kind is Kind.EVALUATOR:
        os.nice(19)
    elif kind is Kind.ACTOR:
        with suppress(OSError):  # it is only slower without
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def use_threads(home: str, n: int) -> None:
    """Has the numerical library of a learner's process use `n` threads; others do without it."""
    if kind_of(home) is Kind.LEARNER:
        import torch

        torch.set_num_threads(n)


def train(
    home: str,
    job: Job,
    ports: ProcessPorts,
    description: dict[str, Any],
    clock: Clock = time.monotonic,
    alarm: HangAlarm | None = None,
) -> None:
    """Makes the roles of one process, resumed if the run is, and runs them until they are done."""
    from tianji.engines.replacement import counts_for
    from tianji.engines.worker_loop import Loop
    from tianji.job import factory
    from tianji.job.advice import Listener
    from tianji.roles.saving import Saver

    threads = description["threads"].get(home, 1)  # an evaluator has none of its own
    use_threads(home, threads)
    evaluator = evaluator_of(job.config)
    if evaluator is not None and home == evaluator.home:
        counts = counts_for([home], ports.shared)[home]
        Loop([factory.build(evaluator, job, ports, clock, counts)], ports, alarm=alarm).run()
        return
    roles, trace = _roles_and_trace(home, job, ports, description, clock)
    learns = any(kind_of(role.name) is Kind.LEARNER for role in roles)
    control = ports.inbox("control") if learns else None
    folder, seen = Path(description["checkpoints"]), int(description.get("seen", 0))
    saver = Saver(roles, ports.inbox("orders"), folder, clock, control, seen)
    set_threads = partial(use_threads, home) if learns and _on_cpu(job) else None
    everybody = roles_of(job.config)
    listener = Listener(roles, ports.inbox("advice"), everybody, set_threads, threads)
    taken = None
    if job.config.exp.record and description["resumed"] is None:
        from tianji.observe import replay_record

        taken = replay_record.record(roles, job.config, folder.parent)
    Loop(roles, ports, saver, clock, listener, taken, alarm).run()
    if trace is not None:
        trace.close()


def _roles_and_trace(
    home: str, job: Job, ports: ProcessPorts, description: dict[str, Any], clock: Clock
) -> tuple[list[Role], TraceRecording | None]:
    """The roles as they begin: anew, from a checkpoint, or where those of a lost process stood."""
    from tianji.engines.replacement import Replacement, counts_for
    from tianji.job import factory
    from tianji.roles import Actor
    from tianji.roles.env_actor import EnvActor

    life, run = int(description.get("life", 0)), Path(description["checkpoints"]).parent
    mine = [replace(role, life=life) for role in roles_of(job.config) if role.home == home]
    counts = counts_for([role.name for role in mine], ports.shared, description.get("counts"))
    had_begun = life and all(vector is not None and vector.any() for vector in counts.values())
    replacement = Replacement(job, ports.shared, run) if life else None
    if replacement is not None:
        replacement.make_way(mine)
    roles = [factory.build(role, job, ports, clock, counts[role.name]) for role in mine]
    for role in roles:
        if isinstance(role, Actor | EnvActor):
            role.mishaps.log = partial(print, file=sys.stderr, flush=True)
    trace = None
    if job.config.exp.trace_seconds is not None:
        from tianji.observe.trace.recording import record

        trace = record(roles, job.config, run, home, clock, life)
    if description["resumed"] is not None and not had_begun:
        _resume(roles, description["resumed"])
    if replacement is not None:
        moved = replacement.take_over(roles)
        if trace is not None:
            trace.replaced(roles, moved)
    return roles, trace


def _on_cpu(job: Job) -> bool:
    """Whether a learner of this host makes its updates on the CPU, where threads may help."""
    from tianji.models.device import device_for

    return device_for(job.config.parallel.learner_cfg.device) == "cpu"


def _resume(roles: list[Role], folder: str) -> None:
    """Every role goes on from its part; what was in flight between them is lost."""
    from tianji.core.checkpoint import open_checkpoint
    from tianji.roles.saving import recall

    saved = open_checkpoint(Path(folder))
    for role in roles:
        recall(role, saved, in_flight=False)
