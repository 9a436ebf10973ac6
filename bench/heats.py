"""Heats: every shape of a plan once, several at a time, each on cores of its own.

A sweep of all splits takes hours on a machine with many cores. A shape (groups, learner cores,
actors, place of the buffer) that makes half of what the fastest makes need not be run three times
with every number of environments, and one that needs two cores need not have sixteen. (Where roles
take turns, one that has only its own cores shares them among learner and actors; in the rounds it
has all that are there.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from trainings import FAILURES, Row

from tianji.strategy.plan.model import predict
from tianji.strategy.plan.profile import Profile
from tianji.strategy.plan.solver import PlanRequest, Shape, candidates, shape_of
from tianji.strategy.plan.split import Split


def shapes(profile: Profile, wish: PlanRequest) -> list[Split]:
    """One split of each shape, with the environments that are predicted to be fastest."""
    best: dict[Shape, tuple[float, Split]] = {}
    for split in candidates(profile, wish):
        rate = predict(profile, split).production
        if rate > best.get(shape_of(split), (0.0, split))[0]:
            best[shape_of(split)] = rate, split
    return [split for _, split in best.values()]


def packed(splits: Iterable[Split], size: Callable[[Split], int], room: int) -> list[list[Split]]:
    """Splits that have room beside each other, the largest first."""
    heats: list[list[Split]] = []
    for split in sorted(splits, key=size, reverse=True):
        for heat in heats:
            if sum(map(size, heat)) + size(split) <= room:
                heat.append(split)
                break
        else:
            heats.append([split])
    return heats


def run(
    heat: Sequence[Split], size: Callable[[Split], int], train: Callable[[Split], Row]
) -> list[Row | None]:
    """Trains with all splits of a heat at the same time; None for one that failed."""
    cores = sorted(os.sched_getaffinity(0))
    with ThreadPoolExecutor(len(heat)) as pool:
        started: list[Future[Row]] = []
        for split in heat:
            mine, cores = cores[: size(split)], cores[size(split) :]
            started.append(pool.submit(_on, mine, train, split))
        return [_row_of(future) for future in started]


def _on(cores: Sequence[int], train: Callable[[Split], Row], split: Split) -> Row:
    os.sched_setaffinity(0, cores)  # of this thread, and so of what it starts
    return train(split)


def _row_of(future: Future[Row]) -> Row | None:
    try:
        return future.result()
    except FAILURES as problem:
        print(f"  a run of a heat did not finish: {problem}", flush=True)
        return None
