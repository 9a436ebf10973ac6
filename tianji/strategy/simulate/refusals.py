"""Layouts that no run could have, whatever its roles cost."""

from __future__ import annotations

import math

from tianji.core.errors import TianJiError
from tianji.core.wording import count_of, one_of
from tianji.strategy.plan.profile import Work
from tianji.strategy.simulate.core_layout import Layout

MOST_CORES = 1_024  # of one machine: all ways to split them are looked at, and they are many


def refuse_impossible_layout(layout: Layout, work: Work) -> None:
    """Raises for what a run would refuse, too."""
    refuse_unequal(layout, work, layout.actors)
    if work.alternates and layout.envs is None and work.envs % layout.actors:
        raise TianJiError(
            f"--actors {layout.actors}: the actors of a group share "
            f"{count_of(work.envs, 'environment')} in equal parts: name "
            f"{one_of(work.equal_parts())}, or say with --envs how many each has"
        )
    of_group = layout.learners + layout.buffer_alone + layout.actors
    if layout.hosts > layout.groups * of_group:
        raise TianJiError(
            f"--hosts {layout.hosts}: there are only {layout.groups * of_group:,} processes: name "
            "fewer hosts, or more groups or actors"
        )
    each = layout.groups_per_host * layout.group_cores(work) / layout.hosts_per_group
    if each > MOST_CORES:
        raise TianJiError(
            f"--hosts {layout.hosts}: that is {math.ceil(each):,} cores of each host, and one "
            f"machine has {MOST_CORES:,} at most: name more hosts"
        )


def refuse_unequal(layout: Layout, work: Work, actors: int | None = None) -> None:
    """Raises where hosts or the parts of a batch cannot be equal; None: any number of actors.

    A batch of rollouts has one of each actor unless their number was given, and the actors of a
    group share its environments.
    """
    if max(layout.hosts, layout.groups) % min(layout.hosts, layout.groups):
        raise TianJiError(
            f"--hosts {layout.hosts}: hosts and {count_of(layout.groups, 'group')} cannot be "
            "shared out equally: name a number of hosts that divides that of the groups, or a "
            "multiple of it"
        )
    sizes = [work.batch]
    if work.on_policy and (work.rollouts or actors):
        sizes = [work.rollouts or actors or 1]
    elif work.on_policy:
        sizes = [n for n in work.equal_parts() if (layout.envs or work.envs // n) * n == work.envs]
    if not any(size % layout.learners == 0 for size in sizes):
        unit = "rollouts, one of each actor," if work.on_policy else "samples"
        raise TianJiError(
            f"--learners {layout.learners}: a batch of {one_of(sizes or [0])} {unit} cannot be "
            "shared by so many in equal parts: name another number of learners or --envs"
        )
