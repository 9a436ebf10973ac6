"""Equations 3 and 4: the split with the largest min(TR_L, TR_A) that the cores and memory allow.

There are few splits, so all of them are looked at. Freshness needs no search: batch and pool of a
group stay as they are however many groups there are, and so does their quotient P.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tianji.core.errors import TianJiError
from tianji.core.wording import count_of, one_of
from tianji.strategy.plan.model import predict
from tianji.strategy.plan.profile import Profile, Work
from tianji.strategy.plan.split import Prediction, Split

NOISE = 0.03  # a split that is faster by less than this share may just have been lucky
MORE_STEPS = 0.05  # share of the rate that other environments than the configuration's must bring
MOST_SHOWN = 6  # next-best splits


Shape = tuple[int, int, int, bool]


@dataclass(frozen=True)
class PlanRequest:
    """What the user leaves open; None: anything."""

    cores: int  # M, of each host
    hosts: int = 1
    groups: int | None = None
    actors: int | None = None  # of a group
    envs: int | None = None  # of an actor
    learner_cores: int | None = None
    memory_bytes: int | None = None  # of each host
    buffer_alone: bool | None = None  # on a core of its own


WISHED = {
    "groups": "global_cfg.group_num",
    "actors": "actor_cfg.num",
    "envs": "actor_cfg.envs",
    "learner_cores": "learner_cfg.cores",
}
"""The keys that say what a `PlanRequest` may fix."""


@dataclass(frozen=True)
class Choice:
    """A split and what is expected of it."""

    split: Split
    prediction: Prediction


def solve(profile: Profile, wish: PlanRequest) -> list[Choice]:
    """The best split first, then the next-best ones, each with other numbers of roles."""
    return ranked(possible(profile, wish), profile.work)


def possible(profile: Profile, wish: PlanRequest) -> list[Choice]:
    """Every split that the cores and the memory allow; raises where there is none."""
    found = [Choice(split, predict(profile, split)) for split in candidates(profile, wish)]
    if not found:
        raise TianJiError(_no_split(profile.work, wish))
    if wish.memory_bytes is None:
        return found
    room = wish.memory_bytes * wish.hosts
    least = min(choice.prediction.memory_bytes for choice in found)
    if least > room:
        smaller = "actor_cfg.envs" if profile.work.on_policy else "hyp.buffer_size"
        raise TianJiError(
            f"no plan fits into memory: the smallest needs {least / 2**20:,.0f} MiB and "
            f"{room / 2**20:,.0f} MiB are free on {count_of(wish.hosts, 'host')}: lower {smaller}, "
            "or what was fixed of groups, actors and environments"
        )
    return [choice for choice in found if choice.prediction.memory_bytes <= room]


def refuse_impossible(work: Work, wish: PlanRequest) -> None:
    """Raises where no split has what is wished for, whatever will be measured of the job.

    A learner with one core is always measured, and no actor can have fewer than one environment: a
    wish that not even these can meet needs no measurement.
    """
    if work.inference and wish.hosts > 1:
        raise TianJiError(
            f"actor_cfg.inference: roles on {wish.hosts} hosts want engine mpi, which has no "
            "inference role: plan for one host, or let the actors act"
        )
    if next(_splits(work, wish, [1], [1]), None) is None:
        raise TianJiError(_no_split(work, wish))


def candidates(profile: Profile, wish: PlanRequest) -> Iterator[Split]:
    """Every split of the cores, with numbers that were measured unless others are given.

    What learner cores cost lies between those that were measured.
    """
    learner_cores = sorted({cost.cores for cost in profile.learners})
    return _splits(profile.work, wish, learner_cores, [cost.envs for cost in profile.actors])


def _splits(
    work: Work, wish: PlanRequest, learner_cores: Sequence[int], envs_choices: Sequence[int]
) -> Iterator[Split]:
    """One group after the other replicated on every host; the choices are for what is left open."""
    if wish.learner_cores is not None:
        learner_cores = [wish.learner_cores]
    for per_host in range(1, wish.cores + 1):
        groups, mine = per_host * wish.hosts, wish.cores // per_host
        if wish.groups not in (None, groups):
            continue
        for cores, alone in itertools.product(learner_cores, _places(work, wish)):
            learning = cores * work.learners + alone
            room = (mine if work.alternates else mine - learning) - work.inference
            if learning > mine or (room < 1 and wish.cores > 1):
                continue  # only a machine with a single core has to share it
            for actors in range(1, max(room, 1) + 1):
                if wish.actors not in (None, actors):
                    continue
                for envs in _envs(work, wish, actors, envs_choices):
                    yield Split(
                        groups, cores, actors, envs, work.batch, work.pool, work.learners,
                        buffer_alone=alone, one_core=room < 1, hosts=wish.hosts,
                    )  # fmt: skip


def _places(work: Work, wish: PlanRequest) -> list[bool]:
    """Whether the buffer has a core of its own; in turns with the learner it would gain nothing."""
    if wish.buffer_alone is not None:
        return [wish.buffer_alone]
    return [False] if work.alternates else [False, True]


def _envs(work: Work, wish: PlanRequest, actors: int, choices: Sequence[int]) -> Iterator[int]:
    """Environments per actor; on-policy batches are made of all of them, so their sum is given."""
    if work.on_policy:
        fits = work.envs % actors == 0 and (work.rollouts or actors) % work.learners == 0
        if fits and work.rollouts is not None:  # whole trajectories per batch
            fits = work.rollouts * work.steps * (work.envs // actors) == work.batch
        choices = [work.envs // actors] if fits else []
    else:
        room = work.pool // (work.steps * actors)  # a store holds a trajectory of each at least
        choices = [n for n in (choices if wish.envs is None else [wish.envs]) if n <= room]
    for envs in choices:
        if wish.envs in (None, envs):
            yield envs


def shape_of(split: Split) -> Shape:
    """All of a split but the environments of an actor."""
    return split.groups, split.learner_cores, split.actors, split.buffer_alone


def ranked(choices: list[Choice], work: Work) -> list[Choice]:
    """The simplest of those that nobody could tell from the fastest; then one of each shape."""

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


def _no_split(work: Work, wish: PlanRequest) -> str:
    """Why there is none: what was wished for, and what every split keeps to."""
    words = [f"{key}={n}" for name, key in WISHED.items() if (n := getattr(wish, name)) is not None]
    words += ["buffer_cfg.cores=1"] if wish.buffer_alone else []
    rules = [f"{count_of(work.learners, 'learner')} in a group"] if work.learners > 1 else []
    if work.on_policy:
        envs = count_of(work.envs, "environment")
        rules.append(f"its actors share {envs} equally: {one_of(work.equal_parts())} of them")
    elif wish.envs is not None:
        rules.append(f"the pool has room for {work.pool // work.steps:,} environments")
    if work.inference:
        rules.append("who acts for the actors has a core of its own")
    if wish.hosts > 1:
        rules.append(f"each of {wish.hosts} hosts has as many groups as the others")
    return (
        f"no split of {count_of(wish.cores, 'core')} on {count_of(wish.hosts, 'host')} has "
        f"{', '.join(words) or 'what the configuration asks for'}"
        f"{''.join(f'; {rule}' for rule in rules)}: leave more of it open, or offer more --cores"
    )
