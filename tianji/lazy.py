"""Torch, loaded when it is first used: an actor that computes with numpy never pays for it.

An algorithm is one file with a torch-free half (the policy) and a learning half. It writes

    from tianji.lazy import torch

and uses `torch` as always; the process of an actor then starts in a fifth of the time and of the
memory.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING


def _lazy(name: str) -> ModuleType:
    """The standard library's lazy loader around module `name`."""
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module


if TYPE_CHECKING:
    import torch
else:
    torch = _lazy("torch")

__all__ = ["torch"]
