"""Learners that share their updates, without roles and channels."""

import dataclasses

import numpy as np


def together(algorithms, parts):
    """One update of all; returns what each of them logs, and how often they exchanged vectors."""
    return exchanged([a.updates(a.stage(part)) for a, part in zip(algorithms, parts, strict=True)])


def exchanged(updates):
    """What generators end with whose vectors are averaged by hand, and how often that was."""
    results, n_exchanges = [], 0
    while True:
        vectors = []
        for update in updates:
            try:
                vectors.append(next(update))
            except StopIteration as end:
                results.append(end.value)
        assert len(vectors) in (0, len(updates)), "not equally many gradients"
        if not vectors:
            return results, n_exchanges
        n_exchanges += 1
        mean = np.mean(vectors, axis=0)
        for vector in vectors:
            vector[...] = mean


def parts_of(batch, k):
    n = len(next(iter(batch.values()))) // k
    return [{name: a[i * n : (i + 1) * n] for name, a in batch.items()} for i in range(k)]


def several(algorithm, task, k):
    alone = algorithm(task, 3)
    many = [algorithm(dataclasses.replace(task, n_learners=k), 3) for _ in range(k)]
    return alone, many
