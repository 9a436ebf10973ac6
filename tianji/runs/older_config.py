"""The configurations of runs of version 0.2, in the words of this version."""

from __future__ import annotations

from typing import Any

from tianji.core.json_file import section, text

CORRECTIONS: dict[str, dict[str, Any]] = {
    "none": {"correction": "none"},  # the default then
    "clip": {"correction": "ewma", "average_decay": 0.0, "weight_cap": 1.0},
    "vtrace": {"correction": "vtrace"},  # which PPO refuses, and says who has it
}
"""What `hyp.correction` of asynchronous PPO says today."""


def config_of(about: dict[str, Any]) -> dict[str, Any]:
    """The configuration in a run's `config.json`, of which this is the content."""
    config = section(about.get("config"))
    written, resolved = section(config.get("hyp")), section(about.get("hyp"))
    version = text(section(about.get("versions")).get("tianji")) or ""
    then = text(resolved.get("correction"))
    if not version.startswith("0.2.") or then not in CORRECTIONS:
        return config
    now = CORRECTIONS[then] if resolved.get("mode") == "async" else {}
    others = {key: value for key, value in written.items() if key.lower() != "correction"}
    return {**config, "hyp": {**others, **now}}
