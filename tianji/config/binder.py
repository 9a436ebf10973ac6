"""Turns a section into a frozen dataclass, typed and checked; a wrong name gets the nearest one."""

from __future__ import annotations

import dataclasses
import operator
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tianji.config.release import called_here
from tianji.config.section import Section, nearest, plain, shown
from tianji.core.errors import TianJiError

T = TypeVar("T")

REQUIRED: Final = object()
"""The default of a key that has none."""

OWN: Final = "module:Class"
"""Among what a key needs: any class of one's own."""


@dataclass(frozen=True)
class Names:
    """The words that a key accepts."""

    have: tuple[str, ...] = ()
    lost: Mapping[str, str] = dataclasses.field(default_factory=dict)  # word -> why it cannot be
    idle: Mapping[str, str] = dataclasses.field(default_factory=dict)  # word -> why in vain
    own: bool = False  # 'module:Class' is accepted
    open: tuple[str, ...] = ()  # of those it has: whose section takes keys of their own

    @property
    def offer(self) -> str:
        """What can be written, in words."""
        words = [*map(repr, self.have), *(["your own as 'module:Class'"] if self.own else [])]
        return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else "".join(words)


@dataclass(frozen=True)
class Key:
    """What is known about one key besides its type and default."""

    meaning: str = ""
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    because: str = ""  # why the bound is there
    aliases: tuple[str, ...] = ()
    names: Names | None = None
    no_effect: str = ""  # why the key is accepted but does nothing
    needs: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # see `key`
    rest: Literal["", "own", "always"] = ""  # collects unknown keys: never, of `own` types, always


def key(default: Any, meaning: str, **facts: Any) -> Any:
    """Declares a key of a config dataclass: its default, what it means and its unit, its bounds.

    `facts` are the fields of `Key`, as in `lr: float = key(1e-3, "step size of Adam", above=0)`.
    The default is `REQUIRED` for a key that must be given. `needs` says when the key has an effect
    at all: `dict(mode=("async",))` where another key has one of these values, or is anything but
    None for `...`; a key of another section is named with it, as in `{"agent.type": ("PPO",)}`, and
    of several one is enough in `{"a or b": ...}`. An algorithm of one's own may use any key.
    Elsewhere a key that was written gets a notice.
    """
    metadata = {"key": Key(meaning, **facts)}
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=default.copy, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def facts_of(field: dataclasses.Field[Any]) -> Key:
    """What `key` said about a field; nothing for a plain dataclass field."""
    facts = field.metadata.get("key")
    return facts if isinstance(facts, Key) else Key()


def is_own(name: Any) -> bool:
    """Whether `name` has the form `module:Class`."""
    return isinstance(name, str) and bool(
        re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*", name)
    )


def bind(
    kind: type[T],
    section: Section,
    where: str = "hyp",
    notices: list[str] | None = None,
    others: Mapping[str, Any] | None = None,
) -> T:
    """An instance of dataclass `kind` with the values of `section`; keys match whatever their case.

    A wrong value is a `TianJiError` at its line, and so is what `kind` itself refuses: with a
    ValueError in `__post_init__`, or with the text that its method `check` returns. Keys that are
    accepted but do nothing are told in `notices`; `others` are sections that this may depend on.
    """
    binding = _Binding(where, section, [] if notices is None else notices, others or {})
    values = binding.values(kind)
    try:
        instance = kind(**values)
    except ValueError as error:
        raise section.place.error(f"{where}: {error}") from error
    check = getattr(instance, "check", None)
    if callable(check) and (complaint := check()):
        raise section.place.error(f"{where}: {complaint}")
    binding.tell_idle(instance)
    return instance


def check_name(section: Section, word: str, names: Names, where: str) -> None:
    """Raises if the section has `word` and its value is a string that `names` does not accept."""
    if isinstance(found := section.get(word), str):
        _Binding(where, section, [])._check_name(word, found, names)


class _Mismatch(Exception):
    """A value is not of the wanted type."""


