"""Where roles compute."""

from __future__ import annotations

from tianji.core.errors import TianJiError
from tianji.core.lazy import torch


def device_for(name: str, key: str = "learner_cfg.device") -> str:
    """Where to compute: `auto` is the GPU if there is one."""
    if name == "cpu":
        return name
    if torch.cuda.is_available():
        return "cuda"
    if name == "cuda":
        raise TianJiError(f"{key}: torch sees no GPU here: use 'auto' or 'cpu'")
    return "cpu"
