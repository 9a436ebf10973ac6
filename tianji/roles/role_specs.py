"""Which roles a configuration asks for, where each of them lives, and the names of channels.

A group is `learner_cfg.num` learners with one buffer and `actor_cfg.num` actors, for whom an
inference role acts if `actor_cfg.inference` says so. Where several groups are fused there is one
reducer for all of them.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cache

from tianji.config import Config

LAUNCHER = "launcher"
MEAN = "mean"  # the channel from the reducer to all groups


class Kind(enum.IntEnum):
    """The kinds of role; the numbers separate their random streams."""

    ACTOR = 0
    BUFFER = 1
    LEARNER = 2
    EVALUATOR = 3
    REDUCER = 4
    INFERENCE = 5

    @property
    def word(self) -> str:
        """As in the names of roles."""
        return self.name.lower()


@dataclass(frozen=True)
class RoleSpec:
    """One role and the process that it lives in."""

    kind: Kind
    index: int
    home: str
    group: int = 0
    life: int = 0  # how often it was lost and replaced

    @property
    def name(self) -> str:
        """As in `actor-0.3`: group 0, actor 3."""
        return role_name(self.kind, self.index, self.group)


def role_name(kind: Kind, index: int = 0, group: int = 0) -> str:
    """The name of a role; the evaluator and the reducer count as of group 0."""
    return f"{kind.word}-{group}.{index}"


_KINDS = {kind.word: kind for kind in Kind}


@cache
def kind_of(name: str) -> Kind | None:
    """Of a role, or of the process that is named after it; None for the launcher."""
    return _KINDS.get(name.partition("-")[0])


@cache
def group_of(role: str) -> int:
    """0 of `actor-0.3`."""
    return int(role.partition("-")[2].partition(".")[0])


@cache
def is_first_learner(role: str) -> bool:
    """Whether a role publishes the weights of its group."""
    return role == role_name(Kind.LEARNER, 0, group_of(role))


def roles_of(config: Config) -> tuple[RoleSpec, ...]:
    """The roles that train: those of group 0 first, and the reducer last."""
    roles = [role for group in range(config.n_groups) for role in _group(config, group)]
    if config.fuses:
        roles.append(RoleSpec(Kind.REDUCER, 0, role_name(Kind.REDUCER)))
    return tuple(roles)


def _group(config: Config, group: int) -> list[RoleSpec]:
    """The buffer rides with the first learner unless it was given its own cores."""

    def alone(kind: Kind, index: int) -> RoleSpec:
        return RoleSpec(kind, index, role_name(kind, index, group), group)

    learners = [alone(Kind.LEARNER, i) for i in range(config.n_learners)]
    buffer = alone(Kind.BUFFER, 0)
    if config.parallel.buffer_cfg.cores is None:
        buffer = RoleSpec(Kind.BUFFER, 0, learners[0].home, group)
    inference = [alone(Kind.INFERENCE, 0)] if config.parallel.actor_cfg.inference else []
    actors = [alone(Kind.ACTOR, i) for i in range(config.parallel.actor_cfg.num)]
    return [*learners, buffer, *inference, *actors]


def evaluator_of(config: Config) -> RoleSpec | None:
    """The role that plays whole games beside the training, if the configuration wants one."""
    if config.exp.eval_step is None:
        return None
    return RoleSpec(Kind.EVALUATOR, 0, role_name(Kind.EVALUATOR))


def homes_of(config: Config) -> dict[str, str]:
    """Which process each role lives in; the launcher is one of them."""
    homes = {role.name: role.home for role in roles_of(config)} | {LAUNCHER: LAUNCHER}
    if (evaluator := evaluator_of(config)) is not None:
        homes[evaluator.name] = evaluator.home
    return homes


def weights_of(group: int) -> str:
    """The channel on which the first learner of a group publishes."""
    return f"weights {group}"


def batches_of(group: int, learner: int) -> str:
    """The channel of the batches, or parts of batches, of one learner."""
    return f"batches {group}.{learner}"


def steps_of(actor: str) -> str:
    """The channel of what an actor's environments show, to whom acts for it."""
    return f"steps {actor}"


def actions_of(actor: str) -> str:
    """The channel of the actions that an actor's environments are given."""
    return f"actions {actor}"


def priorities_of(group: int, learner: int) -> str:
    """The channel that carries a learner's priorities back to its buffer."""
    return f"priorities {group}.{learner}"


def gradients_of(group: int, source: int, target: int) -> str:
    """The channel from one learner of a group to another."""
    return f"gradients {group}.{source}>{target}"


def parameters_of(group: int) -> str:
    """The channel from a group to the reducer."""
    return f"parameters {group}"
