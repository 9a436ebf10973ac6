"""Generates docs/config.md, the table of every key: python docs/config_page.py."""

from __future__ import annotations

import dataclasses
import importlib
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tianji.config.builtin_algorithms import ALGORITHMS
from tianji.config.binder import facts_of
from tianji.config.environment import EnvironmentConfig
from tianji.config.keys import (
    AgentConfig,
    ExpConfig,
    ModelConfig,
)
from tianji.config.parallel import ParallelConfig

SECTIONS: tuple[tuple[str, type[Any]], ...] = (
    ("environment", EnvironmentConfig),
    ("exp", ExpConfig),
    ("agent", AgentConfig),
    ("model", ModelConfig),
    ("parallel_parameters", ParallelConfig),
)

OPENING = """\
# Configuration keys

An experiment is one Python-looking file, such as those in `configs/`. It is read, never executed:
assignments, `dict(...)`, lists, numbers, strings, arithmetic, names given above, and comments.
Nearly every key may be left out. The bare word `default` stands for the default of any key. On the
command line, `--set hyp.lr=0.001` replaces one key with the same checks; `actor_cfg.num` is short
for `parallel_parameters.actor_cfg.num`.

Upper and lower case of a key do not matter. `module:Class` names a class of your own; the module is
looked for beside the config file. Keys of the paper's public release that do nothing here are
accepted, with a notice when the run starts.

This page is generated: `python docs/config_page.py > docs/config.md`.
"""


def document(sections: Iterable[tuple[str, type[Any]]]) -> str:
    """The page as Markdown: a table for each (title, dataclass) and for each dataclass inside."""
    parts = [OPENING]
    for title, kind in sections:
        parts += _tables(title, kind)
    return "\n".join(parts)


def _tables(title: str, kind: type[Any]) -> Iterator[str]:
    hints = get_type_hints(kind)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    nested = {field.name: inner for field in fields if (inner := _nested(hints[field.name]))}
    rows = [_row(field, hints[field.name]) for field in fields if field.name not in nested]
    if rows:
        head = "| key | type | default | meaning |\n|---|---|---|---|"
        yield "\n".join(
            [f"## {title}", "", (kind.__doc__ or "").split("\n")[0], "", head, *rows, ""]
        )
    for name, inner in nested.items():
        yield from _tables(f"{title}.{name}", inner)


def _nested(hint: Any) -> type[Any] | None:
    """The dataclass that `hint` is, or that the items of a list of it are."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if get_origin(hint) is tuple:
        hint = get_args(hint)[0]
    return hint if isinstance(hint, type) and dataclasses.is_dataclass(hint) else None


def _row(field: dataclasses.Field[Any], hint: Any) -> str:
    facts = facts_of(field)
    notes = [facts.meaning]
    if facts.aliases:
        notes.append(f"also `{'`, `'.join(facts.aliases)}`")
    for phrase, bound in (
        ("at least", facts.at_least),
        ("at most", facts.at_most),
        ("greater than", facts.above),
    ):
        if bound is not None:
            notes.append(f"{phrase} {bound}")
    if facts.no_effect:
        notes.append(f"**no effect**: {facts.no_effect}")
    cells = (f"`{field.name}`", type_name(hint), _default(field), "; ".join(filter(None, notes)))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
        return "`dict()`" if value == {} else f"`{value!r}`"
    if field.default is dataclasses.MISSING:
        return "must be given"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return f"`{value!r}`"


def type_name(hint: Any) -> str:
    """A type as the page shows it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(type_name(part) for part in arguments)
    if origin is Literal:
        return " or ".join(f"`{value!r}`" for value in arguments)
    if origin is tuple:
        return f"list of {type_name(arguments[0])}"
    if (origin or hint) in (Mapping, dict):
        return "dict"
    return {type(None): "None", Any: "any"}.get(hint, getattr(hint, "__name__", str(hint)))


def main() -> str:
    """The page with the keys of `hyp` of the algorithms that come with the package."""
    sections = list(SECTIONS)
    for name in ALGORITHMS:
        algorithm = getattr(importlib.import_module(f"tianji.algorithms.{name.lower()}"), name)
        sections.append((f"hyp of {name}", algorithm.Hyp))
    return document(sections)


if __name__ == "__main__":
    print(main(), end="")
