"""What was measured of a job on a machine: the costs from which the split of its cores follows.

Everything here is plain numbers, so that a solver and a simulator need neither the job nor the
machine. A unit is what the balance counts: an environment step.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FORGOTTEN = ("memory_bytes",)  # of a machine, in plans of older versions
FOREIGN_SHARE = 0.15  # of the cores: where others keep more of them busy, a profile is disturbed


@dataclass(frozen=True)
class Machine:
    """Where the costs were measured."""

    cpu: str  # the model's name
    cores: int  # that this process may use
    gpu: str | None = None  # the learner's, if it had one; a host has one for all its learners


@dataclass(frozen=True)
class Work:
    """What the job asks for, however its cores are split."""

    name: str  # of the configuration
    digest: str  # of all keys that change a cost; the split itself is not among them
    steps: int  # T: steps per trajectory and environment
    batch: int  # B_s: units per update
    pool: int  # N_s: units that a batch is drawn from
    warmup: int  # units received before the first update
    ratio: float  # units consumed per unit produced
    envs: int  # environments in all that the configuration has in a group
    alternates: bool  # acting and learning take turns (synchronous on-policy training)
    weights_bytes: int
    send_interval: int = 1  # updates from one publication to the next
    on_policy: bool = False  # a batch is made of whole trajectories, so `envs` must stay as it is
    rollouts: int | None = None  # trajectories per batch where they were given; else one per actor
    learners: int = 1  # in a group, each with a part of every batch
    fusion_interval: int = 10  # updates from one fusion of the groups to the next
    store_bytes: int = 0  # of a group: the pool, and what waits to get into it
    slackless: bool = False  # `slack = 0`: the order of serial training, one trajectory under way
    keys: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What the digest is of; nothing in plans of older versions."""

    def equal_parts(self) -> list[int]:
        """Numbers of actors that can share the environments of a group."""
        return [n for n in range(1, self.envs + 1) if self.envs % n == 0]

    def cores_of(self, learning: int, acting: int) -> int:
        """That a group needs to learn and act on so many; taking turns, both use the same ones."""
        return max(learning, acting) if self.alternates else learning + acting


@dataclass(frozen=True)
class ActorCost:
    """An actor on a core of its own while the other cores are busy."""

    envs: int  # environments that it steps at once
    step_seconds: float  # one inference and one step of all of them
    send_seconds: float  # T_sd: one trajectory, beyond what writing it in place costs
    receive_seconds: float  # T_rv: the same trajectory in the buffer
    trajectory_bytes: int
    memory_bytes: int  # of the process
    act_seconds: float | None = None  # the inference in `step_seconds`; None: not measured apart
    computing: float = (
        1.0  # share of its time that it needs a core; the rest it waits for something
    )


@dataclass(frozen=True)
class LearnerCost:
    """A learner with `cores` of its own (or a GPU) while the other cores are busy."""

    cores: int
    batch: int  # units
    update_seconds: float  # learning from one batch and publishing the weights
    draw_seconds: float  # making the batch, in the buffer
    memory_bytes: int  # of the process, without the store
    contention: float = 1.0  # times as long as alone that it takes beside busy cores
    on_gpu: tuple[tuple[int, float], ...] = ()
    """Learners that share the GPU, and times as long as alone that each of them takes."""


@dataclass(frozen=True)
class Profile:
    """All that was measured."""

    machine: Machine
    work: Work
    actors: tuple[ActorCost, ...]  # by `envs`, fewest first
    learners: tuple[LearnerCost, ...]  # by `cores`, fewest first
    load_seconds: float = 0.0  # an actor takes newer weights
    link_bytes_per_second: float | None = None  # between hosts, where there are several
    unevenness: float = 0.0  # standard deviation of the speeds of cores, as a share of their mean
    foreign_cores: float = 0.0  # that others kept busy meanwhile

    @property
    def was_disturbed(self) -> bool:
        """Whether others took so much of the machine that it is another one without them."""
        return self.foreign_cores > FOREIGN_SHARE * self.machine.cores

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Profile:
        """The inverse of `to_json`."""
        return cls(
            **{
                **plain,
                "machine": _machine(plain["machine"]),
                "work": Work(**plain["work"]),
                "actors": tuple(ActorCost(**cost) for cost in plain["actors"]),
                "learners": tuple(_learner(cost) for cost in plain["learners"]),
            }
        )


def _machine(plain: Mapping[str, Any]) -> Machine:
    return Machine(**{name: value for name, value in plain.items() if name not in FORGOTTEN})


def _learner(plain: Mapping[str, Any]) -> LearnerCost:
    shared = plain.get("on_gpu", ())  # JSON has no tuples
    return LearnerCost(**{**plain, "on_gpu": tuple((n, times) for n, times in shared)})
