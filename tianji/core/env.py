"""What an environment is to an actor: E copies stepped at once, and honest episode boundaries."""

from __future__ import annotations

import enum
from abc import ABCMeta, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tianji.core.schema import Arrays, Field

BoolArray = npt.NDArray[np.bool_]


class Rendering(enum.Enum):
    """How the first environment is shown; the values are gymnasium's render modes."""

    NONE = None
    WINDOW = "human"
    PICTURES = "rgb_array"


@dataclass(frozen=True)
class EnvSpec:
    """The facts about an environment that shapes, policies and checks are derived from."""

    observation: Field  # one environment's observation, without the axis E
    action: Field  # one environment's action, without the axis E
    n_actions: int | None  # size of a discrete action space; None if actions are vectors of numbers
    n_envs: int = 1  # E
    action_low: tuple[float, ...] | None = None  # bounds of a continuous action, flattened
    action_high: tuple[float, ...] | None = None
    reward_threshold: float | None = None  # mean return at which the task counts as solved
    max_episode_steps: int | None = None
    same_step: bool = False  # the library resets within the step that ended an episode (see Step)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of E environments gave. Row e of every array belongs to environment e.

    Normally, after the end of an episode `obs[e]` is the episode's last observation, and the next
    step of that environment only resets it: that row is not `valid` and is never counted or learned
    from. So the observations of an environment follow each other in time, every true successor
    among them, and nothing is stored twice. Only a vector environment that resets within the same
    step (`spec.same_step`) cannot do so: its `obs[e]` is already the next episode's first one and
    the last one stands in `final_obs[e]`.
    """

    obs: npt.NDArray[Any]  # [E, ...] to act on next
    reward: npt.NDArray[np.float32]  # [E]
    terminated: BoolArray  # [E] the task ended: nothing to bootstrap from
    truncated: BoolArray  # [E] cut off: the value of the last observation still counts
    valid: BoolArray  # [E] False where this step was only a reset
    final_obs: npt.NDArray[Any] | None = None  # [E, ...] with `same_step` only

    def write(self, rows: Arrays, t: int) -> None:
        """Copies the step into row `t` of a trajectory, and what follows it into row `t + 1`."""
        rows["reward"][t] = self.reward
        rows["terminated"][t] = self.terminated
        rows["truncated"][t] = self.truncated
        rows["valid"][t] = self.valid
        rows["obs"][t + 1] = self.obs
        if self.final_obs is not None:
            rows["final_obs"][t] = self.final_obs


class Env(Protocol):
    """E environments behind one interface.

    Optionally it has `state` and `restore` as well (see `core/state.py`): with them a resumed run
    goes on in the middle of its episodes, bit for bit in the local engine. Without them, or where
    `state` answers None, the episodes in progress begin anew.
    """

    spec: EnvSpec

    def reset(self, seed: int | None = None) -> npt.NDArray[Any]:
        """Starts every environment anew and returns the observations, [E, ...]."""

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per environment, [E, ...]."""

    def close(self) -> None:
        """Gives back windows, files and memory."""


class BaseEnv(metaclass=ABCMeta):
    """The paper's template (Figure 8) for an environment of one's own: one file, six methods.

    Set `observation_space` and `action_space` (gymnasium spaces) in `init`, which receives the keys
    of the config's `environment` section. Name the class in the config:
    `environment = dict(type="my_env:MyEnv")`.

    Optional are `state() -> State`, everything that the next steps depend on as arrays, numbers,
    strings, lists and dicts, the random stream included, and `restore(state)`, its inverse, which
    must not call `reset`. With both, a run that is resumed goes on within the same episode.
    """

    observation_space: Any
    action_space: Any

    @abstractmethod
    def init(self, *args: Any, **kwargs: Any) -> None:
        """Makes the environment; the keyword arguments come from the config."""

    @abstractmethod
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Returns (observation, reward, terminated, truncated, info); truncated may be left out."""

    @abstractmethod
    def render(self) -> Any:
        """Shows the environment, or returns a picture of it."""

    @abstractmethod
    def reset(self) -> Any:
        """Starts an episode and returns its first observation (or observation and info)."""

    @abstractmethod
    def close(self) -> None:
        """Gives back what `init` took."""

    def seed(self, seed: int) -> None:
        """Makes the following episodes reproducible; optional, as in the paper."""
        raise NotImplementedError
