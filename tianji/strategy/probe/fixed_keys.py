"""What the keys that are set on the command line fix of the plan that is made.

A plan decides what is left open. A key that was set, as `actor_cfg.num=2`, stays as it is, with
`tianji plan` as with `--plan auto`; what no plan could have is refused before anything is measured.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tianji.config import Config, load
from tianji.config.keywords import as_overrides
from tianji.core.errors import TianJiError
from tianji.strategy.plan.solver import OPTIONS, Wish

WISHED = {
    "groups": "global_cfg.group_num",
    "actors": "actor_cfg.num",
    "envs": "actor_cfg.envs",
    "learner_cores": "learner_cfg.cores",
}
ACTOR_CORES, BUFFER_CORES = "actor_cfg.cores", "buffer_cfg.cores"
DECIDED = (*WISHED.values(), ACTOR_CORES, BUFFER_CORES)  # that every plan sets

KEYS = {
    **{name: f"{key}={{}}" for name, key in WISHED.items()},
    "buffer_alone": f"{BUFFER_CORES}=1",
    "hosts": "hosts",
    "cores": "cores",
}
"""How `--set` says what a wish fixes, as `solver.OPTIONS` has it for `tianji plan`."""


def wish_of(
    file: str | Path, given: list[str], cores: int, hosts: int, memory_bytes: int | None
) -> Wish:
    """What a plan is free to decide beside the overrides that are `given`."""
    fixed = _fixed(file, given)
    _refuse_other_cores(fixed, cores)
    return Wish(
        cores,
        hosts,
        memory_bytes=memory_bytes,
        buffer_alone=fixed[BUFFER_CORES] == 1 if BUFFER_CORES in fixed else None,
        **{name: fixed.get(key) for name, key in WISHED.items()},
    )


def both(told: Wish, asked: Wish) -> Wish:
    """What keys and options say together; refuses two that do not agree.

    `told` is what `--set` fixes, `asked` what the options of `tianji plan` do.
    """
    values: dict[str, Any] = {}
    for name in (*WISHED, "buffer_alone"):
        mine, other = getattr(told, name), getattr(asked, name)
        if None not in (mine, other) and mine != other:
            key = f"{BUFFER_CORES}=None" if name == "buffer_alone" else KEYS[name].format(mine)
            raise TianJiError(
                f"{OPTIONS[name].format(other)} with --set {key}: they do not agree: leave one of "
                "the two out"
            )
        values[name] = other if mine is None else mine
    return replace(asked, **values)


def words_for(told: Wish) -> dict[str, str]:
    """How a user has said what `tianji plan` is not to decide: with `--set`, or else an option."""
    named = [name for name in (*WISHED, "buffer_alone") if getattr(told, name) is not None]
    return OPTIONS | {name: f"--set {KEYS[name]}" for name in named}


def _fixed(file: str | Path, given: list[str]) -> dict[str, Any]:
    """The keys that the overrides set: those whose value does not depend on what came before."""
    if not given:
        return {}
    one, two = (
        _decided(load(file, [*as_overrides(dict.fromkeys(DECIDED, n)), *given])) for n in (1, 2)
    )
    return {
        key: value
        for key, value in one.items()
        if value == two[key] and (value is not None or _is_named(key, given))
    }


def _is_named(key: str, given: list[str]) -> bool:
    """Whether an override sets this key itself, and not only a section that it is in."""
    return any(key in override.partition("=")[0] for override in given)


def _decided(config: Config) -> dict[str, Any]:
    sections = config.to_json()["parallel"]
    return {key: sections[key.split(".")[0]][key.split(".")[1]] for key in DECIDED}


def _refuse_other_cores(fixed: dict[str, Any], cores: int) -> None:
    """Raises for numbers of cores that no plan has; only a single core is nobody's own."""
    for key, whose, is_had in (
        (ACTOR_CORES, "each actor one core", lambda n: n == 1),
        (BUFFER_CORES, "the buffer one core or none of its own (None)", lambda n: n in (None, 1)),
        (WISHED["learner_cores"], "each learner cores of its own", lambda n: n is not None),
    ):
        if key not in fixed or (fixed[key] is None and cores == 1):
            continue
        if not is_had(fixed[key]):
            raise TianJiError(f"{key}={fixed[key]}: a plan gives {whose}: leave {key} out")
