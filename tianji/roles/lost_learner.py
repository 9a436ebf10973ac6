"""Learners and buffers in the place of lost ones, while their actors go on.

The version never falls, for actors and samples are measured by it: updates that were made and are
in no weights that survive count as made. What the lost buffer held counts as received.
"""

from __future__ import annotations

import math

import numpy as np

from tianji.core.algorithm import Algorithm
from tianji.core.channel import Message
from tianji.core.counts import Count
from tianji.core.schema import Arrays
from tianji.core.state import State, copied
from tianji.core.store import Recoverable, Sampling
from tianji.roles.buffer import Buffer
from tianji.roles.learner import Learner


def take_over(
    learner: Learner, saved: State | None, published: Message | None, said: Arrays | None
) -> None:
    """Learns on from what is newest, with the counts of the lost one, which this one has.

    That is what it `published` last, where its checkpoint is older, and from there all that is in
    no weights: optimisers, critics, targets. What it `said` last are its measurements.
    """
    algorithm, version = learner.algorithm, int(learner.counts[Count.VERSION])
    source, learned = "nothing that was saved", 0
    if saved is not None:
        algorithm.restore(saved["algorithm"])
        learned = saved["version"]
        source = f"the checkpoint of version {learned:,}"
    if published is not None and published.version > learned:
        weights = published.arrays["weights"]
        if np.isfinite(weights).all():
            algorithm.load(weights)
            source += f", and the weights of version {published.version:,}"
    _count_on(algorithm, version - learned)
    learner.version = version
    if said is not None:
        scalars = dict(zip(algorithm.scalars, said["scalars"].tolist(), strict=True))
        learner.consumption.restore({**said, "scalars": scalars})
    print(f"{learner.name}: goes on at version {version:,} from {source}", flush=True)


def _count_on(algorithm: Algorithm, n: int) -> None:
    """Sets what follows from the number of updates, as a learning rate, to `n` of them later."""
    known = algorithm.state()
    if "updates" in known:
        algorithm.restore(copied(known | {"updates": known["updates"] + n}))


def take_over_buffer(
    buffer: Buffer, handed: int, sampling: Sampling, saved: State | None = None
) -> None:
    """Begins with the samples that were saved, or empty, after so many batches handed out.

    What lacks of a warm-up has to come first. Nothing is owed for what was lost, so no burst of
    updates follows. Synchronous actors have sent what the next version needs, or some have: it is
    given up, and all collect for the one after.
    """
    counts, balance = buffer.counts, buffer.balance
    buffer.received_before = int(counts[Count.UNITS_RECEIVED])
    if sampling.once:  # the others were learned from, and only cannot be again
        lost = max(0, buffer.received_before - handed * balance.batch)
        buffer.received_before -= lost
        counts[Count.UNITS_RECEIVED] = buffer.received_before  # whose next loss is another one
        counts[Count.DROPPED] += lost
    if sampling.per_version is not None:
        buffer.given_up = handed
        handed += 1
    buffer.handed = buffer.since = handed
    buffer.opening = 0
    buffer.received = int(counts[Count.RECEIVED])
    balance.consumed = handed * balance.batch
    _recover(buffer, saved)
    warm = min(balance.warmup, buffer.store.size())
    balance.received = math.ceil(balance.consumed / balance.ratio) + warm


def _recover(buffer: Buffer, saved: State | None) -> None:
    """Takes the samples of a checkpoint, if it has them and they can be drawn again."""
    store, samples = buffer.store, None if saved is None else saved["store"]
    if saved is not None and samples is not None and isinstance(store, Recoverable):
        store.restore(samples)
        store.miss(max(0, buffer.received - saved["received"]))
    print(f"{buffer.name}: goes on with {store.size():,} samples", flush=True)
