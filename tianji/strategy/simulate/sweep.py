"""Ever more cores, each number with the split that makes most of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache

from tianji.core.errors import TianJiError
from tianji.core.wording import count_of
from tianji.strategy.plan.profile import Profile
from tianji.strategy.plan.solver import NOISE, PlanRequest, candidates, solve
from tianji.strategy.plan.split import Split
from tianji.strategy.simulate.bounds import expected_busy, expected_rate
from tianji.strategy.simulate.core_layout import Layout, costs_of, share_beside
from tianji.strategy.simulate.prediction import Simulated
from tianji.strategy.simulate.simulator import simulate

CORES = (16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 10_000)
HOST_CORES = 64


def sweep(
    profile: Profile,
    layout: Layout,
    cores: Sequence[int] = CORES,
    host_cores: int = HOST_CORES,
    learner_cores: int | None = None,
) -> list[Simulated]:
    """One result for each number of cores, with what makes most of them.

    Of the layout count learners, links, and what was said of environments and buffer; groups,
    actors and hosts are found, and learner cores unless they are given.
    """
    find = Finder(profile, layout, learner_cores)
    results = [simulate(profile, find.layout(n, host_cores)) for n in cores]
    return [replace(result, offered=n) for n, result in zip(cores, results, strict=True)]


class Finder:
    """The fastest layout for a number of cores: a plan's, or groups that are larger than a host."""

    def __init__(self, profile: Profile, layout: Layout, learner_cores: int | None = None) -> None:
        self._profile = replace(profile, work=replace(profile.work, learners=layout.learners))
        self._given = layout
        measured = sorted({cost.cores for cost in profile.learners})
        self._learner_cores = measured if learner_cores is None else [learner_cores]
        self._wish = PlanRequest(
            1,
            envs=layout.envs,
            learner_cores=learner_cores,
            buffer_alone=layout.buffer_alone or None,
        )
        self._least = self._smallest()
        self._split = cache(self._solved)  # more hosts are more of the same

    def layout(self, cores: int, host_cores: int) -> Layout:
        """The first that no measurement could tell from the fastest.

        Whole hosts are the simplest; those of equal size use what whole ones leave over; and a
        group is on several only where that makes more.
        """
        least = self._least
        needed = least.group_cores(self._profile.work)
        found = []
        for size in (min(cores, host_cores), cores // math.ceil(cores / host_cores)):
            if size >= needed:
                found.append(self._replicated(self._split(size), cores, size))
        found += self._across(cores, host_cores)
        if not found:
            raise TianJiError(
                f"{count_of(cores, 'core')} on hosts of {host_cores}: one group needs {needed}, "
                f"for {count_of(least.learners, 'learner')} and {count_of(least.actors, 'actor')} "
                "at least: offer more with --cores-list or --host-cores"
            )
        made = [self.rate(each) for each in found]
        near = (
            each for each, rate in zip(found, made, strict=True) if rate >= (1 - NOISE) * max(made)
        )
        return next(near)

    def _smallest(self) -> Layout:
        """The group that needs fewest cores; learners may want several actors."""
        work = self._profile.work
        smallest = replace(self._given, learner_cores=min(self._learner_cores), actors=1)
        if not work.on_policy:
            return smallest
        wish = replace(self._wish, cores=smallest.learning_cores + work.envs, groups=1)
        found = [split.actors for split in candidates(self._profile, wish)]
        return replace(smallest, actors=min(found, default=1))

    def _solved(self, cores: int) -> Split:
        return solve(self._profile, replace(self._wish, cores=cores))[0].split

    def _replicated(self, split: Split, cores: int, host_cores: int) -> Layout:
        """The groups of one host on all hosts, and as many as fit on what is left of the last."""
        hosts, rest = divmod(cores, host_cores)
        each = split.cores(self._profile.work) // split.groups
        groups = hosts * split.groups + min(split.groups, rest // each)
        return replace(
            self._given,
            groups=groups,
            learner_cores=split.learner_cores,
            actors=split.actors,
            envs=split.envs,
            hosts=math.ceil(groups / split.groups),
            buffer_alone=split.buffer_alone,
        )

    def _across(self, cores: int, host_cores: int) -> Iterator[Layout]:
        """Balanced groups that are larger than a host, on whole hosts each.

        As many as fit, and one more with fewer actors each. None where no link is known of, and
        none whose batch would change with the number of actors.
        """
        work = self._profile.work
        link = self._given.link_bytes_per_second or self._profile.link_bytes_per_second
        if link is None or work.on_policy or work.alternates:
            return
        for own in self._learner_cores:
            one = replace(self._given, groups=1, hosts=1, learner_cores=own)
            whole = balanced(self._profile, one)
            fit = cores // whole.group_cores(work)
            for groups in (fit, fit + 1):
                room = 0 if groups == 0 else cores // groups
                most = max(1, room - one.learning_cores)
                group = replace(whole, actors=min(whole.actors, most))
                needed = group.group_cores(work)
                if host_cores < needed <= room:
                    hosts = groups * math.ceil(needed / host_cores)
                    yield replace(group, groups=groups, hosts=hosts)

    def rate(self, layout: Layout) -> float:
        """Units per second of all groups, without simulating one."""
        profile = self._profile
        share = share_beside(profile, layout, expected_busy(profile, layout))
        return layout.groups * expected_rate(costs_of(profile, layout).times(share))


def balanced(profile: Profile, layout: Layout) -> Layout:
    """The same with as many actors as keep the learner busy: the group to replicate.

    Whole actors seldom hit the balance: of the two numbers around it, the one that gives more per
    core. In synchronous training nobody is kept busy all the time: of all ways to share out the
    environments, the one that gives most per core.
    """

    def rate(actors: int) -> float:
        return expected_rate(costs_of(profile, replace(layout, actors=actors)))

    def worth(actors: int) -> float:
        return rate(actors) / replace(layout, actors=actors).group_cores(profile.work)

    if profile.work.alternates:
        counts = _shared_out(profile, layout)
    else:
        wanted = rate(1_000_000) / rate(1)
        counts = [max(1, math.floor(wanted)), max(1, math.ceil(wanted))]
    return replace(layout, actors=max(sorted(counts), key=worth))


def _shared_out(profile: Profile, layout: Layout) -> list[int]:
    """Numbers of actors that a plan could share the environments of a group among."""
    wish = PlanRequest(
        max(layout.learning_cores, profile.work.envs),
        groups=1,
        envs=layout.envs,
        learner_cores=layout.learner_cores,
        buffer_alone=layout.buffer_alone,
    )
    job = replace(profile, work=replace(profile.work, learners=layout.learners))
    found = [split.actors for split in candidates(job, wish)]
    return found or [max(1, profile.work.envs // (layout.envs or 1))]
