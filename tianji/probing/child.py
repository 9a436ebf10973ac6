"""A process that measures one role at a time: `python -m tianji.probing.child KIND`.

It reads tasks from standard input, a line of JSON each: what to measure, on which cores. When all
is made ready it says so, waits for the word to go, so that several are measured at once, and
answers with what it found. It ends with its input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from typing import Any

from tianji.engines.roles import preload, use_threads, yield_to_others
from tianji.signals import ending_with


def main() -> int:
    """Measures until there is nothing more to measure."""
    kind, answers = sys.argv[1], _own_output()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of Ctrl-C: whoever started it says what follows
    ending_with(int(os.environ["TIANJI_LAUNCHER"]), signal.SIGKILL)()
    yield_to_others(kind)
    preload(kind)
    for line in sys.stdin:
        task = json.loads(line)
        os.sched_setaffinity(0, task["cores"])
        _measure(kind, task, answers)
    return 0


def _own_output() -> int:
    """Standard output, for answers alone: what an environment prints goes to standard error."""
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _measure(kind: str, task: dict[str, Any], answers: int) -> None:
    from tianji.config import from_json
    from tianji.errors import TianJiError
    from tianji.probing.measure import ActorProbe, LearnerProbe

    try:
        config = from_json(task["config"])
        if kind == "actor":
            probe: ActorProbe | LearnerProbe = ActorProbe(config, task["pause"])
        else:
            use_threads(kind, task["threads"])
            probe = LearnerProbe(config, task["pause"])
        _say(answers, {"ready": True})
        sys.stdin.readline()
        _say(answers, asdict(probe.run(task["seconds"])))
    except TianJiError as error:
        _say(answers, {"error": str(error)})
    except (MemoryError, RuntimeError) as error:  # torch's is one of the latter
        if isinstance(error, RuntimeError) and "out of memory" not in str(error):
            raise
        _say(answers, {"error": str(error) or "out of memory", "memory": True})


def _say(answers: int, what: dict[str, Any]) -> None:
    os.write(answers, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # at once, as a worker does
