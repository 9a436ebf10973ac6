"""A child process of the process engine: `python -m tianji.engines.worker NAME`.

It begins before the launcher knows the sizes of the channels, and loads its libraries meanwhile.
Its description comes as JSON on standard input; if that ends without one, the launcher gave up,
and so does the child. Nothing here is forked, so nothing of the launcher's state is inherited but
file descriptors.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from typing import Any


def main() -> int:
    """Runs the roles of one process until they are done."""
    home = sys.argv[1]
    _settle(home)
    from tianji.engines.run_roles import preload

    preload(home)
    text = sys.stdin.read()
    if not text:
        return 0
    import json

    return _run(home, json.loads(text))


def _settle(home: str) -> None:
    """Cores, signals and the promise to end with the launcher, before any library is loaded."""
    cores = os.environ.get("TIANJI_CORES", "")
    if cores:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    from tianji.core.signals import ending_with, group_ending_with, overhear

    overhear()  # sent to all: the launcher decides what it means
    if pipe := os.environ.get("TIANJI_LAUNCHER_PIPE"):
        group_ending_with(int(pipe))  # with all that environments start
    faulthandler.register(signal.SIGUSR2)  # from a launcher that takes it to hang: into the log
    ending_with(int(os.environ["TIANJI_LAUNCHER"]), signal.SIGKILL)()
    from tianji.engines.run_roles import yield_to_others

    yield_to_others(home)


def _run(home: str, description: dict[str, Any]) -> int:
    from tianji.core.errors import SAYS_MISTAKE, SAYS_SPENT, BudgetSpent, TianJiError

    try:
        _train(home, description)
    except TianJiError as error:
        print(f"{home}: {error}", file=sys.stderr)
        return SAYS_MISTAKE
    except BudgetSpent as error:
        print(f"{home}: {error}", file=sys.stderr)
        return SAYS_SPENT
    except SystemExit:  # of an environment or a library: no way to end a role
        traceback.print_exc()
        return 1
    return 0


def _train(home: str, description: dict[str, Any]) -> None:
    from tianji.config import from_json
    from tianji.engines.run_roles import train
    from tianji.engines.worker_loop import attach
    from tianji.job.job import from_json as job_from_json

    job = job_from_json(description, from_json(description["config"]))
    train(home, job, attach(job, description["transport"], home), description)


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # at once: taking torch apart would take longer than some runs do
