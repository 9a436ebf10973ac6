"""A child process of the process engine: `python -m tianji.worker NAME KIND`.

It begins before the launcher knows the sizes of the channels, and loads its libraries meanwhile.
Its description comes as JSON on standard input; if that ends without one, the launcher gave up,
and so does the child. Nothing here is forked, so nothing of the launcher's state is inherited but
file descriptors.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tianji.engines.loop import ProcessPorts
    from tianji.episodes import Clock
    from tianji.roles import Role
    from tianji.topology import Job


def main() -> int:
    """Runs the roles of one process until they are done."""
    home, kind = sys.argv[1:3]
    _settle()
    preload(kind)
    text = sys.stdin.read()
    if not text:
        return 0
    import json

    return _run(home, json.loads(text))


def _settle() -> None:
    """Cores, signals and the promise to end with the launcher, before any library is loaded."""
    cores = os.environ.get("TIANJI_CORES", "")
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to all: the launcher decides what it means
    if sys.argv[2] == "evaluator":
        os.nice(19)  # it takes what the others leave
    launcher = int(os.environ["TIANJI_LAUNCHER"])
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    if os.getppid() != launcher:  # it died before we asked
        os._exit(1)


def preload(kind: str) -> None:
    """Loads what this kind of role will need, while the launcher is still measuring sizes."""
    if kind == "learner":
        import torch  # noqa: F401
    elif kind in ("actor", "evaluator"):
        import gymnasium  # noqa: F401
    import tianji.topology  # noqa: F401


def _run(home: str, description: dict[str, Any]) -> int:
    from tianji.errors import USER_MISTAKE, TianJiError

    try:
        _train(home, description)
    except TianJiError as error:
        print(f"{home}: {error}", file=sys.stderr)
        return USER_MISTAKE
    except SystemExit:  # of an environment or a library: no way to end a role
        traceback.print_exc()
        return 1
    return 0


def _train(home: str, description: dict[str, Any]) -> None:
    from tianji import topology
    from tianji.config import from_json
    from tianji.engines.loop import attach

    job = topology.from_json(description, from_json(description["config"]))
    train(home, job, attach(job, description["transport"], home), description)


def train(
    home: str,
    job: Job,
    ports: ProcessPorts,
    description: dict[str, Any],
    clock: Clock = time.monotonic,
) -> None:
    """Makes the roles of one process, resumed if the run is, and runs them until they are done."""
    from tianji import topology
    from tianji.engines.loop import Loop
    from tianji.roster import Kind, evaluator_of, roles_of
    from tianji.saving import Saver

    if home.startswith("learner"):
        import torch

        torch.set_num_threads(description["threads"][home])
    evaluator = evaluator_of(job.config)
    if evaluator is not None and home == evaluator.home:
        Loop([topology.build(evaluator, job, ports)], ports).run()
        return
    mine = [role for role in roles_of(job.config) if role.home == home]
    roles = [topology.build(role, job, ports, clock) for role in mine]
    if description["resumed"] is not None:
        _resume(roles, description["resumed"])
    learns = any(role.kind is Kind.LEARNER for role in mine)
    control = ports.inbox("control") if learns else None
    saver = Saver(roles, ports.inbox("orders"), Path(description["checkpoints"]), clock, control)
    Loop(roles, ports, saver, clock).run()


def _resume(roles: list[Role], folder: str) -> None:
    """Every role goes on from its part; what was in flight between them is lost."""
    from tianji.checkpoint import open_checkpoint
    from tianji.saving import recall

    saved = open_checkpoint(Path(folder))
    for role in roles:
        recall(role, saved, in_flight=False)


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # at once: taking torch apart would take longer than some runs do
