"""The two systems of ratelimit.py: threads with a blocking limiter or with our buffer between them.

Actors and a learner sleep for as long as their work would take, and write down when what came, went
and was done.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from limiter import SamplesPerInsert
from measures import Event
from transmission.loops import until

from tianji.core.balance import Balance
from tianji.core.channel import ChannelSpec
from tianji.core.schema import Field, Schema
from tianji.core.store import trajectory_schema
from tianji.roles import Buffer
from tianji.stores.replay import Replay
from tianji.transports.local import LocalTransport
from tianji.transports.shm import ShmTransport


@dataclass(frozen=True)
class Costs:
    """How long everything takes; lengths vary around their mean like a sum of `shape` waits."""

    n_actors: int = 8
    steps: int = 20  # of a trajectory
    trajectory_seconds: float = 0.05
    batch: int = 64
    update_seconds: float = 0.005
    ratio: float = 4.0
    min_size: int = 1_000
    shape: float = 4.0

    @property
    def layout(self) -> Schema:
        """Of a trajectory."""
        obs, action = Field("obs", "float32", (4,)), Field("action", "int64")
        return trajectory_schema(obs, action, (), self.steps, 1)

    @property
    def replay(self) -> Replay:
        """The same store for both."""
        return Replay(self.batch, 50_000, self.min_size)

    def lengths(self, mean: float, seed: int) -> Callable[[], float]:
        """Draws one length after the other."""
        draw = random.Random(seed)
        return lambda: draw.gammavariate(self.shape, mean / self.shape)


@dataclass
class Log:
    """What one run left behind."""

    came: list[Event] = field(default_factory=list)  # samples received
    went: list[Event] = field(default_factory=list)  # samples consumed
    learned: list[Event] = field(default_factory=list)  # end of an update, and its length
    acted: list[Event] = field(default_factory=list)  # end of a trajectory, and its length


def work(seconds: float, log: list[Event]) -> None:
    """Takes that long, and says how long it really was."""
    began = time.perf_counter()
    time.sleep(seconds)
    now = time.perf_counter()
    log.append((now, now - began))


def run_limiter(costs: Costs, error_buffer: float, seed: int, seconds: float) -> Log:
    """Threads that wait for each other at a limiter, and share a store under a lock.

    The actor that inserts copies its trajectory into the store, the learner that samples draws.
    """
    log, limiter = Log(), SamplesPerInsert(costs.ratio, costs.min_size, error_buffer)
    log.came, log.went = limiter.came, limiter.went
    store, lock = costs.replay.build(costs.layout, costs.n_actors, 0, seed), threading.Lock()

    def act(actor: int) -> None:
        length = costs.lengths(costs.trajectory_seconds, 1_000 * seed + actor)
        trajectory = costs.layout.empty()
        while True:
            work(length(), log.acted)
            trajectory["length"][...], trajectory["valid"][...] = costs.steps, True
            with lock:
                store.add(actor, trajectory, 0)
            if not limiter.insert(costs.steps):
                return

    def learn() -> None:
        length = costs.lengths(costs.update_seconds, 1_000 * seed + 999)
        batch = costs.replay.batch_schema(costs.layout).empty()
        while limiter.sample(costs.batch):
            with lock:
                store.draw(batch)
            work(length(), log.learned)

    threads = [threading.Thread(target=act, args=(i,)) for i in range(costs.n_actors)]
    _run([*threads, threading.Thread(target=learn)], seconds, limiter.close)
    return log


def run_ours(costs: Costs, slack: int, seed: int, seconds: float) -> Log:
    """Threads with the channels, the buffer and the balance of a real run.

    The buffer rides with the learner, as it does in a run unless it is given cores of its own. It
    may take `slack` steps ahead (`buffer_cfg.slack`).
    """
    log, stop = Log(), threading.Event()
    layout, replay = costs.layout, costs.replay
    names = [f"actor-{i}" for i in range(costs.n_actors)]
    specs = [ChannelSpec(name, name, ("buffer",), layout) for name in names]
    homes = {name: name for name in names} | {"buffer": "learner"}
    shared = ShmTransport.create(specs, homes)
    about = shared.describe()

    def act(actor: int) -> None:
        length = costs.lengths(costs.trajectory_seconds, 1_000 * seed + actor)
        transport = ShmTransport.attach(about, names[actor])
        outbox = transport.outbox(names[actor])

        def free() -> bool:
            return stop.is_set() or outbox.slot() is not None

        while not stop.is_set():
            until(transport, free)
            if (slot := outbox.slot()) is None:
                return
            work(length(), log.acted)
            slot["length"][...], slot["valid"][...] = costs.steps, True
            outbox.commit(0)

    def learn() -> None:
        length = costs.lengths(costs.update_seconds, 1_000 * seed + 999)
        transport = ShmTransport.attach(about, "learner")
        private = LocalTransport(
            [ChannelSpec("batches", "buffer", ("learner",), replay.batch_schema(layout))]
        )
        inboxes = [transport.inbox(name) for name in names]
        store = replay.build(layout, costs.n_actors, 0, seed)
        balance = Balance(costs.ratio, costs.batch, costs.min_size, slack)
        buffer = Buffer("buffer", inboxes, private.outbox("batches"), store, balance)
        batches = private.inbox("batches")

        def turn() -> bool:
            before = buffer.received
            moved = buffer.step()
            if buffer.received > before:
                log.came.append((time.perf_counter(), buffer.received - before))
            if batches.take() is not None:
                log.went.append((time.perf_counter(), costs.batch))
                work(length(), log.learned)
                return True
            return moved or stop.is_set()

        while not stop.is_set():
            until(transport, turn)

    threads = [threading.Thread(target=act, args=(i,)) for i in range(costs.n_actors)]
    _run([*threads, threading.Thread(target=learn)], seconds, stop.set)
    shared.close()
    return log


def _run(threads: list[threading.Thread], seconds: float, stop: Callable[[], None]) -> None:
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop()
    for thread in threads:
        thread.join()
