"""The other end of a channel test: `channel_child.py DEED`, its particulars as JSON on stdin."""

import json
import os
import sys
import time

import numpy as np

from tianji.transports import shm
from tianji.transports.shm import ShmTransport

A_LOOK = 0.001  # seconds that a broken writer leaves the other end to see what is not whole yet


def resident_bytes():
    """Memory of this process that is its own, shared mappings left out."""
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class Waiter:
    """Tries until it succeeds, sleeping as a worker process does: announce, look again, sleep."""

    def __init__(self, transport, seconds=20.0):
        self.transport, self.seconds = transport, seconds
        self.n_timeouts = 0  # sleeps that nobody ended: each would be a lost wake-up

    def until(self, attempt):
        while not (found := attempt()):
            self.transport.arm()
            if found := attempt():
                self.transport.disarm()
                return found
            began = time.monotonic()
            self.transport.wait(self.seconds)
            self.n_timeouts += time.monotonic() - began > 0.95 * self.seconds
        return found


def publish(transport, n, broken=False):
    """Publishes `n` vectors that say their version in every element; `broken`: too early."""
    Waiter(transport).until(transport.inbox("ready").take)
    outbox = transport.outbox("weights")
    for version in range(n):
        cell = outbox.slot()["weights"]
        if broken:
            outbox.commit(version)
            time.sleep(A_LOOK)
        cell[...] = version
        if not broken:
            outbox.commit(version)
    outbox.close()
    return {"published": n}


def read(transport):
    """Reads until the end; counts vectors that are torn or older than one read before."""
    transport.outbox("ready").push({"nothing": np.zeros(())}, 0)
    inbox = transport.inbox("weights")
    found = {"taken": 0, "torn": 0, "backwards": 0, "last": -1}
    while True:
        closed = inbox.closed  # before the last look, not after it
        if (message := inbox.take()) is not None:
            vector = message.arrays["weights"]
            found["taken"] += 1
            found["torn"] += not (vector == message.version).all()
            found["backwards"] += message.version <= found["last"]
            found["last"] = message.version
        elif closed:
            return found


def produce(transport, n, broken=False):
    """Sends `n` numbered messages; returns its memory at a fifth of them and at the end.

    `broken` makes each visible before it is whole.
    """
    outbox, waiter = transport.outbox("ring"), Waiter(transport)
    for i in range(n):
        slot = waiter.until(outbox.slot)
        if broken:
            outbox.commit(i)
            time.sleep(A_LOOK)
        slot["number"][...] = i
        slot["data"][...] = i
        if not broken:
            outbox.commit(i)
        if i == n // 5:  # the other end has come up long ago
            early, waiter.n_timeouts = resident_bytes(), 0
    outbox.close()
    return {"early": early, "late": resident_bytes(), "timeouts": waiter.n_timeouts}


def consume(transport, n):
    """Takes everything; counts what is out of order or not whole."""
    inbox, waiter = transport.inbox("ring"), Waiter(transport)
    taken = wrong = early = 0
    while message := waiter.until(lambda: inbox.take() or inbox.closed):
        if message is True:
            break
        arrays = message.arrays
        whole = arrays["number"] == taken and (arrays["data"] == taken).all()
        wrong += not (whole and message.version == message.sequence == taken)
        taken += 1
        if taken == n // 5:
            early, waiter.n_timeouts = resident_bytes(), 0
    return {
        "taken": taken,
        "wrong": wrong,
        "early": early,
        "late": resident_bytes(),
        "timeouts": waiter.n_timeouts,
    }


def produce_for_ever(transport):
    """Sends numbered messages, in two halves each, until it is killed."""
    outbox, waiter = transport.outbox("ring"), Waiter(transport)
    number = 0
    while True:
        slot = waiter.until(outbox.slot)
        half = slot["data"].size // 2
        slot["number"][...] = number
        slot["data"][:half] = number
        slot["data"][half:] = number
        outbox.commit(number)
        number += 1


def idle(transport, seconds):
    """Waits for a message that never comes, as a worker does; returns its share of a core."""
    inbox, waiter = transport.inbox("ring"), Waiter(transport, 0.02)
    ends = time.monotonic() + seconds
    began_cpu, began = time.process_time(), time.monotonic()
    waiter.until(lambda: inbox.take() or time.monotonic() > ends)
    return {"share": (time.process_time() - began_cpu) / (time.monotonic() - began)}


def echo(transport, n):
    """Sends every ping back."""
    inbox, outbox, waiter = transport.inbox("ping"), transport.outbox("pong"), Waiter(transport)
    for _ in range(n):
        message = waiter.until(inbox.take)
        waiter.until(lambda m=message: outbox.push(m.arrays, m.version))
    return {"timeouts": waiter.n_timeouts}


def store_slowly(transport, n, seconds):
    """Copies each message and spends `seconds` on it, as a busy receiver would; returns when."""
    inbox, waiter = transport.inbox("ring"), Waiter(transport)
    transport.outbox("ready").push({"nothing": np.zeros(())}, 0)
    spans = []
    for _ in range(n):
        message, began = waiter.until(inbox.take), time.monotonic()
        message.arrays["data"].copy()
        time.sleep(seconds)
        spans.append((began, time.monotonic()))
    return {"spans": spans}


DEEDS = (publish, read, produce, consume, produce_for_ever, idle, echo, store_slowly)


def main():
    brief = json.load(sys.stdin)
    if not brief["options"].pop("afar", True):
        shm.is_fenced_from_afar = lambda: False
    transport = ShmTransport.attach(brief["transport"], brief["home"])
    deed = next(deed for deed in DEEDS if deed.__name__ == sys.argv[1])
    print(json.dumps(deed(transport, **brief["options"])))


if __name__ == "__main__":
    main()
