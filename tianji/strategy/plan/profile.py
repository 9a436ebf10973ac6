"""What was measured of a job on a machine: the costs from which the split of its cores follows.

Everything here is plain numbers, so that a solver and a simulator need neither the job nor the
machine. A unit is what the balance counts: an environment step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from tianji.config.binder import REQUIRED, key

FOREIGN_SHARE = 0.15  # of the cores: where others keep more of them busy, a profile is disturbed

count = partial(key, at_least=1)
above_zero = partial(key, above=0)
at_least_zero = partial(key, at_least=0)
share = partial(key, at_least=0, at_most=1)


@dataclass(frozen=True)
class Machine:
    """Where the costs were measured."""

    cpu: str  # the model's name
    cores: int = count(REQUIRED, "that this process may use")
    gpu: str | None = None  # the learner's, if it had one; a host has one for all its learners
    acting_gpu: str | None = None  # the actors', if they had one; it is the same one


@dataclass(frozen=True)
class Work:
    """What the job asks for, however its cores are split."""

    name: str  # of the configuration
    digest: str  # of all keys that change a cost; the split itself is not among them
    steps: int = count(REQUIRED, "T: steps per trajectory and environment")
    batch: int = count(REQUIRED, "B_s: units per update")
    pool: int = count(REQUIRED, "N_s: units that a batch is drawn from")
    warmup: int = at_least_zero(REQUIRED, "units received before the first update")
    ratio: float = above_zero(REQUIRED, "units consumed per unit produced")
    envs: int = count(REQUIRED, "environments in all that the configuration has in a group")
    alternates: bool = key(REQUIRED, "acting and learning take turns (synchronous training)")
    weights_bytes: int = at_least_zero(REQUIRED, "what a publication carries")
    send_interval: int = count(1, "updates from one publication to the next")
    on_policy: bool = key(False, "a batch is whole trajectories, so `envs` must stay as it is")
    rollouts: int | None = count(None, "trajectories per batch if given; else one per actor")
    learners: int = count(1, "in a group, each with a part of every batch")
    fusion_interval: int = count(10, "updates from one fusion of the groups to the next")
    store_bytes: int = at_least_zero(0, "of a group: the pool, and what waits to get into it")
    slackless: bool = key(False, "`slack = 0`: serial order, one trajectory under way")
    inference: bool = key(False, "a role of each group acts for its actors, on a core of its own")
    keys: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the digest is of; nothing in plans of older versions."""

    def equal_parts(self) -> list[int]:
        """Numbers of actors that can share the environments of a group."""
        return [n for n in range(1, self.envs + 1) if self.envs % n == 0]

    def acting_cores(self, actors: int) -> int:
        """Of so many actors, and of who acts for them."""
        return actors + self.inference

    def cores_of(self, learning: int, actors: int) -> int:
        """Of a group with so many actors; taking turns, both sides use the same ones."""
        acting = self.acting_cores(actors)
        return max(learning, acting) if self.alternates else learning + acting


@dataclass(frozen=True)
class ActorCost:
    """An actor on a core of its own while the other cores are busy."""

    envs: int = count(REQUIRED, "environments that it steps at once")
    step_seconds: float = above_zero(REQUIRED, "one inference and one step of all of them")
    send_seconds: float = at_least_zero(REQUIRED, "T_sd: one trajectory, beyond writing it")
    receive_seconds: float = at_least_zero(REQUIRED, "T_rv: the same trajectory in the buffer")
    trajectory_bytes: int = at_least_zero(REQUIRED, "of one message")
    memory_bytes: int = at_least_zero(REQUIRED, "of the process")
    act_seconds: float | None = at_least_zero(None, "the inference in a step, if measured apart")
    computing: float = share(1.0, "of its time that it needs a core; the rest it waits")
    one_pass: bool = key(False, "an inference role acts for several of them in one pass")


@dataclass(frozen=True)
class LearnerCost:
    """A learner with `cores` of its own (or a GPU) while the other cores are busy."""

    cores: int = count(REQUIRED, "of its own")
    batch: int = count(REQUIRED, "units")
    update_seconds: float = above_zero(REQUIRED, "learning from one batch and publishing")
    draw_seconds: float = at_least_zero(REQUIRED, "making the batch, in the buffer")
    memory_bytes: int = at_least_zero(REQUIRED, "of the process, without the store")
    contention: float = count(1.0, "times as long as alone that it takes beside busy cores")
    on_gpu: tuple[tuple[float, ...], ...] = ()
    """Learners that share the GPU, and times as long as alone that each of them takes."""

    def __post_init__(self) -> None:
        if any(len(pair) != 2 or min(pair) <= 0 for pair in self.on_gpu):
            raise ValueError("on_gpu must have pairs of numbers above 0")


@dataclass(frozen=True)
class Profile:
    """All that was measured."""

    machine: Machine
    work: Work
    actors: tuple[ActorCost, ...]  # by `envs`, fewest first
    learners: tuple[LearnerCost, ...]  # by `cores`, fewest first
    load_seconds: float = at_least_zero(0.0, "an actor takes newer weights")
    link_bytes_per_second: float | None = above_zero(None, "between hosts, if there are several")
    unevenness: float = share(0.0, "standard deviation of the speeds of cores, of their mean")
    waking_seconds: float = at_least_zero(0.0, "an actor and who acts for it wake each other")
    foreign_cores: float = at_least_zero(0.0, "that others kept busy meanwhile")

    def __post_init__(self) -> None:
        if not self.actors or not self.learners:
            raise ValueError("actors and learners must have one cost at least: measure it again")

    @property
    def was_disturbed(self) -> bool:
        """Whether others took so much of the machine that it is another one without them."""
        return self.foreign_cores > FOREIGN_SHARE * self.machine.cores

    def to_json(self) -> dict[str, Any]:
        """Plain data that a plan's file has."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain
