"""A way to use the cores, and what is to be expected of it."""

from __future__ import annotations

import enum
import math
from dataclasses import asdict, dataclass
from typing import Any

from tianji.config.binder import REQUIRED, key
from tianji.core.balance import depth_for
from tianji.strategy.plan.profile import Work, count


class Bound(enum.StrEnum):
    """What keeps a split from being faster (section 4.3.3 of the paper), or in turns."""

    SAMPLE = "sample-bound"  # production
    INFERENCE = "inference-bound"  # acting for the actors, where a role of its own does it
    TRAINING = "training-bound"  # updates
    COMMUNICATION = "communication-bound"  # receiving, or the links between hosts
    NONE = "balanced"
    TURNS = "in turns"  # acting and learning wait for each other


@dataclass(frozen=True)
class Taking:
    """What a learner and its buffer spend on the samples that come, in seconds or any share."""

    updating: float
    drawing: float
    receiving: float
    buffer_alone: bool  # on a core of its own, beside the learner

    def times(self, share: float) -> Taking:
        """The same where all of it takes a share of the time."""
        return Taking(
            share * self.updating, share * self.drawing, share * self.receiving, self.buffer_alone
        )

    @property
    def whole(self) -> float:
        """Of the process that has more to do, or of the only one."""
        buffering = self.drawing + self.receiving
        return max(self.updating, buffering) if self.buffer_alone else self.updating + buffering

    @property
    def bound(self) -> Bound:
        """What most of it is: making a batch is for training, whoever does it."""
        training = self.updating + self.drawing
        if self.buffer_alone:
            learns = self.updating >= self.drawing + self.receiving
            training = self.updating if learns else self.drawing
        return Bound.COMMUNICATION if self.receiving > training else Bound.TRAINING


@dataclass(frozen=True)
class Split:
    """Who gets how many cores; everything but `groups` is of one group."""

    groups: int = count(REQUIRED, "of learners with their actors")
    learner_cores: int = count(REQUIRED, "of each learner")
    actors: int = count(REQUIRED, "of each group")
    envs: int = count(REQUIRED, "of each actor")
    batch: int = count(REQUIRED, "B_s: units per update")
    pool: int = count(REQUIRED, "N_s: units that a batch is drawn from")
    learners: int = count(1, "of each group")
    buffer_alone: bool = key(False, "a core of its own instead of riding with the learner")
    one_core: bool = key(False, "all roles of a group share a single core")
    hosts: int = count(1, "that the groups are spread over, each of them whole")

    @property
    def name(self) -> str:
        """As the paper writes it, `L2A8`: learners and actors in all."""
        return f"L{self.groups * self.learners}A{self.groups * self.actors}"

    @property
    def groups_per_host(self) -> int:
        """Of the host that has most of them."""
        return math.ceil(self.groups / self.hosts)

    @property
    def learning_cores(self) -> int:
        """Of one group, beside its actors."""
        return self.learners * self.learner_cores + self.buffer_alone

    def depth(self, work: Work) -> int:
        """Trajectories that an actor may have under way."""
        if work.slackless:
            return 1
        arriving = self.actors * work.steps * self.envs
        return depth_for(self.batch, work.ratio, arriving, work.on_policy)

    def cores(self, work: Work) -> int:
        """Of all groups."""
        if self.one_core:
            return self.groups
        return self.groups * work.cores_of(self.learning_cores, self.actors)

    def cores_per_host(self, work: Work) -> int:
        """Of the host that has most groups."""
        return self.groups_per_host * (self.cores(work) // self.groups)


@dataclass(frozen=True)
class Prediction:
    """What a split is expected to do; rates are of all groups together."""

    production: float  # steps per second, when both sides run
    consumption: float  # samples per second
    could_produce: float  # TR_A: steps per second if nobody had to wait for the learners
    could_take: float  # TR_L over the replay ratio: steps per second if samples were always there
    bound: Bound
    staleness: float  # updates, mean, once the pool is full
    freshness: float  # P of equation 2
    memory_bytes: int
    knee: float  # N_A* of equation 1: actors beyond which receiving is the limit

    @property
    def imbalance(self) -> float:
        """0 where TR_L and TR_A are equal, 1 where one of them is nothing."""
        more = max(self.could_produce, self.could_take)
        return abs(self.could_produce - self.could_take) / more if more else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"imbalance": self.imbalance}
