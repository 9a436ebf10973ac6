"""Typed layouts of flat memory blocks: what a message is, without pickling anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tianji.core.errors import TianJiError

Arrays = dict[str, npt.NDArray[Any]]
"""Named numpy arrays: the content of a message, a trajectory or a batch."""

ALIGNMENT = 64  # bytes: a cache line, and what vector instructions like


def align(n_bytes: int) -> int:
    """`n_bytes` rounded up to a whole number of cache lines."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Field:
    """One named array: a numpy dtype name and a shape."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what would not be plain data."""
        try:
            kind = np.dtype(self.dtype).kind
        except TypeError as error:
            raise TianJiError(f"field {self.name!r}: {self.dtype!r} is no numpy dtype") from error
        if kind not in "biufc":
            raise TianJiError(
                f"field {self.name!r}: dtype {self.dtype!r} is not a number; "
                "use bool, int, float or complex"
            )
        if any(size < 0 for size in self.shape):
            raise TianJiError(f"field {self.name!r}: shape {self.shape} has a negative size")

    @property
    def n_bytes(self) -> int:
        """Bytes of the array, without padding."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def __str__(self) -> str:
        """As in `float32[16, 4]`."""
        return f"{np.dtype(self.dtype).name}{list(self.shape)}"


@dataclass(frozen=True)
class Schema:
    """An ordered set of fields and how they lie in one flat block."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        """Refuses two fields of one name."""
        names = [field.name for field in self.fields]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise TianJiError(f"field {twice!r} stands twice in {names}")

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where each field starts in the block, in bytes; each on a cache line of its own."""
        starts, position = [], 0
        for field in self.fields:
            starts.append(position)
            position += align(field.n_bytes)
        return tuple(starts)

    @cached_property
    def n_bytes(self) -> int:
        """Bytes of one block, padding included."""
        return sum(align(field.n_bytes) for field in self.fields)

    def stacked(self, *n: int) -> Schema:
        """The same fields with leading axes of sizes `n`."""
        return Schema(tuple(Field(f.name, f.dtype, (*n, *f.shape)) for f in self.fields))

    def view(self, block: npt.NDArray[np.uint8]) -> Arrays:
        """Typed arrays over `block` (at least `n_bytes` of uint8); nothing is copied."""
        arrays: Arrays = {}
        for field, start in zip(self.fields, self.offsets, strict=True):
            raw = block[start : start + field.n_bytes]
            arrays[field.name] = raw.view(field.dtype).reshape(field.shape)
        return arrays

    def empty(self) -> Arrays:
        """Fresh zeroed arrays of this layout, in one aligned block."""
        block = np.zeros(self.n_bytes + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        return self.view(block[start:])

    def check(self, arrays: Mapping[str, npt.NDArray[Any]], where: str = "") -> None:
        """Raises unless `arrays` has exactly these fields, shapes and dtypes."""
        place = f"  ({where})" if where else ""
        for field in self.fields:
            if field.name not in arrays:
                raise TianJiError(f"field {field.name!r} is missing: want {field}{place}")
            found = arrays[field.name]
            if found.dtype != np.dtype(field.dtype) or found.shape != field.shape:
                got = f"{found.dtype.name}{list(found.shape)}"
                raise TianJiError(f"field {field.name!r}: want {field}, got {got}{place}")
        if extra := set(arrays) - {field.name for field in self.fields}:
            raise TianJiError(
                f"unknown field {min(extra)!r}: want {[f.name for f in self.fields]}{place}"
            )

    def to_json(self) -> list[list[Any]]:
        """A plain description that `from_json` turns back."""
        return [[f.name, np.dtype(f.dtype).name, list(f.shape)] for f in self.fields]

    @staticmethod
    def from_json(description: list[list[Any]]) -> Schema:
        """The schema that `to_json` described."""
        return Schema(tuple(Field(name, dtype, tuple(shape)) for name, dtype, shape in description))
