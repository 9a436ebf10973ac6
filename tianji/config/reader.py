"""Reads config files: Python-looking text, parsed with `ast` and never executed."""

from __future__ import annotations

import ast
import math
import operator
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeVar

from tianji.config.section import (
    DEFAULT,
    MAX_DEPTH,
    MAX_INTEGER,
    MAX_VALUES,
    Place,
    Section,
    nearest,
    shown,
)
from tianji.core import json_file
from tianji.core.errors import TianJiError

Value = TypeVar("Value")

MAX_BYTES = 1_000_000
MAX_NESTING = 100  # parts of one expression inside each other
HOLDS = (
    "a config holds only `name = value`, where a value is made of numbers, strings, True, False, "
    "None, dict(...), lists, arithmetic and names given above"
)

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True)
class Source:
    """What a config file says: its names, and which of them others are made of."""

    names: Section
    used: frozenset[str]


def read_text(path: str) -> str:
    """The text of the file at `path`; raises a `TianJiError` if it cannot be read."""
    try:
        return json_file.read_text(path, MAX_BYTES)
    except TianJiError as error:
        raise TianJiError(
            f"{error}. {near}" if (near := _neighbour(path)) else str(error)
        ) from error


def _neighbour(path: str) -> str:
    """A hint at a file of a similar name in the same folder, where there is none of this one."""
    folder, name = os.path.split(path)
    if os.path.lexists(path):
        return ""
    try:
        files = [file for file in os.listdir(folder or ".") if file.endswith(".py")]
    except (OSError, ValueError):
        return ""
    stems = [file.removesuffix(".py") for file in files]  # all are alike in the rest
    close = get_close_matches(name.removesuffix(".py"), stems, n=1)
    return f"Did you mean {f'{close[0]}.py'!r}?" if close else ""


def parse(text: str, file: str) -> Source:
    """Reads the text of a config file; `file` is the name that errors give it."""
    reader = _Reader(text, file)
    places: dict[str, Place] = {}
    for statement in _syntax_tree(text, file, "exec").body:
        if isinstance(statement, ast.Expr) and _is_string(statement.value):
            continue  # a docstring, or a string that serves as a comment
        name, value = reader.assignment(statement)
        reader.names[name] = value
        places[name] = Place(file, statement.lineno)
    return Source(Section(reader.names, Place(file), places), frozenset(reader.used))


