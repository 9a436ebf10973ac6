"""What a run's layout costs, said before it begins: too many roles for the cores, groups apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tianji.config import Config
from tianji.core.wording import count_of
from tianji.machine.resources import Share, gib
from tianji.roles.role_specs import Kind, kind_of

LARGE = 1 << 30  # bytes of a store that are worth a line
BUSY = (Kind.ACTOR, Kind.INFERENCE, Kind.LEARNER, Kind.BUFFER)  # as they are named
FEWEST = 2  # roles that every run has: no split of a single core does without their taking turns


def crowding(
    shares: Mapping[str, Share], alternates: bool, usable: int | None = None
) -> str | None:
    """That processes on one machine have fewer cores than they could keep busy at once.

    `usable` is how many cores can be kept busy in all, where the time is limited. Where acting and
    learning take turns (`alternates`), only one of both is at work. Environments that sleep or wait
    for something else may well be more than the cores: so this is nothing to refuse.
    """
    busy = [home for home in shares if kind_of(home) in BUSY]
    if not busy:
        return None
    offered = len({core for home in busy for core in shares[home].cores})
    alike: dict[tuple[int, ...], list[str]] = {}
    for home in busy:
        alike.setdefault(shares[home].cores, []).append(home)
    crowds = [(busy, offered if usable is None else min(offered, usable))]
    crowds += [(homes, len(cores)) for cores, homes in alike.items()]
    homes, n_cores = max(crowds, key=lambda crowd: _n_at_once(crowd[0], alternates) / crowd[1])
    n = _n_at_once(homes, alternates)
    if n <= max(n_cores, FEWEST):
        return None if alternates else _spilling(busy, shares)
    return (
        f"{_counted(homes, alternates)} share {count_of(n_cores, 'core')}: while all of them "
        f"compute, each has at most {n_cores / n:.2g} of one. Where environments sleep or wait "
        "that is no loss; else tianji plan CONFIG splits the cores so that each role has its own, "
        "with more environments in fewer actors"
    )


def large_store(n_bytes: int, room: int | None, free: int | None, unsaved: str) -> str | None:
    """What a store of `room` samples is going to take; `unsaved` is what checkpoints leave out."""
    if n_bytes < LARGE or room is None:
        return None
    known = "" if free is None else f", {gib(free)} are free"
    return f"{room:,} samples take {gib(n_bytes)} when all have come{known}{unsaved}"


def large_on_gpu(n_bytes: int, room: int | None, free: int | None) -> str | None:
    """What stores of `room` samples take of the GPU's memory."""
    if n_bytes < LARGE or room is None:
        return None
    known = "" if free is None else f", {gib(free)} are free"
    return f"{room:,} samples take {gib(n_bytes)} of the GPU's memory from the beginning{known}"


def _spilling(busy: Iterable[str], shares: Mapping[str, Share]) -> str | None:
    """That learners were given so many cores that others have to compute on them as well."""
    learners = {home: shares[home] for home in busy if kind_of(home) is Kind.LEARNER}
    n = max((share.threads for share in learners.values()), default=0)
    if n < 2 or any(share.threads != len(share.cores) for share in learners.values()):
        return None  # none was given more than one core, or all share what there is
    taken = {core for share in learners.values() for core in share.cores}
    others = [home for home in busy if home not in learners]
    guests = [home for home in others if taken.issuperset(shares[home].cores)]
    if not guests:
        return None
    fewer = f"{n - 1} or less" if n > 2 else "1"
    return (
        f"learner_cfg.cores={n} gives {count_of(len(learners), 'learner')} all of "
        f"{len(taken)} cores, and {_listed(guests)} will compute on the same ones: each slows the "
        f"other down. Write learner_cfg.cores={fewer}, or leave that key out"
    )


def _n_at_once(homes: Iterable[str], alternates: bool) -> int:
    """Processes that work at the same time."""
    kinds = [kind_of(home) for home in homes]
    acting = kinds.count(Kind.ACTOR) + kinds.count(Kind.INFERENCE)
    others = len(kinds) - acting
    return max(acting, others) if alternates else acting + others


def _counted(homes: Sequence[str], alternates: bool) -> str:
    """As in `41 processes (40 actors, 1 learner)`."""
    turns = ", which take turns" if alternates and len({*map(kind_of, homes)}) > 1 else ""
    return f"{count_of(len(homes), 'process')} ({_listed(homes)}{turns})"


def _listed(homes: Iterable[str]) -> str:
    """As in `40 actors, 1 learner`."""
    kinds = [kind_of(home) for home in homes]
    present = [kind for kind in BUSY if kind in kinds]
    return ", ".join(count_of(kinds.count(kind), kind.word) for kind in present)


def apart(config: Config) -> str | None:
    """That several groups learn nothing from each other."""
    n = config.n_groups
    if n == 1 or config.fuses:
        return None
    return (
        f"{n} groups and global_cfg.use_group_parallel=False: nothing averages them, so each is a "
        f"training of its own, from 1/{n} of the samples (exp.train_steps is shared out), and only "
        "what group 0 learns is evaluated and kept as the final policy: leave that key out, or "
        "train one group"
    )
