"""Values that remember where they were written, so that every message can name file and line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tianji.core.errors import TianJiError

MAX_DEPTH = 50  # dicts and lists inside each other
MAX_VALUES = 10_000  # values in one dict or list, counted with all that they hold
MAX_INTEGER = 2**63


@dataclass(frozen=True)
class Place:
    """A line of a file, or the command-line option that stands in for one."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        """As in `configs/pong.py:7`."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def error(self, message: str) -> TianJiError:
        """An error that begins with this place."""
        return TianJiError(f"{self}: {message}" if self.file else message)


class Default:
    """The type of the bare word `default`: the key keeps the value that it has without a file."""

    def __repr__(self) -> str:
        """As it is written."""
        return "default"


DEFAULT: Final = Default()


class Section(Mapping[str, Any]):
    """A read-only mapping that knows where each of its keys was written.

    Keys written as `default` are not among its items: they stand in `defaulted`, with their places.
    Two sections are equal if their items are; places do not count.
    """

    __slots__ = ("_places", "_values", "defaulted", "place")

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        place: Place | None = None,
        places: Mapping[str, Place] | None = None,
    ) -> None:
        values, self._places = dict(values or {}), dict(places or {})
        self.place = place or Place()
        self.defaulted = {key: self.at(key) for key, value in values.items() if value is DEFAULT}
        self._values = {key: value for key, value in values.items() if value is not DEFAULT}

    @staticmethod
    def of(values: Mapping[str, Any], place: Place) -> Section:
        """A section of plain data, such as JSON: mappings become sections, lists become tuples."""
        section = _sectioned(values, place, 0)
        assert isinstance(section, Section)
        return section

    def __getitem__(self, key: str) -> Any:
        """The value of `key`."""
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        """The keys, in the order in which they were written."""
        return iter(self._values)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._values)

    def __repr__(self) -> str:
        """As it could stand in a config."""
        return f"dict({', '.join(f'{key}={value!r}' for key, value in self.items())})"

    def at(self, key: str) -> Place:
        """Where `key` was written; where the section was, if that is not known."""
        return self._places.get(key, self.place)

    @property
    def written(self) -> tuple[str, ...]:
        """Every key, also those written as `default`."""
        return (*self._values, *self.defaulted)

    def get_section(self, key: str) -> Section:
        """The section under `key`; an empty one at the same place if there is none."""
        value = self._values.get(key)
        if value is None:
            return Section(place=self.at(key))
        if not isinstance(value, Section):
            raise self.at(key).error(f"{key} must be dict(...), found {shown(value)}")
        return value

    def replaced(self, key: str, value: Any, place: Place) -> Section:
        """This section with another value for `key`."""
        values = {**self._values, **dict.fromkeys(self.defaulted, DEFAULT), key: value}
        return Section(values, self.place, {**self._places, key: place})

    def without(self, *keys: str) -> Section:
        """This section less `keys`."""
        values = {**self._values, **dict.fromkeys(self.defaulted, DEFAULT)}
        rest = {key: value for key, value in values.items() if key not in keys}
        return Section(rest, self.place, self._places)

    def plain(self) -> dict[str, Any]:
        """The same as plain dicts and tuples."""
        return {key: plain(value) for key, value in self.items()}


def plain(value: Any) -> Any:
    """`value` with dicts in place of sections, at any depth."""
    if isinstance(value, Section):
        return value.plain()
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    return value


def shown(value: Any) -> str:
    """`value` as a message shows it: as written, but never long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _sectioned(value: Any, place: Place, depth: int) -> Any:
    """`value` as the reader would have read it; raises on what a config cannot hold."""
    if depth > MAX_DEPTH:
        raise place.error(f"more than {MAX_DEPTH} dicts and lists inside each other")
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise place.error(f"keys must be strings, found {shown(odd[0])}")
        return Section({k: _sectioned(v, place, depth + 1) for k, v in value.items()}, place)
    if isinstance(value, list | tuple):
        return tuple(_sectioned(item, place, depth + 1) for item in value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) <= MAX_INTEGER:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise place.error(f"found {shown(value)}, which a config cannot hold")


def nearest(name: str, known: Iterable[str], label: str = "Known") -> str:
    """A sentence that names the closest of `known`, or all of them if none is close."""
    from difflib import get_close_matches

    spelled = {candidate.lower(): candidate for candidate in known}
    if close := get_close_matches(name.lower(), spelled, n=1):
        return f"Did you mean {spelled[close[0]]!r}?"
    return f"{label}: {', '.join(sorted(spelled.values()))}." if spelled else ""
