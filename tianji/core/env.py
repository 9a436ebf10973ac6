"""What an environment is to an actor: E copies stepped at once, and honest episode boundaries."""

from __future__ import annotations

import enum
import math
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tianji.core.errors import TianJiError
from tianji.core.frames import STACKED, stacked_shape
from tianji.core.mishaps import Mishaps
from tianji.core.schema import Arrays, Field

BoolArray = npt.NDArray[np.bool_]


class Rendering(enum.Enum):
    """How the first environment is shown; the values are gymnasium's render modes."""

    NONE = None
    WINDOW = "human"
    PICTURES = "rgb_array"


@dataclass(frozen=True)
class EnvSpec:
    """The facts about an environment that shapes, policies and checks are derived from.

    `observations` names all that is seen before every action. What networks read is `obs`, or
    `obs.KEY` for each part of a Dict or Tuple. Beside it an environment may show `mask` (which
    actions are possible), `state` (global, for central critics) and `alive` (which agents still
    take part). With agents, fields have the shape [A, ...]; `state` has not.

    Agents that see less or can do less than others are padded to the largest: with zeros, and with
    actions that their `mask` forbids, or that are ignored where an action is a vector of numbers.
    """

    observations: tuple[Field, ...]  # of one environment, without the axis E
    action: Field  # of one environment, without the axis E
    choices: tuple[int, ...] | None  # options of each discrete choice; None: vectors of numbers
    n_envs: int = 1  # E
    action_low: tuple[float, ...] | None = None  # bounds of a continuous action, flattened
    action_high: tuple[float, ...] | None = None
    reward_threshold: float | None = None  # mean return at which the task counts as solved
    max_episode_steps: int | None = None
    same_step: bool = False  # the library resets within the step that ended an episode (see Step)
    agents: tuple[str, ...] = ()  # names, in the order of the axis A; none: no such axis
    reward_per_agent: bool = False  # rewards are [E, A]
    rewards_of_teams: bool = False  # and the same for all agents of a team
    teams: tuple[int, ...] = ()  # team of each agent, counted from 0; all 0: one team
    own_inputs: tuple[int, ...] = ()  # numbers that each agent sees, where some are padded
    own_actions: tuple[int, ...] = ()  # options, or numbers, of each agent, where some are padded
    stack: int = 1  # newest frames of `obs` that a policy sees at once; it stacks them itself

    def __post_init__(self) -> None:
        """Refuses a stack of what is not one array."""
        if self.stack < 1:
            raise TianJiError(f"EnvSpec.stack: want at least 1, got {self.stack}")
        names = [field.name for field in self.inputs]
        if self.stack > 1 and (names != [STACKED] or not self.inputs[0].shape):
            raise TianJiError(
                f"EnvSpec.stack: {self.stack} frames can be stacked of one array called "
                f"{STACKED!r}, and networks read {names}: use stack=1"
            )

    @property
    def n_actions(self) -> int | None:
        """Options of the one discrete choice; None where an action is a vector of any kind."""
        shape = self.action.shape[1:] if self.agents else self.action.shape
        return self.choices[0] if self.choices is not None and shape == () else None

    @property
    def masked(self) -> bool:
        """Whether its one agent is told which actions are possible."""
        return not self.agents and any(field.name == "mask" for field in self.observations)

    @property
    def n_teams(self) -> int:
        """Teams that agents belong to; 0 without agents."""
        return max(self.teams, default=-1) + 1

    @property
    def ends_alone(self) -> bool:
        """Whether an agent gains nothing more once it does not take part: nothing of a team's."""
        return self.reward_per_agent and not self.rewards_of_teams

    @property
    def reward(self) -> Field:
        """The layout of one environment's reward."""
        return Field("reward", "float32", (len(self.agents),) if self.reward_per_agent else ())

    @cached_property
    def inputs(self) -> tuple[Field, ...]:
        """The observed fields that networks read."""
        return tuple(f for f in self.observations if f.name == "obs" or f.name.startswith("obs."))

    @property
    def n_inputs(self) -> int:
        """Numbers that a network reads, of one environment."""
        return sum(math.prod(field.shape) for field in self.inputs) * self.stack

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of what a network reads, of one environment: with a stack, k frames."""
        if len(self.inputs) != 1:
            return (self.n_inputs,)
        return stacked_shape(self.stack, self.inputs[0].shape)

    def gather(self, arrays: Arrays, prefix: str = "") -> npt.NDArray[Any]:
        """What networks read: `obs` as it is, or all of `obs.*` flattened side by side.

        Frames are not stacked here: see `models/frame_stack.py`.

        Arrays may have any leading axes. `prefix` chooses others, as in `next_obs`.
        """
        fields = self.inputs
        first = arrays[prefix + fields[0].name]
        if len(fields) == 1:
            return first
        lead = first.shape[: first.ndim - len(fields[0].shape)]
        parts = [arrays[prefix + field.name].reshape(*lead, -1) for field in fields]
        return np.concatenate(parts, -1, dtype=np.float32)

    def scatter(self, gathered: npt.NDArray[Any]) -> Arrays:
        """The fields that `gather` put side by side."""
        fields = self.inputs
        if len(fields) == 1:
            return {fields[0].name: gathered}
        ends = np.cumsum([math.prod(field.shape) for field in fields])
        parts = np.split(gathered, ends[:-1], -1)
        return {
            field.name: part.reshape(*gathered.shape[:-1], *field.shape).astype(field.dtype)
            for field, part in zip(fields, parts, strict=True)
        }

    def to_json(self) -> dict[str, Any]:
        """A plain description that `from_json` turns back."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> EnvSpec:
        """The spec that `to_json` described."""

        def field(of: Mapping[str, Any]) -> Field:
            return Field(of["name"], of["dtype"], tuple(of["shape"]))

        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list | tuple) else v for k, v in plain.items()
        }
        values["observations"] = tuple(field(each) for each in plain["observations"])
        values["action"] = field(plain["action"])
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of E environments gave. Row e of every array belongs to environment e.

    Normally, after the end of an episode `obs[e]` is the episode's last observation, and the next
    step of that environment only resets it: that row is not `valid` and is never counted or learned
    from. So the observations of an environment follow each other in time, every true successor
    among them, and nothing is stored twice. Only a vector environment that resets within the same
    step (`spec.same_step`) cannot do so: its `obs[e]` is already the next episode's first one and
    the last one stands in `final[e]`.

    What is learned from may differ from the game: rewards may be clipped, and an episode may end
    with a life. Then `score` and `over` tell the game's own points and end; they count in every
    row, also where `valid` is False (a row that only presses FIRE after a lost life may score).

    An episode that a broken game could not finish is lost: its last row only resets, like the one
    after an end, but no row before it has an end. What was seen last counts as cut off there.
    """

    obs: Arrays  # [E, ...] for each of `spec.observations`: to act on next
    reward: npt.NDArray[np.float32]  # [E], or [E, A]
    terminated: BoolArray  # [E] the task ended: nothing to bootstrap from
    truncated: BoolArray  # [E] cut off: the value of the last observation still counts
    valid: BoolArray  # [E] False where this step was only a reset
    first: BoolArray  # [E] `obs` is the first observation of an episode
    final: Arrays | None = None  # [E, ...] last observations, with `same_step` only
    score: npt.NDArray[np.float32] | None = None  # [E] points of the game; None: the rewards
    over: BoolArray | None = None  # [E] the game ended; None: with the episode
    won: BoolArray | None = None  # [E] it ended in this step and was won; None: nobody can win

    def write(self, rows: Arrays, t: int) -> None:
        """Copies the step into row `t` of a trajectory, and what follows it into row `t + 1`."""
        rows["reward"][t] = self.reward
        rows["terminated"][t] = self.terminated
        rows["truncated"][t] = self.truncated
        rows["valid"][t] = self.valid
        for name, array in self.obs.items():
            rows[name][t + 1] = array
        if self.final is not None:
            for name, array in self.final.items():
                rows[f"final_{name}"][t] = array


def lost_step(spec: EnvSpec, obs: Arrays) -> Step:
    """The row that only begins `obs` in every environment: whatever they were in was lost."""
    n, none = spec.n_envs, np.zeros(spec.n_envs, np.bool_)
    reward = np.zeros((n, *spec.reward.shape), np.float32)
    return Step(obs, reward, none, none, valid=none, first=~none)


def points_of(step: Step) -> npt.NDArray[np.float32]:
    """What each environment gained in this step, [E]: the game's points, or all agents' rewards."""
    if step.score is not None:
        return step.score
    return step.reward if step.reward.ndim == 1 else step.reward.sum(1)


def over_of(step: Step) -> BoolArray:
    """Where a game has ended, [E]; a learned episode may end earlier, with a life."""
    return step.terminated | step.truncated if step.over is None else step.over


def ended_in(step: Step) -> BoolArray:
    """Where anything ended, [E]: an episode or a game."""
    ended = step.terminated | step.truncated
    return ended if step.over is None else ended | step.over


def lost_in(step: Step, ended: BoolArray) -> BoolArray:
    """Where a broken game lost its episode, [E]; `ended` is `ended_in` of the step before."""
    return step.first & ~step.valid & ~ended


class Env(Protocol):
    """E environments behind one interface.

    One of your own is named in the config, `environment = dict(type="my_env:MyEnv")`, and made with
    E and the keys of that section: `MyEnv(n_envs, **keys)`. See docs/own-environment.md.

    Optionally it has `state` and `restore` as well (see `core/state.py`): with them a resumed run
    goes on in the middle of its episodes, bit for bit in the local engine. Without them, or where
    `state` answers None, the episodes in progress begin anew.
    """

    spec: EnvSpec

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew and returns what is observed, [E, ...] by name."""

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per environment, [E, ...]."""

    def close(self) -> None:
        """Gives back windows, files and memory."""


@runtime_checkable
class SplitEnv(Env, Protocol):
    """Environments whose step has two halves, so that others are acted on while these move.

    `step(action)` is `begin(action)` and then `finish()`. Between the two nothing else may be asked
    of them, but for `reset`, which gives the step up, and `close`.
    """

    def begin(self, action: npt.NDArray[Any]) -> None:
        """Sends one action per environment and returns at once; the array may be used again."""

    def finish(self) -> Step:
        """What came of it, as soon as every environment has moved."""


@runtime_checkable
class MendingEnv(Env, Protocol):
    """Environments that can make each of them anew by itself, where it breaks."""

    def mend(self, mishaps: Mishaps) -> None:
        """From now on an episode that breaks is lost, and counted, instead of raised."""


class Terms(Protocol):
    """What an environment's own spaces call an observation and an action."""

    def observed(self, obs: Any) -> tuple[Arrays, bool] | None:
        """The arrays [n, ...] of one observation, or of n, and whether it was one; None: as is."""

    def action(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the space calls actions that count from 0."""


@runtime_checkable
class SpacesEnv(Env, Protocol):
    """Environments of a library with spaces, in whose terms a trained policy can be asked."""

    def space_terms(self) -> Terms:
        """What its single environments call an observation and an action."""


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