@dataclass
class _Binding:
    """One section on its way into one dataclass."""

    where: str
    section: Section
    notices: list[str]
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def tell_idle(self, instance: Any) -> None:
        """A notice for each key that was written and lacks what it needs to have an effect."""
        fields = {field.name: field for field in dataclasses.fields(instance) if field.init}
        for name, word in self._matched(fields)[0].items():
            missing = self._missing(instance, facts_of(fields[name]).needs)
            if missing and word in self.section and self.section[word] is not None:
                self.notices.append(self._notice(word, missing))

    def _missing(self, instance: Any, needs: Mapping[str, Any]) -> str:
        """Which of its needs is not met, in words; what is not known here is taken as met."""
        for paths, accepted in needs.items():
            each = paths.split(" or ")
            if any(self._meets(instance, path, accepted) for path in each):
                continue
            if accepted is ...:
                return f"it needs {paths}"
            wanted = f"it needs {paths}={' or '.join(map(repr, accepted))}"
            found = self._found(instance, paths)[1]
            return wanted if len(each) > 1 else f"{wanted}, and that is {found!r}"
        return ""

    def _meets(self, instance: Any, path: str, accepted: Any) -> bool:
        known, found = self._found(instance, path)
        if not known:
            return True
        if accepted is ...:
            return found is not None
        agent = getattr(self.others.get("agent"), "type", None)
        any_key = agent is None or is_own(agent)  # of the network, too
        return found in accepted or (is_own(found) and (any_key or OWN in accepted))

    def _found(self, instance: Any, path: str) -> tuple[bool, Any]:
        """Whether the section of a key is known here, and what the key is."""
        section, _, name = path.rpartition(".")
        owner = self.others.get(section) if section else instance
        return owner is not None, getattr(owner, name, None)

    def values(self, kind: type[Any]) -> dict[str, Any]:
        """The arguments for `kind`, converted and checked."""
        hints = _hints(kind)
        fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
        written, unknown = self._matched(fields)
        values: dict[str, Any] = {}
        for name, word in written.items():
            if word in self.section:
                value = self._value(word, hints[name], facts_of(fields[name]))
                if not facts_of(fields[name]).no_effect:
                    values[name] = value
        if unknown:
            self._collect(unknown, fields, values)
        for name, field in fields.items():
            lacks_default = field.default is field.default_factory is dataclasses.MISSING
            if lacks_default and name not in values:
                raise self.section.place.error(f"{self.where} needs the key {name!r}")
        return values

    def _matched(
        self, fields: dict[str, dataclasses.Field[Any]]
    ) -> tuple[dict[str, str], list[str]]:
        """Field -> the word that was written for it, and the words that fit no field."""
        names: dict[str, str] = {}
        for name, field in fields.items():
            for spelling in (name, *facts_of(field).aliases):
                names[spelling.lower()] = name
        own = self._is_open(fields)
        collects_own = own and any(facts_of(field).rest == "own" for field in fields.values())
        written: dict[str, str] = {}
        unknown = []
        for word in self.section.written:
            name = names.get(word.lower(), "")
            if not name or (collects_own and facts_of(fields[name]).no_effect):
                unknown.append(word)
            elif name in written:
                raise self._error(
                    word, f"{self.where}: {written[name]!r} and {word!r} are the same key"
                )
            else:
                written[name] = word
        order = list(fields)
        return dict(sorted(written.items(), key=lambda item: order.index(item[0]))), unknown

    def _is_open(self, fields: dict[str, dataclasses.Field[Any]]) -> bool:
        """Whether the section's type is one that has keys of its own."""
        kind = self.section.get("type")
        names = facts_of(fields["type"]).names if "type" in fields else None
        return is_own(kind) or (names is not None and kind in names.open)

    def _collect(
        self, unknown: list[str], fields: dict[str, dataclasses.Field[Any]], values: dict[str, Any]
    ) -> None:
        """Hands unknown keys to the field that collects them, if there is one."""
        own = self._is_open(fields)
        for name, field in fields.items():
            rest = facts_of(field).rest
            if rest == "always" or (rest == "own" and own):
                extra = {
                    word: plain(self.section[word]) for word in unknown if word in self.section
                }
                values[name] = {**values.get(name, {}), **extra}
                return
        known = [name for name, field in fields.items() if facts_of(field).rest != "always"]
        hint = called_here(unknown[0], self.where, known) or nearest(unknown[0], known, "Its keys")
        raise self._error(unknown[0], f"{self.where} has no key {unknown[0]!r}. {hint}".rstrip())

    def _value(self, word: str, hint: Any, facts: Key) -> Any:
        """The value written under `word`, as type `hint`."""
        found = self.section[word]
        if facts.no_effect:
            self.notices.append(self._notice(word, facts.no_effect))
        if facts.names is not None and isinstance(found, str):
            self._check_name(word, found, facts.names)
        try:
            value = self._convert(hint, found, word)
        except _Mismatch:
            literals = [v for v in _literals(hint) if isinstance(v, str)]
            near = nearest(found, literals) if isinstance(found, str) else ""
            near = f". {near}" if near.startswith("Did") else ""
            wanted = words(hint)
            raise self._error(
                word, f"{self.where}.{word} must be {wanted}, found {shown(found)}{near}"
            ) from None
        for number in value if isinstance(value, tuple) else (value,):
            self._check_bounds(word, number, facts)
        return value

    def _check_name(self, word: str, found: str, names: Names) -> None:
        label = f"{self.where}.{word}"
        if found in names.idle:
            self.notices.append(self._notice(f"{word} {found!r}", names.idle[found], word))
        elif found in names.lost:
            raise self._error(word, f"{label} {found!r} cannot be had: {names.lost[found]}")
        elif found not in names.have and not (names.own and is_own(found)):
            hint = nearest(found, (*names.have, *names.lost, *names.idle))
            hint = hint if hint.startswith("Did") else f"Use {names.offer}."
            raise self._error(word, f"{label} {found!r} is not known. {hint}")

    def _check_bounds(self, word: str, number: Any, facts: Key) -> None:
        if isinstance(number, bool) or not isinstance(number, int | float):
            return
        for bound, holds, phrase in (
            (facts.at_least, operator.ge, "at least"),
            (facts.at_most, operator.le, "at most"),
            (facts.above, operator.gt, "greater than"),
        ):
            if bound is not None and not holds(number, bound):
                reason = f": {facts.because}" if facts.because else ""
                raise self._error(
                    word, f"{self.where}.{word} must be {phrase} {bound}, found {number}{reason}"
                )

    def _convert(self, hint: Any, value: Any, word: str) -> Any:
        """`value` as type `hint`; raises _Mismatch if it is of another."""
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._convert_to_one(arguments, value, word)
        if origin is Literal and any(value == v and type(value) is type(v) for v in arguments):
            return value
        if origin is tuple and isinstance(value, tuple):
            return tuple(self._convert(arguments[0], item, word) for item in value)
        if isinstance(value, str) and "type" in getattr(hint, "__dataclass_fields__", ()):
            value = Section({"type": value}, self.section.at(word))  # a bare name
        if isinstance(value, Section):
            return self._convert_section(hint, value, word)
        return _scalar(hint, value)

    def _convert_to_one(self, hints: tuple[Any, ...], value: Any, word: str) -> Any:
        for hint in sorted(hints, key=lambda hint: hint is not type(value)):  # the exact type first
            try:
                return self._convert(hint, value, word)
            except _Mismatch:
                continue
        raise _Mismatch

    def _convert_section(self, hint: Any, value: Section, word: str) -> Any:
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            return bind(hint, value, word, self.notices, self.others)
        if hint is Section:
            return value
        if hint in (Any, object) or (get_origin(hint) or hint) in (Mapping, dict):
            return value.plain()
        raise _Mismatch

    def _notice(self, what: str, reason: str, word: str | None = None) -> str:
        place = self.section.at(word or what)
        start = f"{place}: " if place.file else ""
        return f"{start}{self.where}.{what} has no effect here: {reason}"

    def _error(self, word: str, message: str) -> TianJiError:
        return self.section.at(word).error(message)


