"""A child process that measures one role at a time, seen from the launcher."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from types import TracebackType
from typing import Any

from tianji.config import Config
from tianji.core.child import command_for
from tianji.core.errors import TianJiError
from tianji.core.signals import signal_group
from tianji.machine.resources import Share, available_cores

Answer = dict[str, Any]

SILENT_SECONDS = 60.0  # after which a role is given up
ROUND_TRIPS = 500

MAKE_ROOM = {
    "learner": "lower hyp.buffer_size, or on-policy actor_cfg.envs or the length of rollouts",
    "actor": "lower actor_cfg.envs, or offer fewer --cores",
}
"""What helps where memory runs out."""


class OutOfMemory(TianJiError):
    """What was to be measured does not fit."""


class ProbeHandle:
    """One child, of one kind, with a number of threads that it keeps."""

    def __init__(self, kind: str, threads: int, device: str = "cpu") -> None:
        """`device` is where it computes, so that it can be made ready."""
        self.kind = kind
        self.threads = threads
        share = Share(available_cores(), threads)
        self._process = subprocess.Popen(
            [*command_for("tianji.strategy.probe.probe_process"), kind, device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | share.environment() | {"TIANJI_LAUNCHER": str(os.getpid())},
            text=True,
            process_group=0,  # with all that its environments start
        )

    def __enter__(self) -> ProbeHandle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # what it was told last, and did not hear
                    stream.close()

    def kill(self) -> None:
        """Ends the child and what it has started, without waiting for that."""
        if self._process.returncode is None:
            signal_group(self._process.pid, signal.SIGTERM)
            self._process.kill()

    def await_loaded(self) -> None:
        """Returns when the child has loaded its libraries; before that it disturbs others."""
        self._hear()

    def prepare(self, task: ProbeTask, seconds: float) -> None:
        """Has the child make and warm up what is measured; `await_ready` waits until it has."""
        given = {"config": task.config.to_json(), "cores": list(task.cores), "pause": task.pause}
        self._tell(json.dumps(given | {"seconds": seconds, "threads": self.threads}))

    def await_ready(self) -> None:
        """Returns when all is made and warm, and raises if it cannot be."""
        self._hear()

    def go(self) -> None:
        """Has it begin, now."""
        self._tell("go")

    def answer(self) -> Answer:
        """What was found."""
        return self._hear()

    def round_trip(self, core: int) -> float:
        """Seconds in which the child on this core is woken and wakes its parent; the median."""
        self._tell(json.dumps({"cores": [core], "answers": ROUND_TRIPS}))
        taken = []
        for _ in range(ROUND_TRIPS):
            began = time.perf_counter()
            self.go()
            self.answer()
            taken.append(time.perf_counter() - began)
        return median(taken)

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def _hear(self) -> Answer:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], SILENT_SECONDS)[0]:
            raise TianJiError(
                f"plan: the {self.kind} that is measured said nothing for {SILENT_SECONDS:.0f} s: "
                "does an environment of it hang? `tianji train` with --engine local shows where"
            )
        line = self._process.stdout.readline()
        if not line:
            raise self._gone()
        answer: Answer = json.loads(line)
        if "error" not in answer:
            return answer
        problem = f"plan: the {self.kind} that was measured: {answer['error']}"
        if answer.get("memory"):
            raise OutOfMemory(f"{problem}: {MAKE_ROOM[self.kind]}")
        raise TianJiError(problem)

    def _gone(self) -> TianJiError:
        status = self._process.wait()
        signal_group(self._process.pid, signal.SIGTERM)
        if status == -signal.SIGKILL:
            return OutOfMemory(
                f"plan: the {self.kind} that was measured was killed, as the system does where "
                "memory runs out: " + MAKE_ROOM[self.kind]
            )
        return TianJiError(
            f"plan: the {self.kind} that was measured ended with status {status}; its last words "
            "are above"
        )


@dataclass(frozen=True)
class ProbeTask:
    """What one child is to measure."""

    hand: ProbeHandle
    config: Config
    cores: Sequence[int]
    pause: float = 0.0  # seconds, as long as it would wait for others


def together(tasks: Sequence[ProbeTask], seconds: float) -> list[Answer]:
    """Measures several at once, each with its configuration on its cores.

    Where memory is too small for all of them, those who have some measure in vain, and all can be
    used again.
    """
    for task in tasks:
        task.hand.prepare(task, seconds)
    ready, answers = list[ProbeHandle](), list[Answer]()
    lacking: OutOfMemory | None = None
    for task in tasks:
        try:
            task.hand.await_ready()
            ready.append(task.hand)
        except OutOfMemory as error:
            lacking = error
    for hand in ready:
        hand.go()
    for hand in ready:
        try:
            answers.append(hand.answer())
        except OutOfMemory as error:
            lacking = error
    if lacking is not None:
        raise lacking
    return answers
