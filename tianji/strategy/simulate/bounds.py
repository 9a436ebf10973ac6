"""What no schedule can exceed: closed forms, equation 1 among them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tianji.strategy.plan.costs import settled_share
from tianji.strategy.plan.profile import Profile
from tianji.strategy.simulate.core_layout import Costs, Layout, costs_of, share_beside


@dataclass(frozen=True)
class RateBounds:
    """Units that a group could produce per second if nothing but one thing took time."""

    sampling: float  # the actors, TR_A
    training: float  # the learner's process, TR_L over the ratio
    receiving: float  # the buffer: equation 1 where it has no batches to make
    link: float

    @property
    def production(self) -> float:
        """The least of them: max min(TR_L, TR_A), with what is between."""
        return min(self.sampling, self.training, self.receiving, self.link)


def bounds_of(costs: Costs) -> RateBounds:
    """The bounds of one group that neither waits nor takes turns."""
    trajectory = costs.rollout_seconds + costs.send_seconds
    receiving = costs.receive_seconds / costs.units
    drawing = costs.ratio * costs.draw_seconds / costs.batch
    updating = costs.ratio * costs.update_seconds / costs.batch
    alone = costs.is_alone
    return RateBounds(
        sampling=costs.actors * _per(trajectory / costs.units),
        training=_per(updating if alone else receiving + drawing + updating),
        receiving=_per(receiving + drawing if alone else receiving),
        link=_link(costs),
    )


def warmup_rate(costs: Costs) -> float:
    """Units per second of one group while nothing is learned yet, and so nobody is held back."""
    receiving = costs.receive_seconds / costs.units
    return min(bounds_of(costs).sampling, _per(receiving), _link(costs))


def expected_busy(profile: Profile, layout: Layout) -> float:
    """The share of their time in which actors are not held back by a learner beside them."""
    measured = costs_of(profile, layout)

    def found(busy: float) -> float:
        bounds = bounds_of(measured.times(share_beside(profile, layout, busy)))
        return bounds.production / bounds.sampling

    return settled_share(found)


def expected_rate(costs: Costs) -> float:
    """Units per second of one group, without simulating it."""
    if costs.alternates:
        cycle = costs.acting_seconds + costs.learning_seconds
        return costs.per_version * costs.actors * costs.units / cycle
    return bounds_of(costs).production


def _link(costs: Costs) -> float:
    if not costs.remote or not costs.trajectory_bytes:
        return math.inf
    through = costs.units * costs.link_bytes_per_second / costs.trajectory_bytes
    # Those beside the learner need no link: they make at most what they can.
    each = costs.units / (costs.rollout_seconds + costs.send_seconds)
    return through + (costs.actors - costs.remote) * each


def _per(seconds: float) -> float:
    return 1.0 / seconds if seconds > 0 else math.inf
