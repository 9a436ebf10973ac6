"""Which configuration a plan is for: all its keys but those that change no cost, or are the plan's.

What is left out is listed, so that a key nobody has thought of counts: a plan is then refused once
too often, and never followed where its costs are wrong.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tianji.config import Config
from tianji.config.section import shown
from tianji.strategy.plan.profile import Work

MOST_NAMED = 3  # keys in a message


def _paths(section: str, names: str) -> Iterable[str]:
    return (f"{section}.{name}" for name in names.split())


SPLIT = frozenset(
    (
        *_paths("parallel.global_cfg", "group_num rebalance"),
        *_paths("parallel.learner_cfg", "cores"),
        *_paths("parallel.actor_cfg", "num envs cores"),
        *_paths("parallel.buffer_cfg", "cores"),
    )
)
"""What a plan decides; of on-policy environments only who has them (`batch_apart`)."""

COSTLESS = frozenset(
    (
        *("name", "folder", "notices", "environment.seed"),
        *_paths(
            "exp", "train_steps episodes stop_return stop_return_of stop_win_ratio max_seconds"
        ),
        *_paths("exp", "seed track record trace_seconds"),
        *_paths("exp", "save_seconds save_freq save_keep save_replay keep_episodes"),
        *_paths("exp", "eval_step eval_times"),
        # numbers that an update multiplies or compares with, whatever they are
        *_paths("hyp", "lr lr_decay lr_final gamma gae_lambda clip_param vf_coef adam_eps"),
        *_paths("parallel.global_cfg", "save_freq exit_val link_seconds"),
        *_paths("parallel.learner_cfg", "exit_val finish_reward"),
    )
)
"""What changes when a run ends, what it learns and what it writes, but not what a step costs."""


def digest_of(config: Config) -> str:
    """Equal for configurations that one profile holds for."""
    text = json.dumps(_counting(config.to_json()), sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keys_of(config: Config) -> dict[str, Any]:
    """What `digest_of` is made of, so that it can be said later what has become another."""
    flat = dict(_flat(_counting(config.to_json())))
    plain: dict[str, Any] = json.loads(json.dumps(flat, default=str))
    return plain


def flat(config: Config) -> dict[str, Any]:
    """Every key of a configuration as `--set` takes it, with its value."""
    return dict(_flat(config.to_json()))


def told_apart(work: Work, config: Config) -> str:
    """What sets the job that was measured apart from a configuration: the keys with other values.

    Plans of older versions do not know them.
    """
    before, now = work.keys, keys_of(config)
    names = [key for key in {**now, **before} if _value(before, key) != _value(now, key)]
    names.sort(key=lambda key: key not in before or key not in now)
    if not before or not names:
        return f"{work.name}, or other values of its keys"
    words = [
        f"{key} was {_shown(before, key)} and is {_shown(now, key)} now"
        for key in names[:MOST_NAMED]
    ]
    more = [f"and {len(names) - MOST_NAMED} more keys"] if len(names) > MOST_NAMED else []
    return f"{work.name}: {', '.join((*words, *more))}"


def _value(keys: Mapping[str, Any], key: str) -> str:
    """As a file has it, which knows no tuples; nothing where the key is not there."""
    return json.dumps(keys[key]) if key in keys else ""


def _shown(keys: Mapping[str, Any], key: str) -> str:
    return shown(keys[key]) if key in keys else "not there"


def batch_apart(work: Work, config: Config, times: int = 1) -> str | None:
    """How environments make the batch of a configuration another than the one measured, if they do.

    On-policy their sum makes the batch, and where trajectories are counted, those of an actor. For
    the measurement there were `times` as many.
    """
    actors, wanted = config.parallel.actor_cfg, work.envs // times
    found = actors.num * actors.envs
    if not work.on_policy:
        return None
    if found != wanted:
        names = "actor_cfg.num times actor_cfg.envs"
    elif work.rollouts is not None:
        names, found = "actor_cfg.envs", actors.envs
        wanted = work.batch // (work.rollouts * work.steps)
    if found == wanted:
        return None
    return f"{work.name}: {names}, which makes the batch, was {wanted:,} and is {found:,} now"


def _flat(section: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    """Every key as `--set` takes it, with its value."""
    for name, value in section.items():
        where = f"{path}{name.lower() if path == 'hyp.' else name}"
        if isinstance(value, Mapping):
            yield from _flat(value, "" if where == "parallel" else f"{where}.")
        else:
            yield where, value


def _counting(section: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The keys of a section that count; those of `hyp` may be written in capitals."""
    kept = {}
    for name, value in section.items():
        where = f"{path}{name.lower()}"
        if where not in SPLIT and where not in COSTLESS:
            kept[name] = _counting(value, f"{where}.") if isinstance(value, Mapping) else value
    return kept
