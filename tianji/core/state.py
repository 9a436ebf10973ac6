"""What a part of a run must remember to go on later: plain data, never code.

A part that can be saved has two methods, which a checkpoint calls:

    def state(self) -> State:                    # arrays, numbers, strings, None, lists and dicts
        return {"updates": self._updates, "random": random_state(self._random)}

    def restore(self, state: State) -> None:     # the inverse, on a part made the same way
        self._updates = state["updates"]
        restore_random(self._random, state["random"])

For environments and policies of one's own both are optional: `state_of` and `restore_to` skip what
has none. A part that is made of others and cannot be saved without them answers None.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from tianji.core.errors import TianJiError
from tianji.core.schema import Arrays

State = dict[str, Any]
"""Names to arrays, numbers, strings, booleans, None, and lists and dicts of these."""

SEPARATOR = "/"  # between the names on the way to an array
ARRAY = "__array__"  # stands in the facts where an array was


@runtime_checkable
class Stateful(Protocol):
    """Whatever can say what it must remember."""

    def state(self) -> State | None:
        """What `restore` needs; arrays may be views that later steps change. None: cannot say."""

    def restore(self, state: State) -> None:
        """Goes on as the part did whose `state` this was."""


def state_of(part: object) -> State | None:
    """The state of a part that has one; None where it cannot be saved."""
    if not isinstance(part, Stateful) or not callable(part.state):
        return None
    return part.state()


def restore_to(part: object, state: State | None) -> bool:
    """Restores a part that can be restored; False where it begins anew."""
    if state is None or not isinstance(part, Stateful):
        return False
    part.restore(state)
    return True


def split(state: State) -> tuple[Arrays, State]:
    """Arrays by their path, and all the rest as JSON can hold it."""
    arrays: Arrays = {}
    return arrays, _without_arrays(state, "", arrays)


def join(arrays: Arrays, facts: State) -> State:
    """The inverse of `split`."""
    joined: State = _with_arrays(facts, "", arrays)
    return joined


def copied(state: State) -> State:
    """The same state in memory of its own, for someone who writes it down later."""
    arrays, facts = split(state)
    return join({name: array.copy() for name, array in arrays.items()}, facts)


def n_bytes(state: State) -> int:
    """Bytes of all arrays."""
    return sum(array.nbytes for array in split(state)[0].values())


def random_state(generator: np.random.Generator) -> State:
    """Where a stream of random numbers stands."""
    return dict(generator.bit_generator.state)


def restore_random(generator: np.random.Generator, state: State) -> None:
    """Sets a stream of random numbers to where another stood."""
    generator.bit_generator.state = state


def fresh_seed(*entropy: int) -> int:
    """A seed of environments made of these numbers: those of other numbers are far from it."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0]) % 2**31


def _without_arrays(value: Any, path: str, arrays: Arrays) -> Any:
    if isinstance(value, np.ndarray):
        if path in arrays:
            raise TianJiError(f"state {path!r}: two arrays have this name")
        arrays[path] = value
        return {ARRAY: True}
    if isinstance(value, dict):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise TianJiError(f"state {path!r}: key {odd[0]!r} is no string, and would become one")
        return {k: _without_arrays(v, _under(path, k), arrays) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_arrays(item, _under(path, i), arrays) for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TianJiError(
        f"state {path!r}: {type(value).__name__} is no plain data: use arrays, numbers, strings, "
        "lists and dicts"
    )


def _with_arrays(value: Any, path: str, arrays: Arrays) -> Any:
    if isinstance(value, dict):
        if value.get(ARRAY) is True:
            if path not in arrays:
                raise TianJiError(f"state {path!r}: its array is missing")
            return arrays[path]
        return {key: _with_arrays(item, _under(path, key), arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item, _under(path, i), arrays) for i, item in enumerate(value)]
    return value


def _under(path: str, key: object) -> str:
    return f"{path}{SEPARATOR}{key}" if path else str(key)
