"""Learners of one or several groups, fed and given turns by hand."""

from types import SimpleNamespace

import numpy as np

from tianji.core.channel import ChannelSpec, Delivery
from tianji.core.schema import Field, Schema
from tianji.roles import Learner
from tianji.roles.allreduce import AllReduce, exchange_schema
from tianji.roles.fusion import Fusion, parameters_schema
from tianji.roles.reducer import Reducer
from tianji.roles.shards import Shards, shard_schema
from tianji.roles.trigger import EveryUpdates
from tianji.transports.local import LocalTransport

N = 5  # parameters
BATCH = Schema(
    (
        Field("x", "float32", (N,)),
        Field("version", "int64"),
        Field("age", "int64"),
        Field("new", "bool"),
    )
)
WEIGHTS = Schema((Field("weights", "float32", (N,)),))
NOTHING = Schema((Field("nothing", "uint8"),))


class Averaging:
    """Moves its parameters towards the mean of a batch, in `n_steps` steps of an optimiser."""

    scalars = ("loss",)
    overlaps = False

    def n_left_out(self):
        return None

    def __init__(self, n_steps=1):
        self.n_steps = n_steps
        self.vector = np.zeros(N, np.float32)
        self.updates_done = 0

    def stage(self, batch):
        return batch

    def updates(self, batch):
        for _ in range(self.n_steps):
            gradient = (self.vector - batch["x"]).mean(0, dtype=np.float32)
            yield gradient
            self.vector -= np.float32(0.3) * gradient
        self.updates_done += 1
        return {"loss": float(self.vector.sum())}

    def learn(self, batch):
        for _ in (update := Result(self.updates(batch))):
            pass
        return update.value

    def weights(self):
        return self.vector

    parameters = weights

    def shift(self, delta):
        self.vector += delta

    def log_probabilities(self, batch):
        return None


class Result:
    """Iterates over a generator and keeps what it returned."""

    def __init__(self, generator):
        self.generator = generator

    def __iter__(self):
        self.value = yield from self.generator


class GroupOfLearners:
    """K learners that share batches; `fused` gives the first an end to a reducer."""

    def __init__(self, k=2, n_steps=1, rows=12, depth=2, ahead=8, max_updates=None, interval=None):
        batch = BATCH.stacked(rows)
        every, latest = Delivery.EVERY, Delivery.LATEST
        names = [f"learner-0.{i}" for i in range(k)]
        specs = [
            ChannelSpec("weights", names[0], ("actor",), WEIGHTS, latest),
            ChannelSpec("control", "launcher", tuple(names), NOTHING, latest),
            ChannelSpec("parameters", names[0], ("reducer",), parameters_schema(N), every, 1),
            ChannelSpec("mean", "reducer", (names[0],), parameters_schema(N), latest),
        ]
        pairs = [(i, j) for i in range(k) for j in range(k) if i != j]
        for i, j in pairs:
            layout = exchange_schema(N)
            specs.append(ChannelSpec(f"{i}>{j}", names[i], (names[j],), layout, every, depth))
        for i, name in enumerate(names):
            layout = shard_schema(batch, k)
            specs.append(ChannelSpec(f"batches {i}", "buffer", (name,), layout, every, ahead))
        self.transport = transport = LocalTransport(specs)
        self.control, self.weights = transport.outbox("control"), transport.inbox("weights")
        outboxes = [transport.outbox(f"batches {i}") for i in range(k)]
        self.batches = Shards(outboxes, batch) if k > 1 else outboxes[0]
        self.parameters, self.mean = transport.inbox("parameters"), transport.outbox("mean")
        self.rows, self.schema = rows, batch
        self.random = np.random.default_rng(0)
        self.learners = [self._learner(i, k, n_steps, max_updates, interval) for i in range(k)]

    def _learner(self, i, k, n_steps, max_updates, interval):
        transport, others = self.transport, [j for j in range(k) if j != i]
        exchange = AllReduce(
            i,
            {j: transport.outbox(f"{i}>{j}") for j in others},
            {j: transport.inbox(f"{j}>{i}") for j in others},
            N,
        )
        fusion = None
        if interval is not None and i == 0:
            ends = transport.outbox("parameters"), transport.inbox("mean")
            fusion = Fusion(*ends, N, interval)
        return Learner(
            f"learner-0.{i}",
            Averaging(n_steps),
            transport.inbox(f"batches {i}"),
            transport.outbox("weights") if i == 0 else None,
            transport.inbox("control"),
            EveryUpdates(1),
            max_updates,
            exchange=exchange if k > 1 else None,
            fusion=fusion,
        )

    def push(self):
        """The next of always the same batches."""
        batch = self.schema.empty()
        batch["x"][...] = self.random.normal(size=(self.rows, N))
        batch["version"][...], batch["age"][...], batch["new"][...] = 0, 0, True
        return self.batches.push(batch, 0)

    def run(self, most=10_000):
        """Turns for everyone until all are done, or nobody has anything to do."""
        for _ in range(most):
            moved = [learner.step() for learner in self.learners if not learner.done]
            if not any(moved):
                return
        raise AssertionError("they never came to rest")

    @property
    def vectors(self):
        return [learner.algorithm.vector for learner in self.learners]

    @property
    def versions(self):
        return [learner.version for learner in self.learners]


def reducer_of(n_groups, max_fusions=None):
    """A reducer, what sends to it and what it sends."""
    layout, groups = parameters_schema(N), range(n_groups)
    specs = [ChannelSpec(f"p {g}", f"g{g}", ("r",), layout, Delivery.EVERY, 1) for g in groups]
    specs.append(ChannelSpec("mean", "r", tuple(f"g{g}" for g in groups), layout, Delivery.LATEST))
    transport = LocalTransport(specs)
    inboxes = [transport.inbox(f"p {g}") for g in groups]
    return SimpleNamespace(
        reducer=Reducer("reducer-0.0", inboxes, transport.outbox("mean"), N, max_fusions),
        outboxes=[transport.outbox(f"p {g}") for g in groups],
        mean=transport.inbox("mean"),
        transport=transport,
    )
