"""The experiment over our own transports within one machine: in one process, over shared memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping

import numpy as np

from tianji.core.errors import TianJiError
from tianji.transports.local import LocalTransport
from tianji.transports.shm import ShmTransport
from transmission.child import child_environment, command, die_with_parent
from transmission.experiment import RECEIVER, Collected, Experiment, actor, channels
from transmission.loops import actor_ends, collect, produce, receiver_ends, user_of

GRACE_SECONDS = 10.0


def local(experiment: Experiment) -> Collected:
    """Sender and receiver take turns in this process."""
    assert experiment.n_actors == 1, "actors of one process cannot sleep side by side"
    specs, _ = channels(experiment)
    transport = LocalTransport(specs)
    outbox, inbox = transport.outbox("samples actor-0"), transport.inbox("samples actor-0")
    sample, use = np.ones(experiment.message_bytes, np.uint8), user_of(experiment)
    wrong, began = 0, 0.0
    for i in range(experiment.n_messages + experiment.depth):
        if i == experiment.depth:  # warm: every slot has been used
            began = time.perf_counter()
        arrays = outbox.slot()
        assert arrays is not None
        np.copyto(arrays["data"], sample)
        outbox.commit(i)
        message = inbox.take()
        assert message is not None
        use(message.arrays["data"], i)
        wrong += message.version != i
    return Collected(time.perf_counter() - began, n_wrong=wrong)


def shm(experiment: Experiment) -> Collected:
    """Each actor is a process; this one receives."""
    specs, homes = channels(experiment)
    transport = ShmTransport.create(specs, homes, home=RECEIVER)
    description = transport.describe()
    brief = {"transport": description, "experiment": experiment.to_json()}
    inherited = [description["memory"], *description["events"].values()]
    try:
        with Actors(experiment.n_actors, ["transmission.ours"], brief, inherited) as actors:
            return collect(receiver_ends(transport, experiment.n_actors), experiment, actors.check)
    finally:
        transport.close()


class Actors:
    """Child processes that are gone when the body ends."""

    def __init__(
        self, n: int, words: list[str], brief: Mapping[str, object], inherited: list[int]
    ) -> None:
        self._words = [command(*words, actor(i)) for i in range(n)]
        self._brief = json.dumps(brief)
        self._inherited = inherited
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Actors:
        for words in self._words:
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                pass_fds=self._inherited,
                env=child_environment(),
                text=True,
            )
            self._processes.append(process)
            assert process.stdin is not None
            process.stdin.write(self._brief)
            process.stdin.close()
        return self

    def check(self) -> None:
        """Raises if one has failed: nobody would ever hear from it."""
        for words, process in zip(self._words, self._processes, strict=True):
            if process.poll():
                raise TianJiError(f"{words[-1]} of {words[2]} ended with {process.returncode}")

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for process in self._processes:
            try:
                process.wait(GRACE_SECONDS if error is None else 0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> None:
    """The child: an actor over shared memory."""
    die_with_parent()
    brief, name = json.load(sys.stdin), sys.argv[1]
    transport = ShmTransport.attach(brief["transport"], name)
    produce(actor_ends(transport, name), Experiment.from_json(brief["experiment"]))
    transport.close()
