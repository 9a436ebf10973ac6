"""Libraries, loaded when they are needed and without what their loading need not take.

Torch is loaded when it is first used: an actor that computes with numpy never pays for it.

An algorithm is one file with a torch-free half (the policy) and a learning half. It writes

    from tianji import torch                # a built-in one: from tianji.core.lazy import torch

and uses `torch` as always; the process of an actor then starts in a fifth of the time and of the
memory.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any


class _Lazy(ModuleType):
    """Stands for a module that is imported at the first look into it.

    The standard library's LazyLoader is of no use here: with Python 3.12, torch looks at its own
    entry in `sys.modules` while it loads, and finds the loader waiting for itself.
    """

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        self.__dict__[name] = value  # from here on as fast as any module
        return value


if TYPE_CHECKING:
    import torch
else:
    torch = _Lazy("torch")


@contextmanager
def loading() -> Iterator[None]:
    """Libraries are loaded within: garbage, of which they leave none, is looked for afterwards.

    A look at all that torch makes takes .1 s, and there would be several.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


__all__ = ["loading", "torch"]