def _scalar(hint: Any, value: Any) -> Any:
    if hint in (Any, object):
        return value
    if hint in (None, type(None)) and value is None:
        return None
    if hint in (bool, str) and type(value) is hint:
        return value
    if hint is float and type(value) in (int, float):
        return float(value)  # a section holds no integer beyond 64 bits
    if hint is int and (type(value) is int or (type(value) is float and value.is_integer())):
        return int(value)
    raise _Mismatch


def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of the fields of `kind`; raises if they are not such as a config can hold."""
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError) as error:
        raise TianJiError(f"{kind.__module__}.{kind.__qualname__}: {error}") from error
    for field in dataclasses.fields(kind):
        try:
            words(hints[field.name])
        except TypeError as error:
            raise TianJiError(
                f"{kind.__module__}.{kind.__qualname__}.{field.name}: {error}"
            ) from error
    return hints


def _literals(hint: Any) -> tuple[Any, ...]:
    """The constants among what `hint` accepts."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(value for part in get_args(hint) for value in _literals(part))


PLAIN_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a string",
    type(None): "None",
    None: "None",
    Any: "anything",
    object: "anything",
    Section: "dict(...)",
    dict: "dict(...)",
    Mapping: "dict(...)",
    tuple: "a list",
}


def words(hint: Any) -> str:
    """What a type accepts, as a message says it; TypeError if a config cannot hold it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(words(part) for part in arguments)
    if origin is Literal:
        return " or ".join(map(repr, arguments))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return f"a list, each item {words(arguments[0])}"
    if dataclasses.is_dataclass(hint):
        return "dict(...)"
    if origin in (Mapping, dict) or (origin is None and hint in PLAIN_WORDS and hint is not tuple):
        return PLAIN_WORDS[origin or hint]
    raise TypeError(
        f"a config cannot hold {hint!r}; use int, float, bool, str, Literal[...], X | None, "
        "tuple[X, ...], a dataclass or Mapping"
    )
