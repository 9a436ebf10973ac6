"""From a configuration to a plan: probe, solve, and say what it is worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tianji import resources
from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.errors import TianJiError
from tianji.job import load_algorithm
from tianji.planning.model import predict
from tianji.planning.planfile import Plan, made
from tianji.planning.profile import Profile
from tianji.planning.solver import Choice, Wish, solve
from tianji.planning.split import Split
from tianji.probing.probe import Say, probe

Rule = Literal["none", "linear", "sqrt"]
RULES: dict[Rule, Callable[[float], float]] = {
    "none": lambda _: 1.0,
    "linear": lambda factor: factor,
    "sqrt": math.sqrt,
}
"""What the learning rate is multiplied with when the batch is multiplied with `factor`."""


@dataclass(frozen=True)
class Planned:
    """A plan, with what it was chosen from."""

    plan: Plan
    choices: list[Choice]  # the plan's own first
    configured: Choice | None  # the split that the configuration itself asks for


def scaled(config: Config, factor: int, rule: Rule) -> dict[str, Any]:
    """The keys that multiply a batch and what it is drawn from, so that freshness is kept.

    An on-policy batch is what all environments bring in one rollout, so those are multiplied.
    """
    if factor == 1:
        return {}
    _, hyp = load_algorithm(config)
    changed: dict[str, Any] = {}
    size, pool = getattr(hyp, "batch_size", None), getattr(hyp, "buffer_size", None)
    if isinstance(size, int) and isinstance(pool, int):
        changed = {"hyp.batch_size": size * factor, "hyp.buffer_size": pool * factor}
    elif size is None and hasattr(hyp, "batch_size"):
        changed = {"actor_cfg.envs": config.parallel.actor_cfg.envs * factor}
    else:
        raise TianJiError(
            f"--batch-scale {factor}: {config.agent.type} has no hyp.batch_size and "
            "hyp.buffer_size that could be multiplied: leave it out"
        )
    if rule != "none":
        if not isinstance(getattr(hyp, "lr", None), float):
            raise TianJiError(f"--lr-rule {rule}: {config.agent.type} has no hyp.lr: use none")
        changed["hyp.lr"] = hyp.lr * RULES[rule](factor)
    return changed


def make(
    file: str | Path,
    overrides: list[str],
    wish: Wish | None = None,
    settings: Mapping[str, Any] | None = None,
    say: Say = lambda _: None,
    profile: Profile | None = None,
) -> Planned:
    """Measures what `file` describes and plans it; `settings` are keys that go into the plan.

    With a `profile` nothing is measured.
    """
    given = dict(settings or {})
    config = load(file, [*overrides, *as_overrides(given, "plan")])
    cores = len(resources.available_cores())
    wish = wish or Wish(cores)
    found = profile or probe(config, wish.cores, say)
    choices = solve(found, wish)
    own = {name: value for name, value in given.items() if name != "actor_cfg.envs"}
    return Planned(made(found, choices[0], own), choices, _configured(config, found, wish))


def _configured(config: Config, profile: Profile, wish: Wish) -> Choice | None:
    """What the configuration itself would do; None if the cores do not suffice for it."""
    parallel, work = config.parallel, profile.work
    split = Split(
        config.n_groups,
        parallel.learner_cfg.cores or 1,
        parallel.actor_cfg.num,
        parallel.actor_cfg.envs,
        work.batch,
        work.pool,
        config.n_learners,
        buffer_alone=parallel.buffer_cfg.cores is not None,
    )
    if split.cores(work.alternates) > wish.cores * wish.hosts:
        return None
    return Choice(split, predict(profile, split))
