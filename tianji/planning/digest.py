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
"""What a plan decides."""

COSTLESS = frozenset(
    (
        *("name", "folder", "notices", "environment.seed"),
        *_paths("exp", "train_steps episodes stop_return max_seconds seed track trace_seconds"),
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
    plain = _counting(config.to_json())
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _counting(section: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """The keys of a section that count; those of `hyp` may be written in capitals."""
    kept = {}
    for name, value in section.items():
        where = f"{path}{name.lower()}"
        if where not in SPLIT and where not in COSTLESS:
            kept[name] = _counting(value, f"{where}.") if isinstance(value, Mapping) else value
    return kept
