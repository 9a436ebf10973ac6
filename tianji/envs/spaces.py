"""What gymnasium spaces mean here, and whether what an environment hands over fits them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tianji.core.env import EnvSpec
from tianji.core.errors import TianJiError
from tianji.core.schema import Field

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

    Observations: a `Box` of any shape, as uint8 if it is that and as float32 otherwise; a
    `Discrete` as a float32 one-hot vector, so that an MLP can read it. Actions: a `Discrete` of n,
    always 0..n-1 as int64 (the adapter adds the space's `start`); a `Box` of floats as float32.
    """
    box = isinstance(action_space, spaces.Box)
    return EnvSpec(
        observation=observation_field(name, observation_space),
        action=action_field(name, action_space),
        n_actions=None if box else int(action_space.n),
        n_envs=n_envs,
        action_low=tuple(float(x) for x in action_space.low.ravel()) if box else None,
        action_high=tuple(float(x) for x in action_space.high.ravel()) if box else None,
        reward_threshold=reward_threshold,
        max_episode_steps=max_episode_steps,
        same_step=same_step,
    )


def observation_field(name: str, space: Any) -> Field:
    """The layout of one observation."""
    if isinstance(space, spaces.Box):
        dtype = "uint8" if space.dtype == np.uint8 else "float32"
        return Field("obs", dtype, tuple(int(size) for size in space.shape))
    if isinstance(space, spaces.Discrete):
        return Field("obs", "float32", (int(space.n),))
    raise TianJiError(
        f"{name}: observation space {space!r:.120} is not supported: want a Box or a Discrete\n"
        f"Wrap the environment in a class of your own that turns its observations into one array."
    )


def action_field(name: str, space: Any) -> Field:
    """The layout of one action."""
    if isinstance(space, spaces.Discrete):
        return Field("action", "int64")
    if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f":
        return Field("action", "float32", tuple(int(size) for size in space.shape))
    raise TianJiError(
        f"{name}: action space {space!r:.120} is not supported: want a Discrete or a float Box\n"
        f"Wrap the environment in a class of your own that takes such actions."
    )


class Rows(Protocol):
    """The observations of E environments as one array that is filled row by row or at once."""

    array: npt.NDArray[Any]  # [E, ...]

    def put(self, e: int, obs: Any) -> None:
        """Checks one environment's observation and copies it into row `e`."""

    def put_all(self, obs: Any) -> None:
        """Checks the observations of all environments and copies them."""

    def broken(self) -> int | None:
        """The first environment with NaN or Inf in its row, if there is one."""


def rows_for(name: str, space: Any, n_envs: int) -> Rows:
    """The rows that take observations of `space`."""
    field = observation_field(name, space)
    if isinstance(space, spaces.Discrete):
        return OneHotRows(name, space, n_envs)
    return BoxRows(name, field, n_envs)


class BoxRows:
    """Rows of arrays: a wrong shape is refused, float64 and integers become float32."""

    def __init__(self, name: str, field: Field, n_envs: int) -> None:
        self.array: npt.NDArray[Any] = np.zeros((n_envs, *field.shape), field.dtype)
        self._name, self._shape = name, field.shape
        self._one, self._all = field, Field("obs", field.dtype, self.array.shape)
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
            raise TianJiError(f"{self._name}: {who}: field 'obs': want {want}, got {got}")
        self._accepted = array.dtype
        return array


class OneHotRows:
    """Rows for a discrete observation space: 1 in the column of the observation, 0 elsewhere."""

    def __init__(self, name: str, space: spaces.Discrete, n_envs: int) -> None:
        self.array: npt.NDArray[Any] = np.zeros((n_envs, int(space.n)), np.float32)
        self._name, self._space = name, space
        self._start, self._n = int(space.start), int(space.n)

    def put(self, e: int, obs: Any) -> None:
        """Checks one environment's observation and copies it into row `e`."""
        column = int(obs) - self._start if _is_integer(obs) else -1
        if not 0 <= column < self._n:
            raise TianJiError(
                f"{self._name}: environment {e}: field 'obs': want {self._space}, got {obs!r:.80}"
            )
        self.array[e] = 0
        self.array[e, column] = 1

    def put_all(self, obs: Any) -> None:
        """Checks the observations of all environments and copies them."""
        if np.shape(obs) != (len(self.array),):
            want = f"integers of {self._space} in shape [{len(self.array)}]"
            raise TianJiError(
                f"{self._name}: field 'obs': want {want}, got shape {list(np.shape(obs))}"
            )
        for e, one in enumerate(obs):
            self.put(e, one)

    def broken(self) -> int | None:
        """None: integers are finite."""
        return None


class Actions:
    """Refuses actions outside the space, and adds the `start` of a discrete one."""

    def __init__(self, name: str, space: Any, spec: EnvSpec) -> None:
        self._name, self._space = name, space
        self._n, self._start = spec.n_actions, int(getattr(space, "start", 0))
        self._want = Field("action", spec.action.dtype, (spec.n_envs, *spec.action.shape))
        self._dtype = np.dtype(spec.action.dtype)
        self._limit = np.array(spec.n_actions or 0, np.uint64)

    def each(self, action: npt.NDArray[Any]) -> Any:
        """What single environments are to be given: Python integers, or rows of an array."""
        if action.shape != self._want.shape or action.dtype is not self._dtype:
            action = self._accept(action)
        if self._n is None:
            return action
        actions: list[int] = action.tolist()
        if min(actions) < 0 or max(actions) >= self._n:
            raise self._outside(action)
        return [each + self._start for each in actions] if self._start else actions

    def all(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What a vector environment is to be given."""
        if action.shape != self._want.shape or action.dtype is not self._dtype:
            action = self._accept(action)
        if self._n is None:
            return action
        inside = action.view(np.uint64) < self._limit  # read so, a negative number is a huge one
        if 0 in inside.tobytes():
            raise self._outside(action)
        return action + self._start if self._start else action

    def _accept(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        action = np.asarray(action)
        fits = np.can_cast(action.dtype, self._dtype, "same_kind")
        if action.shape != self._want.shape or not fits:
            got = f"{action.dtype.name}{list(action.shape)}"
            raise TianJiError(f"{self._name}: field 'action': want {self._want}, got {got}")
        return action.astype(self._dtype)

    def _outside(self, action: npt.NDArray[Any]) -> TianJiError:
        n = self._n or 0
        e = int(np.argmax((action < 0) | (action >= n)))
        return TianJiError(
            f"{self._name}: action {action[e]} of environment {e} is outside {self._space}: "
            f"a policy returns 0 to {n - 1}"
        )


def not_finite(name: str, e: int, field: str, step: int) -> TianJiError:
    """The error for NaN or Inf, with the place where it came up."""
    when = f"at step {step} of its episode" if step else "on reset"
    return TianJiError(
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


def _is_integer(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.shape == () and value.dtype.kind in "iu"
    return isinstance(value, int | np.integer)
