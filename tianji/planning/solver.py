"""Equations 3 and 4: the split with the largest min(TR_L, TR_A) that the cores and memory allow.

There are few splits, so all of them are looked at. Freshness needs no search: batch and pool of a
group stay as they are however many groups there are, and so does their quotient P.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from tianji.errors import TianJiError
from tianji.planning.model import predict
from tianji.planning.profile import Profile, Work
from tianji.planning.split import Prediction, Split
from tianji.wording import count_of

NOISE = 0.03  # a split that is faster by less than this share may just have been lucky
MORE_STEPS = 0.05  # share of the rate that other environments than the configuration's must bring
MOST_SHOWN = 6  # next-best splits


Shape = tuple[int, int, int, bool]


@dataclass(frozen=True)
class Wish:
    """What the user leaves open; None: anything."""

    cores: int  # M, of each host
    hosts: int = 1
    groups: int | None = None
    actors: int | None = None  # of a group
    envs: int | None = None  # of an actor
    learner_cores: int | None = None
    memory_bytes: int | None = None  # of each host
    buffer_alone: bool | None = None  # on a core of its own
    most_groups: int | None = None


@dataclass(frozen=True)
class Choice:
    """A split and what is expected of it."""

    split: Split
    prediction: Prediction


def solve(profile: Profile, wish: Wish) -> list[Choice]:
    """The best split first, then the next-best ones, each with other numbers of roles."""
    found = [Choice(split, predict(profile, split)) for split in candidates(profile, wish)]
    if not found:
        raise TianJiError(_no_split(profile, wish))
    room = None if wish.memory_bytes is None else wish.memory_bytes * wish.hosts
    fitting = [c for c in found if room is None or c.prediction.memory_bytes <= room]
    if not fitting:
        least = min(choice.prediction.memory_bytes for choice in found)
        raise TianJiError(
            f"no plan fits into memory: the smallest needs {least / 2**20:,.0f} MiB and "
            f"{(room or 0) / 2**20:,.0f} MiB are free: lower hyp.buffer_size, --cores or --groups"
        )
    return _ranked(fitting, profile)


def candidates(profile: Profile, wish: Wish) -> Iterator[Split]:
    """Every split of the cores, one group after the other replicated on every host."""
    work = profile.work
    for per_host in range(1, wish.cores + 1):
        groups, mine = per_host * wish.hosts, wish.cores // per_host
        if wish.groups not in (None, groups) or groups > (wish.most_groups or groups):
            continue
        for cores, alone in itertools.product(_learner_cores(profile, wish), _places(work, wish)):
            learning = cores * work.learners + alone
            room = mine if work.alternates else mine - learning
            if learning > mine or (room < 1 and wish.cores > 1):
                continue  # only a machine with a single core has to share it
            for actors in range(1, max(room, 1) + 1):
                if wish.actors not in (None, actors):
                    continue
                for envs in _envs(profile, wish, actors):
                    yield Split(
                        groups, cores, actors, envs, work.batch, work.pool, work.learners,
                        buffer_alone=alone, one_core=room < 1, hosts=wish.hosts,
                    )  # fmt: skip


def _learner_cores(profile: Profile, wish: Wish) -> list[int]:
    """Those that were measured, unless some are given: what they cost lies between."""
    if wish.learner_cores is not None:
        return [wish.learner_cores]
    return sorted({cost.cores for cost in profile.learners})


def _places(work: Work, wish: Wish) -> list[bool]:
    """Whether the buffer has a core of its own; in turns with the learner it would gain nothing."""
    if wish.buffer_alone is not None:
        return [wish.buffer_alone]
    return [False] if work.alternates else [False, True]


def _envs(profile: Profile, wish: Wish, actors: int) -> Iterator[int]:
    """Environments per actor; on-policy batches are made of all of them, so their sum is given."""
    work = profile.work
    if work.on_policy:
        fits = work.envs % actors == 0 and (work.rollouts or actors) % work.learners == 0
        if fits and work.rollouts is not None:  # whole trajectories per batch
            fits = work.rollouts * work.steps * (work.envs // actors) == work.batch
        choices = [work.envs // actors] if fits else []
    else:
        room = work.pool // (work.steps * actors)  # a store holds a trajectory of each at least
        measured = [cost.envs for cost in profile.actors]
        choices = [n for n in (measured if wish.envs is None else [wish.envs]) if n <= room]
    for envs in choices:
        if wish.envs in (None, envs):
            yield envs


def shape_of(split: Split) -> Shape:
    """All of a split but the environments of an actor."""
    return split.groups, split.learner_cores, split.actors, split.buffer_alone


def _ranked(choices: list[Choice], profile: Profile) -> list[Choice]:
    """The simplest of those that nobody could tell from the fastest; then one of each shape."""
    work = profile.work

    def simplicity(choice: Choice) -> tuple[float, ...]:
        split = choice.split
        strange = abs(split.actors * split.envs - work.envs)
        return split.groups, split.cores(work), split.buffer_alone, strange

    def fastest(choice: Choice) -> tuple[float, ...]:
        return -choice.prediction.production, *simplicity(choice)

    def simplest(choices: list[Choice], share: float) -> Choice:
        """Of those that make all but a share of what the fastest makes."""
        best = max(choice.prediction.production for choice in choices)
        near = [choice for choice in choices if choice.prediction.production >= (1 - share) * best]
        return min(near, key=lambda choice: (*simplicity(choice), *fastest(choice)))

    shapes: dict[Shape, list[Choice]] = {}
    for choice in choices:
        shapes.setdefault(shape_of(choice.split), []).append(choice)
    first = shapes.pop(shape_of(simplest(choices, NOISE).split))
    # With more environments than the configuration has, a result takes more steps.
    others = sorted((simplest(same, MORE_STEPS) for same in shapes.values()), key=fastest)
    return [simplest(first, MORE_STEPS), *others[:MOST_SHOWN]]


def _no_split(profile: Profile, wish: Wish) -> str:
    given = {
        "--groups": wish.groups,
        "--actors": wish.actors,
        "--envs": wish.envs,
        "--learner-cores": wish.learner_cores,
    }
    words = [f"{name} {value}" for name, value in given.items() if value is not None]
    said = ", ".join([*words, *["--buffer-alone"] * bool(wish.buffer_alone)])
    work = profile.work
    learners = f", {count_of(work.learners, 'learner')} in a group" if work.learners > 1 else ""
    if wish.envs is not None and work.steps * wish.envs > work.pool and not work.on_policy:
        return (
            f"--envs {wish.envs}: a trajectory of so many environments has "
            f"{work.steps * wish.envs:,} samples and the pool {work.pool:,}: name fewer, or raise "
            "hyp.buffer_size"
        )
    if wish.groups is not None and wish.groups % wish.hosts:
        return (
            f"--groups {wish.groups}: each of {wish.hosts} hosts has as many groups as the others: "
            "name a multiple of that, or another number of --hosts"
        )
    envs = count_of(work.envs, "environment")
    total = f"; the actors of a group share {envs}" if work.on_policy else ""
    return (
        f"no split of {count_of(wish.cores, 'core')} on {count_of(wish.hosts, 'host')} has "
        f"{said or 'what the configuration asks for'}{learners}{total}: leave more of it open, or "
        "offer more --cores"
    )
