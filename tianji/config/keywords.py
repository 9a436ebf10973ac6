"""Overrides as Python keywords: `hyp=dict(lr=0.001)` means what `--set hyp.lr=0.001` does."""

from __future__ import annotations

import numbers
import os
from collections.abc import Iterator, Mapping
from typing import Any

from tianji.config.loader import PARALLEL, SECTIONS
from tianji.config.release import called_here
from tianji.config.section import nearest
from tianji.core.errors import TianJiError

SHORT = {name: f"exp.{name}" for name in ("seed", "stop_return", "max_seconds", "track", "record")}
SHORT["trace"] = "exp.trace_seconds"
"""Keys that have an option of their own on the command line."""


def as_overrides(settings: Mapping[str, Any], caller: str = "train") -> list[str]:
    """Each setting as `load` takes it: `seed=2`, `hyp=dict(lr=0.001)` or `**{"hyp.lr": 0.001}`."""
    return [o for name, value in settings.items() for o in _spelled(name, value, caller)]


def _spelled(name: str, value: Any, caller: str) -> Iterator[str]:
    first = name.partition(".")[0]
    known = (*SHORT, *SECTIONS, *PARALLEL, "embryo")
    if first not in known or "=" in name:
        hint = called_here(first) or nearest(first, known, "There are")
        raise TianJiError(
            f"tianji.{caller}({name}=...): there is no such option or section. {hint}"
        )
    if name == "track" and isinstance(value, str):
        value = [value]
    yield from _flat(SHORT.get(name, name), value)


def _flat(path: str, value: Any) -> Iterator[str]:
    """A dict adds to a section, key by key; anything else replaces what was there."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}", item)
    else:
        yield f"{path}={_plain(value)!r}"


def _plain(value: Any) -> Any:
    """`value` as a config file would spell it; also numbers of numpy, and paths."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value