def parse_value(text: str, place: Place) -> Any:
    """Reads the value of a `--set`; a bare word that is no literal is taken as a string."""
    try:
        tree = _syntax_tree(text, str(place), "eval")
        return _Reader(text.strip(), str(place), on_one_line=True).value(tree.body)
    except TianJiError as error:
        if re.fullmatch(r"[^\s'\"()\[\]{},=]+", text):
            return text
        raise place.error(
            f"cannot read the value {shown(text)}; write a number, a list such as [64,64], a word, "
            "or a string in quotes"
        ) from error


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _syntax_tree(text: str, file: str, mode: str) -> Any:
    """The module or expression that `text` spells."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as an unknown escape in a string
            return ast.parse(text.strip() if mode == "eval" else text, mode=mode)
    except SyntaxError as error:
        raise Place(file, error.lineno or 1).error(f"not a config: {error.msg}") from error
    except (RecursionError, MemoryError) as error:
        raise Place(file).error("not a config: nested too deeply") from error
    except ValueError as error:
        raise Place(file).error(f"not a config: {error}") from error


class _Reader:
    """Turns syntax trees into values; knows the names given so far."""

    def __init__(self, text: str, file: str, on_one_line: bool = False) -> None:
        self.names: dict[str, Any] = {}
        self.used: set[str] = set()
        self._text = text
        self._file = file
        self._on_one_line = on_one_line
        self._nesting = 0

    def assignment(self, statement: ast.stmt) -> tuple[str, Any]:
        """The name and the value of `name = value`."""
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case ast.Assign() | ast.AnnAssign():
                raise self._refusal(statement, "an assignment to something else than one name")
            case _:
                raise self._refusal(statement)
        if name == "default":
            raise self._place(statement).error("`default` means our default; use another name")
        return name, self.value(value)

    def value(self, node: ast.expr) -> Any:
        """What an expression comes to."""
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise self._place(node).error(f"more than {MAX_NESTING} parts inside each other")
        value = self._value(node)
        self._nesting -= 1
        return value

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return self._bounded(node, tuple(self._item(item) for item in items))
            case ast.Call(func=ast.Name(id="dict")):
                return self._dict_call(node)
            case ast.Dict():
                return self._dict_literal(node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return self._apply(node, op, self.value(left), self.value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return self._apply(node, op, self.value(operand))
        raise self._refusal(node)

    def _place(self, node: ast.AST) -> Place:
        line = getattr(node, "lineno", 0)
        return Place(self._file, 0 if self._on_one_line else line)

    def _refusal(self, node: ast.expr | ast.stmt, found: str | None = None) -> TianJiError:
        if found is None:
            found = shown(ast.get_source_segment(self._text, node))
        return self._place(node).error(f"found {found}; {HOLDS}")

    def _constant(self, node: ast.expr, value: Any) -> Any:
        if isinstance(value, complex | bytes) or value is Ellipsis:
            raise self._refusal(node, shown(value))
        return self._number(node, value) if isinstance(value, int | float) else value

    def _number(self, node: ast.expr, value: Any) -> Any:
        if isinstance(value, complex):
            raise self._place(node).error("this root of a negative number is not a real number")
        if (isinstance(value, int) and abs(value) > MAX_INTEGER) or not math.isfinite(value):
            raise self._place(node).error("this number is too large")
        return value

    def _name(self, node: ast.expr, name: str) -> Any:
        if name == "default":
            return DEFAULT
        if name not in self.names:
            hint = nearest(name, self.names, "Names given above")
            raise self._place(node).error(f"the name {name!r} is not given above. {hint}".rstrip())
        self.used.add(name)
        return self.names[name]

    def _item(self, node: ast.expr) -> Any:
        value = self.value(node)
        if value is DEFAULT:
            raise self._place(node).error("`default` stands for the default of a key; here is none")
        return value

    def _dict_call(self, node: ast.Call) -> Section:
        values: dict[str, Any] = {}
        places: dict[str, Place] = {}
        if len(node.args) > 1:
            raise self._refusal(node.args[1], "a second value without a name in dict(...)")
        for argument in node.args:
            self._merge(values, places, argument)
        given: set[str] = set()
        for keyword in node.keywords:
            if keyword.arg is None:
                self._merge(values, places, keyword.value)
            else:
                self._refuse_twice(keyword, keyword.arg, given)
                values[keyword.arg] = self.value(keyword.value)
                places[keyword.arg] = self._place(keyword)
        return self._bounded(node, Section(values, self._place(node), places))

    def _dict_literal(self, node: ast.Dict) -> Section:
        values: dict[str, Any] = {}
        places: dict[str, Place] = {}
        given: set[str] = set()
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self._merge(values, places, value)
                continue
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise self._place(key).error("the keys of a dict must be strings")
            self._refuse_twice(key, key.value, given)
            values[key.value] = self.value(value)
            places[key.value] = self._place(key)
        return self._bounded(node, Section(values, self._place(node), places))

    def _refuse_twice(self, node: ast.AST, key: str, given: set[str]) -> None:
        if key in given:
            raise self._place(node).error(f"the key {key!r} stands twice")
        given.add(key)

    def _merge(self, values: dict[str, Any], places: dict[str, Place], node: ast.expr) -> None:
        """Adds the keys of another dict, as `dict(base, ...)` and `**base` do."""
        base = self.value(node)
        if not isinstance(base, Section):
            raise self._place(node).error(
                f"only a dict can be merged into a dict, found {shown(base)}"
            )
        for key in base.written:
            values[key] = base.get(key, DEFAULT)
            places[key] = base.at(key)

    def _apply(self, node: ast.expr, op: ast.AST, *values: Any) -> Any:
        """Arithmetic on numbers; strings and lists can be added, and repeated."""
        kinds = {type(value) for value in values}
        numbers = kinds <= {int, float}
        joined = isinstance(op, ast.Add) and kinds in ({str}, {tuple}) and len(values) == 2
        repeated = isinstance(op, ast.Mult) and kinds in ({str, int}, {tuple, int})
        if not (numbers or joined or repeated):
            raise self._place(node).error(
                f"cannot calculate with {' and '.join(map(shown, values))}"
            )
        if repeated and math.prod(n if isinstance(n, int) else len(n) for n in values) > MAX_VALUES:
            raise self._place(node).error(f"this is longer than {MAX_VALUES:,}")
        if isinstance(op, ast.Pow) and kinds == {int} and abs(values[0]) > 1 and values[1] > 64:
            raise self._place(node).error("this number is too large")
        try:
            result = OPERATORS[type(op)](*values)
        except (ArithmeticError, ValueError) as error:
            raise self._place(node).error(f"cannot calculate this: {error}") from error
        return self._number(node, result) if numbers else self._bounded(node, result)

    def _bounded(self, node: ast.AST, value: Value) -> Value:
        """`value`, unless it holds too much: names make it easy to multiply what a line says."""
        size, depth = _extent(value)
        if size > MAX_VALUES or depth > MAX_DEPTH:
            raise self._place(node).error(
                f"too large: at most {MAX_VALUES:,} values, nested at most {MAX_DEPTH} deep"
            )
        return value


def _extent(value: Any) -> tuple[int, int]:
    """How many values `value` holds (long strings count more), and how deep they lie."""
    if isinstance(value, str):
        return 1 + len(value) // 64, 0
    if not isinstance(value, tuple | Mapping):
        return 1, 0
    items = value.values() if isinstance(value, Mapping) else value
    extents = [_extent(item) for item in items]
    return 1 + sum(size for size, _ in extents), 1 + max((depth for _, depth in extents), default=0)
