"""State as a safetensors file: arrays as they lie in memory, the rest as JSON in the header.

The format is safetensors' own, and its libraries read these files. Written piece by piece, because
a store of samples may fill half of the memory and must not be copied to be saved; read by mapping,
because it is only copied on into another store.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tianji.core.errors import TianJiError
from tianji.core.json_file import opened, parsed, refusal
from tianji.core.schema import Arrays
from tianji.core.state import State, join, split

CHUNK_BYTES = 4 << 20  # written and hashed at once
LARGEST_HEADER = 64 << 20
LARGEST_COPY = 8 << 20  # larger files are mapped: then each holds a descriptor
DTYPES = {
    "bool": "BOOL",
    "int8": "I8",
    "uint8": "U8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}
NUMPY = {name: dtype for dtype, name in DTYPES.items()}
UNREADABLE = (  # what reading a header that nobody wrote may come to
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
    TianJiError,
)


class Corrupt(TianJiError):
    """A checkpoint is not what was written."""


def chunks(state: State) -> Iterator[memoryview | bytes]:
    """The file that holds `state`, piece by piece; pieces of arrays are views of them."""
    found, facts = split(state)
    arrays = dict(sorted(found.items(), key=lambda item: -item[1].itemsize))  # keeps all aligned
    yield _header(arrays, facts)
    for array in arrays.values():
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        raw: Any = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
        for start in range(0, len(raw), CHUNK_BYTES):
            yield memoryview(raw[start : start + CHUNK_BYTES])


def _header(arrays: Arrays, facts: State) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"facts": json.dumps(facts)}}
    position = 0
    for name, array in arrays.items():
        end = position + array.nbytes
        dtype = DTYPES.get(array.dtype.name)
        if dtype is None:
            raise TianJiError(f"state {name!r}: an array of {array.dtype} cannot be saved")
        shape = list(array.shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read(path: Path) -> State:
    """What was written; the arrays are for reading, and those of a large file are mapped from it.

    Raises `Corrupt` where it is not what was written, `Busy` where nobody can tell.
    """
    arrays, about = read_arrays(path)
    try:
        state = join(arrays, parsed(about["facts"], "its header"))
    except UNREADABLE as error:
        raise Corrupt(f"{path}: its header is not readable: {error}") from error
    if not isinstance(state, dict):
        raise Corrupt(f"{path}: it holds no state")
    return state


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """All arrays of a safetensors file by name, and what its header says besides."""
    try:
        with opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size - 8, LARGEST_HEADER):
                raise Corrupt(f"{path}: its header has no sensible length")
            text = file.read(length)
            data = memoryview(
                file.read(LARGEST_COPY)
                if size <= LARGEST_COPY
                else mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
            )
    except OSError as error:
        raise refusal(path, error) from error
    start = 8 + length if size > LARGEST_COPY else 0
    try:
        header = parsed(text, "its header")
        about = header.pop("__metadata__")
        return {name: _array(data[start:], each) for name, each in header.items()}, about
    except UNREADABLE as error:
        raise Corrupt(f"{path}: its header is not readable: {error}") from error


def _array(data: memoryview, about: dict[str, Any]) -> np.ndarray[Any, np.dtype[Any]]:
    begin, end = about["data_offsets"]
    shape, dtype = tuple(about["shape"]), np.dtype(NUMPY[about["dtype"]])
    if end - begin != int(np.prod(shape, dtype=object)) * dtype.itemsize:
        raise ValueError("an array's size does not fit its shape")
    if not 0 <= begin <= end <= len(data):
        raise ValueError("an array lies outside of the file")
    return np.frombuffer(data[begin:end], dtype).reshape(shape)
