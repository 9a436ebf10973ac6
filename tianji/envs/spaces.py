"""What gymnasium spaces mean here, and whether what an environment hands over fits them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.mishaps import NotFinite
from tianji.core.schema import Arrays, Field

FLOAT32_MAX = float(np.finfo(np.float32).max)


def describe(
    name: str,
    observation_space: Any,
    action_space: Any,
    n_envs: int,
    *,
    reward_threshold: float | None = None,
    max_episode_steps: int | None = None,
    same_step: bool = False,
) -> EnvSpec:
    """The `EnvSpec` of an environment with these spaces.

    Observations: a `Box` of any shape, as uint8 if it is that and as float32 otherwise; `Discrete`
    and `MultiDiscrete` as float32 one-hot vectors, so that an MLP can read them; `MultiBinary` as
    float32. The parts of a `Dict` or `Tuple` are fields of their own. Actions: `Discrete`,
    `MultiDiscrete` and `MultiBinary` count from 0 as int64 (the adapter adds the space's `start`);
    a `Box` of floats is float32.
    """
    box = isinstance(action_space, spaces.Box)
    return EnvSpec(
        observations=tuple(leaf.field for leaf in leaves_of(name, observation_space)),
        action=action_field(name, action_space),
        choices=None if box else choices_of(action_space),
        n_envs=n_envs,
        action_low=tuple(float(x) for x in action_space.low.ravel()) if box else None,
        action_high=tuple(float(x) for x in action_space.high.ravel()) if box else None,
        reward_threshold=reward_threshold,
        max_episode_steps=max_episode_steps,
        same_step=same_step,
    )


@dataclass(frozen=True)
class Leaf:
    """One array of an observation: the way to it through Dicts and Tuples, and its space."""

    path: tuple[Any, ...]  # keys and positions, outermost first
    space: Any
    field: Field


def leaves_of(name: str, space: Any) -> list[Leaf]:
    """All arrays of an observation, in the space's order."""
    leaves = list(_leaves(name, space, (), "obs"))
    called = [leaf.field.name for leaf in leaves]
    if not leaves:
        raise TianJiError(f"{name}: observation space {space!r} has nothing in it: show something")
    if twice := next((each for each in called if called.count(each) > 1), None):
        raise TianJiError(
            f"{name}: two parts of observation space {space!r:.120} are both called {twice!r}: "
            "rename one of their keys"
        )
    return leaves


def _leaves(name: str, space: Any, path: tuple[Any, ...], called: str) -> Iterator[Leaf]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        by_key = space.spaces if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))
        for key, part in by_key.items():
            yield from _leaves(name, part, (*path, key), f"{called}.{key}")
        return
    yield Leaf(path, space, _observation_field(name, space, called))


def _observation_field(name: str, space: Any, called: str) -> Field:
    """The layout of one array of an observation."""
    if isinstance(space, spaces.Box):
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return Field(called, dtype, tuple(int(size) for size in space.shape))
    if isinstance(space, spaces.Discrete):
        return Field(called, "float32", (int(space.n),))
    if isinstance(space, spaces.MultiDiscrete):
        return Field(called, "float32", (int(space.nvec.sum()),))
    if isinstance(space, spaces.MultiBinary):
        return Field(called, "float32", tuple(int(size) for size in space.shape))
    raise TianJiError(
        f"{name}: observation space {space!r:.120} ({called}) is not supported: want Box, "
        "Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these\n"
        "Wrap the environment in a class of your own that turns its observations into arrays."
    )


def action_field(name: str, space: Any) -> Field:
    """The layout of one action."""
    if isinstance(space, spaces.Discrete):
        return Field("action", "int64")
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return Field("action", "int64", tuple(int(size) for size in space.shape))
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f":
        return Field("action", "float32", tuple(int(size) for size in space.shape))
    raise TianJiError(
        f"{name}: action space {space!r:.120} is not supported: want Discrete, MultiDiscrete, "
        "MultiBinary or a float Box\n"
        "Wrap the environment in a class of your own that takes such actions."
    )


def choices_of(space: Any) -> tuple[int, ...]:
    """Options of each choice that an action of a discrete space makes."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.ravel())
    return (2,) * int(np.prod(space.shape))


class Rows(Protocol):
    """One observed array of E environments, filled row by row or at once."""

    array: npt.NDArray[Any]  # [E, ...]

    def put(self, e: int, obs: Any) -> None:
        """Checks one environment's observation and copies it into row `e`."""

    def put_all(self, obs: Any) -> None:
        """Checks the observations of all environments and copies them."""

    def broken(self) -> int | None:
        """The first environment with NaN or Inf in its row, if there is one."""


