"""Which roles a configuration asks for, and the process that each of them lives in."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tianji.config import Config

LAUNCHER = "launcher"


class Kind(enum.IntEnum):
    """The kinds of role; the numbers separate their random streams."""

    ACTOR = 0
    BUFFER = 1
    LEARNER = 2
    EVALUATOR = 3


@dataclass(frozen=True)
class RoleSpec:
    """One role and the process that it lives in."""

    kind: Kind
    index: int
    home: str
    group: int = 0

    @property
    def name(self) -> str:
        """As in `actor-0.3`: group 0, actor 3."""
        return role_name(self.kind, self.index)


def role_name(kind: Kind, index: int = 0) -> str:
    """The name of a role of the only group."""
    return f"{kind.name.lower()}-0.{index}"


def roles_of(config: Config) -> tuple[RoleSpec, ...]:
    """The roles that train. The buffer rides with the learner unless it was given its own cores."""
    parallel = config.parallel
    learner = role_name(Kind.LEARNER)
    buffer = learner if parallel.buffer_cfg.cores is None else role_name(Kind.BUFFER)
    actors = [
        RoleSpec(Kind.ACTOR, i, role_name(Kind.ACTOR, i)) for i in range(parallel.actor_cfg.num)
    ]
    return (RoleSpec(Kind.LEARNER, 0, learner), RoleSpec(Kind.BUFFER, 0, buffer), *actors)


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
