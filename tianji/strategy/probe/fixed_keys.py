"""What the keys that are set on the command line fix of the plan that is made.

A plan decides what is left open. A key that was set, as `actor_cfg.num=2`, stays as it is, with
`tianji plan` as with `--plan auto`; what no plan could have is refused before anything is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.core.errors import TianJiError
from tianji.strategy.plan.solver import WISHED, PlanRequest

ACTOR_CORES, BUFFER_CORES = "actor_cfg.cores", "buffer_cfg.cores"
DECIDED = (*WISHED.values(), ACTOR_CORES, BUFFER_CORES)  # that every plan sets


def wish_of(
    file: str | Path, given: list[str], cores: int, hosts: int, memory_bytes: int | None
) -> PlanRequest:
    """What a plan is free to decide beside the overrides that are `given`."""
    fixed = _fixed(file, given)
    for key, whose, is_had in (
        (ACTOR_CORES, "each actor one core", lambda n: n == 1),
        (BUFFER_CORES, "the buffer one core or none of its own (None)", lambda n: n in (None, 1)),
        (WISHED["learner_cores"], "each learner cores of its own", lambda n: n is not None),
    ):
        shared = cores == 1 and fixed.get(key) is None  # a single core is nobody's own
        if key in fixed and not shared and not is_had(fixed[key]):
            raise TianJiError(f"{key}={fixed[key]}: a plan gives {whose}: leave {key} out")
    return PlanRequest(
        cores,
        hosts,
        memory_bytes=memory_bytes,
        buffer_alone=fixed[BUFFER_CORES] == 1 if BUFFER_CORES in fixed else None,
        **{name: fixed.get(key) for name, key in WISHED.items()},
    )


def _fixed(file: str | Path, given: list[str]) -> dict[str, Any]:
    """The keys that the overrides set: those whose value does not depend on what came before."""
    if not given:
        return {}
    one, two = (
        _decided(load(file, [*as_overrides(dict.fromkeys(DECIDED, n)), *given])) for n in (1, 2)
    )
    named = {key for key in DECIDED if any(key in word.partition("=")[0] for word in given)}
    return {
        key: value
        for key, value in one.items()
        if value == two[key] and (value is not None or key in named)
    }


def _decided(config: Config) -> dict[str, Any]:
    sections = config.to_json()["parallel"]
    return {key: sections[key.split(".")[0]][key.split(".")[1]] for key in DECIDED}
