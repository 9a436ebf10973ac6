"""A process that measures one role at a time.

`python -m tianji.strategy.probe.probe_process KIND DEVICE` says when it has loaded its libraries.
Then it reads tasks from standard input, a line of JSON
each: what to measure, on which cores. When all is made and warm it says so, waits for the word to
go, so that several are measured in the same moments, and answers with what it found. It ends with
its input.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from tianji.core.signals import ending_with, overhear
from tianji.engines.run_roles import preload, use_threads, yield_to_others

LACKING = ("out of memory", "allocate memory")  # as CUDA says it, and torch on the CPU


def main() -> int:
    """Measures until there is nothing more to measure."""
    (kind, device), answers = sys.argv[1:], _own_output()
    overhear()  # sent to all: whoever started it says what follows
    ending_with(int(os.environ["TIANJI_LAUNCHER"]), signal.SIGKILL)()
    yield_to_others(kind)
    preload(kind)
    _wake(device)
    _say(answers, {"loaded": True})
    for line in sys.stdin:
        task = json.loads(line)
        _sit_on(task["cores"])
        for _ in range(task.get("answers", 0)):
            sys.stdin.readline()
            _say(answers, {})
        if "config" not in task:
            continue
        _measure(kind, task, answers)
        _give_back()
    return 0


def _wake(device: str) -> None:
    """Has the GPU, if it is one, learn of this process and load a kernel, which takes seconds.

    Why that is impossible is said where it matters: in a measurement.
    """
    from tianji.core.errors import TianJiError
    from tianji.core.lazy import torch
    from tianji.models.device import device_for

    if device == "cpu":  # an actor may need no torch
        return
    with suppress(TianJiError, RuntimeError):
        if (found := device_for(device)) != "cpu":
            some = torch.ones(8, 8, device=found)
            (some @ some).sum().item()


def _sit_on(cores: list[int]) -> None:
    """Moves all threads, torch's and the GPU's among them: those of a run are where it began."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it may end meanwhile
            os.sched_setaffinity(int(thread), cores)


def _give_back() -> None:
    """What the GPU had for this measurement is for those who are measured next."""
    if "torch" not in sys.modules:
        return
    from tianji.core.lazy import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def _own_output() -> int:
    """Standard output, for answers alone: what an environment prints goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _measure(kind: str, task: dict[str, Any], answers: int) -> None:
    from tianji.config import from_json
    from tianji.core.errors import TianJiError
    from tianji.strategy.probe.measure import ActorProbe, LearnerProbe

    def go() -> None:
        _say(answers, {"ready": True})
        sys.stdin.readline()

    try:
        config = from_json(task["config"])
        if kind == "actor":
            probe: ActorProbe | LearnerProbe = ActorProbe(config, task["pause"])
        else:
            use_threads(kind, task["threads"])
            probe = LearnerProbe(config, task["pause"])
        _say(answers, asdict(probe.run(task["seconds"], go)))
    except TianJiError as error:
        _say(answers, {"error": str(error)})
    except (MemoryError, RuntimeError) as error:  # torch's is one of the latter
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in LACKING):
            raise
        _say(answers, {"error": str(error) or "out of memory", "memory": True})


def _say(answers: int, what: dict[str, Any]) -> None:
    os.write(answers, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # at once, as a worker does
