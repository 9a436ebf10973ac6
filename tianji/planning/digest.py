"""Which configuration a plan is for: every key that changes a cost, and none of the split's own."""

from __future__ import annotations

import hashlib
import json

from tianji.config import Config

SPLIT_KEYS = {
    "global_cfg": ("group_num", "rebalance"),
    "learner_cfg": ("cores",),
    "actor_cfg": ("num", "envs", "cores"),
    "buffer_cfg": ("cores", "slack"),
}
"""What a plan decides."""

COSTING = ("environment", "agent", "model", "hyp", "parallel")
"""Sections whose keys change a cost."""


def digest_of(config: Config) -> str:
    """Equal for configurations that one profile holds for."""
    plain = {name: section for name, section in config.to_json().items() if name in COSTING}
    for section, names in SPLIT_KEYS.items():
        for name in names:
            plain["parallel"][section].pop(name, None)
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
