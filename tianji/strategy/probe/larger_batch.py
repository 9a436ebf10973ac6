"""A batch that is K times as large: the keys that go with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

from tianji.config import Config
from tianji.core.errors import TianJiError
from tianji.job.job import load_algorithm

Rule = Literal["none", "linear", "sqrt"]
RULES: dict[Rule, Callable[[float], float]] = {
    "none": lambda _: 1.0,
    "linear": lambda factor: factor,
    "sqrt": math.sqrt,
}
"""What the learning rate is multiplied with when the batch is multiplied with `factor`."""

DEFAULT: Rule = "sqrt"
"""Adam divides a gradient by its usual size, so that less noise makes its steps no smaller. There
are K times fewer of them: with a root of K times the rate, what their noise adds up to stays the
same (Malladi et al. 2022). `linear` is the rule of plain gradient descent, which does not divide.
"""


def scaling_keys(config: Config, factor: int, rule: Rule) -> dict[str, Any]:
    """The keys that multiply a batch and what it is drawn from, so that freshness is kept.

    A step of the optimiser learns from `factor` times as many samples, and an update makes as many
    steps as before: where a batch is cut into minibatches, they grow with it.
    """
    if factor == 1:
        return {}
    _, hyp = load_algorithm(config)
    values: dict[str, Any] = asdict(hyp)
    keys = _batch_keys(config, values, factor) | _rate_keys(config, values, factor, rule)
    if values.get("minibatch") is not None:
        keys["hyp.minibatch"] = values["minibatch"] * factor
    return keys


def scaled(config: Config, factor: int) -> Config:
    """The same with batches that are `factor` times as large, to be measured and not to be trained.

    The pool stays, so that it fits into memory as before.
    """
    hyp, envs = config.hyp, config.parallel.actor_cfg.envs
    for key, value in scaling_keys(config, factor, "none").items():
        section, _, name = key.partition(".")
        if section != "hyp":
            envs = value  # of batches that are one rollout from each actor
        elif name != "buffer_size":
            word = next((word for word in hyp.written if word.lower() == name), name)
            hyp = hyp.replaced(word, value, hyp.at(word))
    parallel = config.parallel
    actors = replace(parallel.actor_cfg, envs=envs)
    return replace(config, hyp=hyp, parallel=replace(parallel, actor_cfg=actors))


def _batch_keys(config: Config, values: Mapping[str, Any], factor: int) -> dict[str, Any]:
    """The batch and its pool; a batch of one rollout from each actor is as large as those are."""
    sizes = ("batch_size", "buffer_size")
    if lacking := [f"hyp.{name}" for name in sizes if name not in values]:
        raise TianJiError(
            f"--batch-scale {factor}: {config.agent.type} has no {' and no '.join(lacking)}, so "
            "batch and pool cannot be multiplied together: leave it out"
        )
    if values["batch_size"] is None:
        return {"actor_cfg.envs": config.parallel.actor_cfg.envs * factor}
    given = [name for name in sizes if values[name] is not None]  # no pool: it is the batch
    return {f"hyp.{name}": values[name] * factor for name in given}


def _rate_keys(
    config: Config, values: Mapping[str, Any], factor: int, rule: Rule
) -> dict[str, Any]:
    """The learning rate, and its end; it falls over updates, of which there are fewer."""
    keys: dict[str, Any] = {}
    if values.get("lr_decay") is not None:
        keys["hyp.lr_decay"] = max(1, round(values["lr_decay"] / factor))
    if rule == "none":
        return keys
    if not isinstance(values.get("lr"), float):
        raise TianJiError(
            f"--lr-rule {rule}: {config.agent.type} has no hyp.lr that could be multiplied: "
            "use --lr-rule none"
        )
    rates = [name for name in ("lr", "lr_final") if values.get(name)]
    return keys | {f"hyp.{name}": values[name] * RULES[rule](factor) for name in rates}
