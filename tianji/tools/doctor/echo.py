"""Two processes that talk over shared memory as a run's do: the doctor, and this module.

The doctor starts `python -m tianji.tools.doctor.echo`, sends it messages and waits for each to
come back, asleep until its bell rings.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tianji.core.channel import ChannelSpec
from tianji.core.child import command_for
from tianji.core.errors import TianJiError
from tianji.core.schema import Field, Schema
from tianji.transports.descriptors import reserve
from tianji.transports.shm import ShmTransport

SECONDS = 0.5  # of talking
START_SECONDS = 10.0  # for the other to start on a busy machine
NAP_SECONDS = 0.2  # longest sleep that no bell ended
LAYOUT = Schema((Field("data", "int64", (1024,)), Field("clock", "float64")))
DOCTOR, OTHER = "doctor", "other"

T = TypeVar("T")


@dataclass(frozen=True)
class Echo:
    """What came of talking to another process over shared memory."""

    messages: int = 0
    round_trip_seconds: float = 0.0
    shared_clock: bool = True  # the other's clock showed a time between question and answer
    error: str = ""


def talk(seconds: float = SECONDS) -> Echo:
    """Sends messages to another process and gets them back, for so long."""
    try:
        memory, events = reserve((DOCTOR, OTHER))
        specs = [
            ChannelSpec("there", DOCTOR, (OTHER,), LAYOUT),
            ChannelSpec("back", OTHER, (DOCTOR,), LAYOUT),
        ]
        homes = {DOCTOR: DOCTOR, OTHER: OTHER}
        transport = ShmTransport.create(specs, homes, (memory, events), DOCTOR)
    except (OSError, AttributeError, TianJiError) as error:
        return Echo(error=str(error))
    process = subprocess.Popen(
        command_for("tianji.tools.doctor.echo"),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(memory, *events.values()),
    )
    try:
        assert process.stdin is not None
        process.stdin.write(json.dumps(transport.describe()).encode())
        process.stdin.close()
        return _exchange(transport, process, seconds)
    except (OSError, TimeoutError) as error:
        return Echo(error=_last_words(process) or str(error))
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
        transport.close()


def _exchange(transport: ShmTransport, process: subprocess.Popen[bytes], seconds: float) -> Echo:
    outbox, inbox = transport.outbox("there"), transport.inbox("back")
    shared, began, n = True, 0.0, -1  # the first message waits for the other to start
    while n < 0 or time.monotonic() < began + seconds:
        sent = time.monotonic()
        outbox.push({"data": np.full(1024, n), "clock": np.array(sent)}, n)
        deadline = sent + (START_SECONDS if n < 0 else 2.0)
        message = until(transport, inbox.take, deadline, lambda: process.poll() is not None)
        if not (message.arrays["data"] == n).all():
            return Echo(error=f"message {n} came back with other contents")
        shared = shared and sent <= float(message.arrays["clock"]) <= time.monotonic()
        if n < 0:
            began = time.monotonic()
        n += 1
    outbox.close()
    return Echo(n, (time.monotonic() - began) / n, shared)


def until(
    transport: ShmTransport,
    attempt: Callable[[], T | None],
    deadline: float,
    hopeless: Callable[[], bool] = lambda: False,
) -> T:
    """Tries until it succeeds, asleep in between, as a role's process does."""
    while (found := attempt()) is None:
        transport.arm()
        if (found := attempt()) is not None:
            transport.disarm()
            return found
        transport.wait(NAP_SECONDS)
        if time.monotonic() > deadline or hopeless():
            raise TimeoutError("no answer came back")
    return found


def _last_words(process: subprocess.Popen[bytes]) -> str:
    """What the other process said before it ended, if it has."""
    if process.poll() is None or process.stderr is None:
        return ""
    lines = process.stderr.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with status {process.returncode}"


def main() -> None:
    """Sends every message back, with the time on this process's clock."""
    transport = ShmTransport.attach(json.load(sys.stdin), OTHER)
    inbox, outbox = transport.inbox("there"), transport.outbox("back")
    while not inbox.closed:
        try:
            message = until(transport, inbox.take, time.monotonic() + 1.0, lambda: inbox.closed)
        except TimeoutError:
            return
        now = {"data": message.arrays["data"], "clock": np.array(time.monotonic())}
        outbox.push(now, message.version)


if __name__ == "__main__":
    main()
