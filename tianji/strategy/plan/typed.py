"""Whether what was read from a file has the types that its dataclass declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints


def refuse_other_types(record: Any, where: str) -> None:
    """Raises a TypeError that names the first field of a dataclass with a value of another type."""
    hints = get_type_hints(type(record))
    for field in fields(record):
        _refuse(getattr(record, field.name), hints[field.name], f"{where}.{field.name}")


def _refuse(value: Any, hint: Any, where: str) -> None:
    if is_dataclass(value) and type(value) is hint:
        refuse_other_types(value, where)
    elif get_origin(hint) is tuple and isinstance(value, tuple):
        kinds = get_args(hint)
        kinds = kinds[:1] * len(value) if kinds[-1] is ... else kinds
        if len(kinds) != len(value):
            raise TypeError(f"{where} has {len(value)} values, want {len(kinds)}")
        for i, (item, kind) in enumerate(zip(value, kinds, strict=True)):
            _refuse(item, kind, f"{where}[{i}]")
    elif not _is_a(value, hint):
        raise TypeError(f"{where} is {value!r}, want {_name(hint)}")


def _is_a(value: Any, hint: Any) -> bool:
    """JSON tells numbers from words and truths, but 1.0 may have been written as 1."""
    if isinstance(hint, UnionType):
        return any(_is_a(value, kind) for kind in get_args(hint))
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, int | float)
    return isinstance(value, get_origin(hint) or hint)


def _name(hint: Any) -> str:
    """A type in words."""
    if isinstance(hint, UnionType):
        return " or ".join(map(_name, get_args(hint)))
    words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    words |= {NoneType: "null", tuple: "a list", Mapping: "an object"}
    kind = get_origin(hint) or hint
    return words.get(kind, f"a {kind.__name__}")
