"""What broke in a run and cost no more than itself, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tianji.core.wording import count_of

MENDED = {  # by the names in summary.json
    "env_restarts": ("environment", "made anew"),
    "not_finite": ("episode", "with NaN or Inf discarded"),
    "lost_episodes": ("episode", "lost to errors of the game"),
    "skipped_updates": ("update", "skipped"),
}


def mended(counts: Mapping[str, Any]) -> str:
    """As in `2 environments made anew, 1 update skipped`; nothing if nothing broke."""
    found = [(counts.get(name), words) for name, words in MENDED.items()]
    return ", ".join(f"{count_of(n, thing)} {rest}" for n, (thing, rest) in found if n)