class Observed:
    """Everything that E environments show: one `Rows` for each array of an observation."""

    def __init__(self, name: str, space: Any, n_envs: int) -> None:
        self._name = name
        leaves = leaves_of(name, space)
        self._parts = [(leaf, _rows_for(name, leaf, n_envs)) for leaf in leaves]
        self._rows = [(leaf.field.name, rows) for leaf, rows in self._parts]
        self.arrays: Arrays = {field: rows.array for field, rows in self._rows}
        only = self._parts[0][1] if not leaves[0].path else None  # the usual case: one array
        self.put: Callable[[int, Any], None] = only.put if only else self._put_parts
        self.put_all: Callable[[Any], None] = only.put_all if only else self._put_all_parts

    def _put_parts(self, e: int, obs: Any) -> None:
        """Checks one environment's observation and copies it into row `e`."""
        for leaf, rows in self._parts:
            rows.put(e, part_of(self._name, obs, leaf))

    def _put_all_parts(self, obs: Any) -> None:
        """Checks the observations of all environments and copies them."""
        for leaf, rows in self._parts:
            rows.put_all(part_of(self._name, obs, leaf))

    def put_one_of(self, e: int, obs: Any) -> None:
        """Copies row `e` of what all environments show."""
        for leaf, rows in self._parts:
            rows.put(e, part_of(self._name, obs, leaf)[e])

    def copy_rows(self, where: npt.NDArray[np.intp], other: Observed) -> None:
        """Takes these rows from another."""
        for field, array in self.arrays.items():
            array[where] = other.arrays[field][where]

    def broken(self) -> tuple[int, str] | None:
        """The first environment with NaN or Inf, and the field that has it."""
        for field, rows in self._rows:
            if (e := rows.broken()) is not None:
                return e, field
        return None


def part_of(name: str, obs: Any, leaf: Leaf) -> Any:
    """The part of an observation that one of its arrays is made of."""
    for key in leaf.path:
        try:
            obs = obs[key]
        except (KeyError, IndexError, TypeError):
            got = sorted(obs) if isinstance(obs, dict) else type(obs).__name__
            raise TianJiError(
                f"{name}: field {leaf.field.name!r}: the observation has no {key!r}, got {got}"
            ) from None
    return obs


def _rows_for(name: str, leaf: Leaf, n_envs: int) -> Rows:
    """The rows that take observations of one space."""
    if isinstance(leaf.space, spaces.Discrete | spaces.MultiDiscrete):
        return OneHotRows(name, leaf, n_envs)
    return BoxRows(name, leaf.field, n_envs)


class BoxRows:
    """Rows of arrays: a wrong shape is refused, float64 and integers become float32."""

    def __init__(self, name: str, field: Field, n_envs: int) -> None:
        self.array: npt.NDArray[Any] = np.zeros((n_envs, *field.shape), field.dtype)
        self._name, self._shape = name, field.shape
        self._one, self._all = field, Field(field.name, field.dtype, self.array.shape)
        self._accepted = self.array.dtype  # the dtype that came last and may be cast
        self._flat = self.array.reshape(-1) if self.array.dtype.kind == "f" else None

    def put(self, e: int, obs: Any) -> None:
        """Checks one environment's observation and copies it into row `e`."""
        if (
            obs.__class__ is not np.ndarray
            or obs.shape != self._shape
            or obs.dtype is not self._accepted
        ):
            obs = self._accept(obs, self._one, f"environment {e}")
        self.array[e] = obs

    def put_all(self, obs: Any) -> None:
        """Checks the observations of all environments and copies them."""
        if (
            obs.__class__ is not np.ndarray
            or obs.shape != self._all.shape
            or obs.dtype is not self._accepted
        ):
            obs = self._accept(obs, self._all, "all environments")
        self.array[...] = obs

    def broken(self) -> int | None:
        """The first environment with NaN or Inf in its row, if there is one."""
        return None if self._flat is None else first_broken(self._flat, len(self.array))

    def _accept(self, obs: Any, want: Field, who: str) -> npt.NDArray[Any]:
        try:
            array = np.asarray(obs)
        except ValueError:  # rows of unequal length
            array = np.asarray(None)
        if array.shape != want.shape or not np.can_cast(array.dtype, want.dtype, "same_kind"):
            got = f"{array.dtype.name}{list(array.shape)}"
            got = f"{obs!r:.80}" if array.dtype == object else got
            raise TianJiError(f"{self._name}: {who}: field {want.name!r}: want {want}, got {got}")
        self._accepted = array.dtype
        return array


class OneHotRows:
    """Rows for discrete observations: for each choice a 1 in its column, 0 elsewhere."""

    def __init__(self, name: str, leaf: Leaf, n_envs: int) -> None:
        self.array: npt.NDArray[Any] = np.zeros((n_envs, *leaf.field.shape), np.float32)
        self._name, self._space, self._field = name, leaf.space, leaf.field.name
        self._n = np.asarray(choices_of(leaf.space))
        self._start = np.asarray(leaf.space.start).ravel()
        self._offset = np.cumsum(self._n) - self._n
        self._shape = leaf.space.shape

    def put(self, e: int, obs: Any) -> None:
        """Checks one environment's observation and copies it into row `e`."""
        self._mark(np.asarray(obs)[None], slice(e, e + 1), f"environment {e}")

    def put_all(self, obs: Any) -> None:
        """Checks the observations of all environments and copies them."""
        self._mark(np.asarray(obs), slice(None), "all environments")

    def _mark(self, obs: npt.NDArray[Any], where: slice, who: str) -> None:
        rows = self.array[where]
        fits = obs.shape == (len(rows), *self._shape) and obs.dtype.kind in "iu"
        column = obs.reshape(len(rows), -1) - self._start if fits else self._n[None]
        if not ((column >= 0) & (column < self._n)).all():
            got = f"{obs[0] if len(obs) == 1 else obs!r:.80}"
            raise TianJiError(
                f"{self._name}: {who}: field {self._field!r}: want {self._space}, got {got}"
            )
        rows[...] = 0
        rows[np.arange(len(rows))[:, None], column + self._offset] = 1

    def broken(self) -> int | None:
        """None: integers are finite."""
        return None


