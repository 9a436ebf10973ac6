"""Layouts that no run could have, whatever its roles cost."""

from __future__ import annotations

import math

from tianji.core.errors import TianJiError
from tianji.core.wording import count_of, one_of
from tianji.strategy.plan.profile import Work
from tianji.strategy.simulate.layout import Layout

MOST_CORES = 1_024  # of one machine: all ways to split them are looked at, and they are many


def refuse_impossible_layout(layout: Layout, work: Work) -> None:
    """Raises for what a run would refuse, too."""
    refuse_unequal(layout, work, layout.actors)
    if work.alternates and layout.envs is None and work.envs % layout.actors:
        counts = work.equal_parts()
        raise TianJiError(
            f"--actors {layout.actors}: the actors of a group share "
            f"{count_of(work.envs, 'environment')}, and so many cannot have equal parts: name "
            f"{one_of(counts)}, or say with --envs how many each has"
        )
    of_group = layout.learners + layout.buffer_alone + layout.actors
    if layout.hosts > layout.groups * of_group:
        raise TianJiError(
            f"--hosts {layout.hosts}: there are only {layout.groups * of_group:,} processes "
            f"({count_of(layout.groups, 'group')} of {of_group:,}): name fewer hosts, or more "
            "groups or actors"
        )
    refuse_uneven_hosts(layout)
    _refuse_large_hosts(layout, work)


def refuse_uneven_hosts(layout: Layout) -> None:
    """Raises where hosts would differ in the number of their groups, or groups in that of hosts."""
    if max(layout.hosts, layout.groups) % min(layout.hosts, layout.groups):
        raise TianJiError(
            f"--hosts {layout.hosts}: hosts and {count_of(layout.groups, 'group')} cannot be "
            "shared out equally, and only those that are alike are simulated: name a number of "
            "hosts that divides that of the groups, or a multiple of it"
        )


def _refuse_large_hosts(layout: Layout, work: Work) -> None:
    """Raises where a host would have more cores than one machine has; says how many hosts do."""
    group, groups = layout.group_cores(work), layout.groups
    each = math.ceil(layout.groups_per_host * group / layout.hosts_per_group)
    if each <= MOST_CORES:
        return
    if group > MOST_CORES:
        enough = groups * math.ceil(group / MOST_CORES)
    else:
        enough = next(n for n in range(1, groups + 1)
                      if groups % n == 0 and groups // n * group <= MOST_CORES)  # fmt: skip
    raise TianJiError(
        f"{count_of(groups, 'group')} of {count_of(group, 'core')} on "
        f"{count_of(layout.hosts, 'host')}: that is {each:,} cores of each host, and one machine "
        f"has {MOST_CORES:,} at most: say --hosts {enough}"
    )


def refuse_unequal(layout: Layout, work: Work, actors: int | None = None) -> None:
    """Raises where learners cannot have equal parts of a batch; None: actors that suit them."""
    batch, unit = work.batch, "samples"
    if work.on_policy:
        batch = work.rollouts or actors or layout.learners
        unit = "rollouts" if work.rollouts else "rollouts (one of each actor)"
    if batch % layout.learners:
        raise TianJiError(
            f"--learners {layout.learners}: a batch of {batch:,} {unit} cannot be shared by so "
            "many in equal parts: name another number"
        )


def refuse_unshared(layout: Layout, work: Work) -> None:
    """Raises where no actors that share the environments of a group suit its learners.

    A batch of rollouts has one of each actor, unless their number was given, and learners have
    equal parts of it.
    """
    if not work.on_policy or work.rollouts is not None:
        return
    counts = work.equal_parts()
    if layout.envs is not None:
        counts = [n for n in counts if n * layout.envs == work.envs]
    if any(n % layout.learners == 0 for n in counts):
        return
    envs = count_of(work.envs, "environment")
    if not counts:
        raise TianJiError(
            f"--envs {layout.envs}: the actors of a group share {envs}, and cannot have so many "
            f"each: name a number that {work.envs:,} can be divided by"
        )
    known = [n for n in range(1, max(counts) + 1) if any(count % n == 0 for count in counts)]
    near = [max(n for n in known if n < layout.learners)]
    near += [n for n in known if n > layout.learners][:1]
    of_each = "" if layout.envs is None else f", {layout.envs} each"
    raise TianJiError(
        f"--learners {layout.learners}: a batch has one rollout of each actor, and learners have "
        f"equal parts of it; but the actors of a group share {envs}{of_each}, and there can be "
        f"{one_of(counts)} of them, none a multiple of {layout.learners}: name {one_of(near)} "
        "learners"
    )