class Actions:
    """Refuses actions outside the space, and adds the `start` of a discrete one."""

    def __init__(self, name: str, space: Any, spec: EnvSpec) -> None:
        self._name, self._space = name, space
        self._discrete = spec.choices is not None
        self._single = isinstance(space, spaces.Discrete)
        start = np.asarray(getattr(space, "start", 0))
        self._start = start if start.any() else None
        self._want = Field("action", spec.action.dtype, (spec.n_envs, *spec.action.shape))
        self._dtype = np.dtype(spec.action.dtype)
        limit = np.array(spec.choices or 0, np.uint64)
        if self._discrete:
            limit = limit[0] if self._single else limit.reshape(spec.action.shape)
        self._limit = limit
        self._n = spec.n_actions or 0

    def each(self, action: npt.NDArray[Any]) -> Any:
        """What single environments are to be given: Python integers, or rows of an array."""
        if not self._single:
            return self.all(action)
        if action.shape != self._want.shape or action.dtype is not self._dtype:
            action = accepted(self._name, action, self._want)
        actions: list[int] = action.tolist()
        if min(actions) < 0 or max(actions) >= self._n:
            raise self._outside(action)
        start = self._start
        return actions if start is None else [each + int(start) for each in actions]

    def all(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What a vector environment is to be given: arrays that it may change."""
        if action.shape != self._want.shape or action.dtype is not self._dtype:
            action = accepted(self._name, action, self._want)
        action = action.copy()  # what the policy chose goes into the trajectory
        if not self._discrete:
            return action
        inside = action.view(np.uint64) < self._limit  # read so, a negative number is a huge one
        if 0 in inside.tobytes():
            raise self._outside(action)
        return action if self._start is None else action + self._start

    def _outside(self, action: npt.NDArray[Any]) -> TianJiError:
        wrong = (action < 0) | (action >= self._limit.astype(np.int64))
        e = int(np.argmax(wrong.reshape(len(action), -1).any(1)))
        count = f"0 to {self._n - 1}" if self._single else "counts from 0 in every place"
        return TianJiError(
            f"{self._name}: action {action[e]} of environment {e} is outside {self._space}: "
            f"a policy returns {count}"
        )


def accepted(name: str, action: npt.NDArray[Any], want: Field) -> npt.NDArray[Any]:
    """An action in the dtype that is wanted; raises where its shape or kind is another."""
    action = np.asarray(action)
    fits = np.can_cast(action.dtype, want.dtype, "same_kind")
    if action.shape != want.shape or not fits:
        got = f"{action.dtype.name}{list(action.shape)}"
        raise TianJiError(f"{name}: field 'action': want {want}, got {got}")
    return action.astype(want.dtype, copy=False)


def check_finite(name: str, arrays: Arrays, length: npt.NDArray[np.int64]) -> None:
    """Raises where an array of floats, [E, ...], has NaN or Inf, or would have it as float32."""
    for field, array in arrays.items():
        if array.dtype.kind != "f":
            continue
        if array.dtype.itemsize > 4:
            with np.errstate(over="ignore"):
                array = array.astype(np.float32)
        if (e := first_broken(array.reshape(-1), len(array))) is not None:
            raise not_finite(name, e, field, int(length[e]))


def not_finite(name: str, e: int, field: str, step: int) -> NotFinite:
    """The error for NaN or Inf, with the place where it came up."""
    when = f"at step {step} of its episode" if step else "on reset"
    return NotFinite(
        f"{name}: environment {e}: field {field!r} has NaN or Inf {when}\n"
        f"A run that learned from it would be lost: mend the environment or end the episode before."
    )


def first_broken(flat: npt.NDArray[Any], n_rows: int) -> int | None:
    """The first of `n_rows` equal parts of `flat` that has NaN or Inf in it, if there is one.

    Looking for a zero byte costs a third of `isfinite(flat).all()`, and this is done at every step.
    """
    finite = np.isfinite(flat)
    if 0 not in finite.tobytes():
        return None
    return int(finite.reshape(n_rows, -1).all(axis=1).argmin())


def number(name: str, e: int, reward: Any) -> float:
    """A reward that is no plain float, as one."""
    if isinstance(reward, int | float | np.number | np.bool_):
        return float(reward)
    if isinstance(reward, np.ndarray) and reward.size == 1 and reward.dtype.kind in "biuf":
        return float(reward.item())
    raise TianJiError(
        f"{name}: environment {e}: field 'reward': want one number, got {reward!r:.80}"
    )
