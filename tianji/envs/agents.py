"""Environments of several agents: teams, padding, masks, and E games stepped one after the other.

What every one of them shows, for E environments of A agents:

    obs    [E, A, ...]  what each agent sees; zeros for those that do not take part (any more)
    mask   [E, A, n]    which of n options are possible, with discrete actions: one at the least
    state  [E, S]       what there is to know about the game, or all that the agents see
    alive  [E, A]       who takes part; after an episode's end: whose future was only cut off
"""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from tianji.core.env import EnvSpec, Rendering, Step
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean
from tianji.core.mishaps import Mishaps
from tianji.core.schema import Arrays, Field
from tianji.envs.shown import Picture, fps_of, picture_of
from tianji.envs.spaces import accepted, check_finite

Teams = Mapping[str, Sequence[str]] | Callable[[Sequence[str]], Mapping[str, Sequence[str]]]
"""The names of each team's agents, or how to tell them from the names of all."""

Sharing = Literal["agent", "team"]
"""Whose reward an agent gets: its own, or its team's sum."""

MOST_LOST = 10  # episodes in a row that a broken game may lose


@dataclass(frozen=True)
class Wanted:
    """What is to be made, whatever the library."""

    n_envs: int
    folder: str  # where modules of one's own are looked for first
    max_step: int | None  # truncates episodes; it never makes them longer
    rendering: Rendering = Rendering.NONE

    def shown(self) -> list[Rendering]:
        """How each of the environments is shown: only the first, if any."""
        return [self.rendering] + [Rendering.NONE] * (self.n_envs - 1)


@dataclass(frozen=True)
class GameOutcome:
    """What one step of one game gave besides what is seen."""

    reward: Any  # one number, or one for each agent
    terminated: bool
    truncated: bool  # also by the game's own time limit
    won: bool = False
    lost: bool = False  # the game broke: the episode does not count


class Game(Protocol):
    """One environment of several agents, without the axis E.

    `rows` are the arrays of `spec.observations`, to be filled: `mask` is False and all else 0.
    """

    spec: EnvSpec

    def reset(self, rows: Arrays, seed: int | None = None) -> None:
        """Starts an episode."""

    def step(self, action: npt.NDArray[Any], rows: Arrays) -> GameOutcome:
        """Applies one action for each agent, [A] or [A, n]."""

    def render(self) -> Any:
        """A picture, where it was made with a render mode that gives one."""

    def close(self) -> None:
        """Gives back windows, files and memory."""


def library(module: str, name: str, extra: str) -> ModuleType:
    """The module of a package that only some environments need."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise TianJiError(
            f"{name} needs a package that is not installed: {error}\n"
            f"Write: pip install 'tianji[{extra}]'"
        ) from error


def teams_of(name: str, agents: Sequence[str], teams: Teams | None) -> tuple[int, ...]:
    """The team of each agent; `teams` names each team's agents, `*` standing for anything."""
    if teams is None:
        return (0,) * len(agents)
    if callable(teams):
        teams = teams(agents)
    if not isinstance(teams, Mapping):
        example = "teams = dict(hunters=['adversary_*'], prey=['agent_0'])"
        raise TianJiError(f"{name}: teams is {teams!r:.60}: want names of agents, as in {example}")
    found: dict[str, int] = {}
    for number, (team, members) in enumerate(teams.items()):
        for member in [members] if isinstance(members, str) else members:
            meant = fnmatch.filter(agents, member)
            if not meant:
                near = did_you_mean(member, agents) or f": its agents are {', '.join(agents)}"
                raise TianJiError(f"{name}: team {team!r} names {member!r}, no agent{near}")
            for agent in meant:
                if found.setdefault(agent, number) != number:
                    raise TianJiError(f"{name}: agent {agent!r} is in two teams: name it once")
    if missing := [agent for agent in agents if agent not in found]:
        raise TianJiError(f"{name}: no team names agent {missing[0]!r}: put it into one of {teams}")
    return tuple(found[agent] for agent in agents)


def agents_spec(
    agents: Sequence[str],
    obs: Field,
    n_state: int,
    *,
    n_actions: int = 0,
    bounds: tuple[npt.NDArray[Any], npt.NDArray[Any]] | None = None,
    **facts: Any,
) -> EnvSpec:
    """The spec of agents with `n_actions` options each, or within `bounds`, both [A, n].

    `obs` is of one agent. `facts` are further fields of `EnvSpec`.
    """
    n_agents = len(agents)
    seen = Field("obs", obs.dtype, (n_agents, *obs.shape))
    beside = (Field("state", "float32", (n_state,)), Field("alive", "bool", (n_agents,)))
    facts = {"teams": (0,) * n_agents, "agents": tuple(agents), **facts}
    if bounds is not None:
        low, high = bounds
        return EnvSpec(
            (seen, *beside),
            Field("action", "float32", low.shape),
            None,
            action_low=tuple(low.ravel().tolist()),
            action_high=tuple(high.ravel().tolist()),
            **facts,
        )
    mask = Field("mask", "bool", (n_agents, n_actions))
    action = Field("action", "int64", (n_agents,))
    return EnvSpec((seen, mask, *beside), action, (n_actions,), **facts)


def padded(sizes: Sequence[int]) -> tuple[int, ...]:
    """Each agent's own size where they differ, nothing where they are equal."""
    return tuple(sizes) if len(set(sizes)) > 1 else ()


class RewardShares:
    """Turns the agents' own rewards into what they learn from, and into the game's score.

    With several teams the score is what the first one gained: a sum over opponents says nothing.
    """

    def __init__(self, name: str, spec: EnvSpec, sharing: Sharing) -> None:
        if sharing not in ("agent", "team"):
            raise TianJiError(f"{name}: reward {sharing!r} is neither 'agent' nor 'team'")
        teams = np.asarray(spec.teams)
        self._first = teams == 0
        self._several = spec.n_teams > 1
        self._same: npt.NDArray[np.float32] | None = None  # [A, A] who shares with whom
        if sharing == "team":
            self._same = (teams[:, None] == teams).astype(np.float32)
        self.per_agent = sharing == "agent" or self._several
        self.of_teams = sharing == "team" and self._several

    def of(
        self, own: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32] | None]:
        """The rewards, [E, A] or [E], and the score of each environment; None: their sum."""
        score = own[:, self._first].sum(1) if self._several else None
        if self._same is None:
            return own, score
        return (own @ self._same, score) if self._several else (own.sum(1), None)


def spec_of_all(
    game: EnvSpec, n_envs: int, max_step: int | None, shares: RewardShares | None
) -> EnvSpec:
    """The spec of E games, whose episodes are no longer than a game's own or `max_step`."""
    limits = [limit for limit in (max_step, game.max_episode_steps) if limit]
    return replace(
        game,
        n_envs=n_envs,
        reward_per_agent=shares is not None and shares.per_agent,
        rewards_of_teams=shares is not None and shares.of_teams,
        max_episode_steps=min(limits, default=None),
    )


class Choices:
    """Refuses actions that cannot be taken, and masks that leave none."""

    def __init__(self, name: str, spec: EnvSpec) -> None:
        self._name, self._agents = name, spec.agents
        self._want = Field("action", spec.action.dtype, (spec.n_envs, *spec.action.shape))
        self._discrete, self._n = spec.choices is not None, spec.n_actions or 0

    def check(
        self, action: npt.NDArray[Any], mask: npt.NDArray[Any] | None, going: npt.NDArray[Any]
    ) -> npt.NDArray[Any]:
        """The actions in their dtype; those of environments that are not `going` may be any."""
        action = accepted(self._name, action, self._want)
        if mask is None or not self._discrete:
            return action
        inside = (action >= 0) & (action < self._n)
        options = np.where(inside, action, 0)[..., None]
        inside &= np.take_along_axis(mask, options, -1)[..., 0]
        if (wrong := ~inside & going[:, None]).any():
            e, a = np.argwhere(wrong)[0]
            possible = np.flatnonzero(mask[e, a]).tolist()
            raise TianJiError(
                f"{self._name}: action {action[e, a]} of agent {self._agents[a]!r} in environment "
                f"{e} is outside its mask: possible are {possible}\n"
                "A policy must choose among the options that obs['mask'] allows."
            )
        return action

    def check_mask(self, mask: npt.NDArray[Any], going: npt.NDArray[Any]) -> None:
        """Raises where an agent of an episode that goes on has no option left."""
        if (stuck := ~mask.any(-1) & going[:, None]).any():
            e, a = np.argwhere(stuck)[0]
            raise TianJiError(
                f"{self._name}: environment {e}: the mask of agent {self._agents[a]!r} forbids all "
                f"{self._n} actions\nAllow one that does nothing, or let the agent die."
            )


class AgentsLoop:
    """An `Env` over single games; the step after an episode's end only resets.

    `reset` and `step` return the same arrays each time, with new content. Environment e is seeded
    with `seed + e` once; later resets go on from there. `n_lost` counts episodes that broke.
    """

    def __init__(
        self,
        name: str,
        games: Sequence[Game],
        *,
        max_step: int | None,
        time_limit_terminal: bool,
        sharing: Sharing | None = None,
        can_win: bool = False,
    ) -> None:
        """`sharing` is None where a game has one reward for all."""
        first, n_envs = games[0].spec, len(games)
        shares = None if sharing is None else RewardShares(name, first, sharing)
        self.spec = spec_of_all(first, n_envs, max_step, shares)
        self.n_lost = 0
        self._name, self._games, self._shares = name, list(games), shares
        self._limit, self._limit_terminal = max_step or 0, time_limit_terminal
        self._choices = Choices(name, self.spec)
        self._seen: Arrays = {
            field.name: np.zeros((n_envs, *field.shape), field.dtype)
            for field in first.observations
        }
        self._rows = [{k: v[e] for k, v in self._seen.items()} for e in range(n_envs)]
        own = (n_envs, len(first.agents)) if shares is not None else (n_envs,)
        self._reward = np.zeros(own, np.float32)
        self._flags = {
            flag: np.zeros(n_envs, np.bool_)
            for flag in ("terminated", "truncated", "valid", "first", "won")
        }
        self._can_win = can_win
        self._length = np.zeros(n_envs, np.int64)  # steps in the current episode
        self._lost_in_a_row = [0] * n_envs
        self._mishaps: Mishaps | None = None  # whom lost episodes are told to

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew and returns what is observed, [E, ...]."""
        for array in self._flags.values():
            array.fill(False)
        for e in range(self.spec.n_envs):
            self._begin(e, None if seed is None else seed + e)
        self._check_seen()
        return self._seen

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies one action per agent, [E, A, ...], or resets where an episode had ended."""
        flags = self._flags
        ended = flags["terminated"] | flags["truncated"]
        action = self._choices.check(action, self._seen.get("mask"), ~ended)
        for array in flags.values():
            array.fill(False)
        self._reward.fill(0.0)
        for e in range(self.spec.n_envs):
            if ended[e]:
                self._begin(e)
                flags["first"][e] = True
            else:
                self._play(e, action[e])
        self._check_seen()
        reward, score = self._reward, None
        if self._shares is not None:
            reward, score = self._shares.of(reward)
        return Step(
            self._seen,
            reward,
            flags["terminated"],
            flags["truncated"],
            flags["valid"],
            flags["first"],
            score=score,
            won=flags["won"] if self._can_win else None,
        )

    @property
    def fps(self) -> float:
        """Pictures per second at which the first environment runs as it should."""
        return fps_of(self._games[0])

    def picture(self) -> Picture:
        """The first environment as it is now, if it was made with `Rendering.PICTURES`."""
        return picture_of(self._name, self._games[0])

    def mend(self, mishaps: Mishaps) -> None:
        """From now on an episode that a game lost is told; it never was raised."""
        self._mishaps = mishaps

    def close(self) -> None:
        """Closes every game."""
        for game in self._games:
            game.close()

    def _begin(self, e: int, seed: int | None = None) -> None:
        self._clear(e)
        self._games[e].reset(self._rows[e], seed)
        self._length[e] = 0

    def _play(self, e: int, action: npt.NDArray[Any]) -> None:
        self._clear(e)
        outcome = self._games[e].step(action, self._rows[e])
        if outcome.lost:
            self._lose(e)
            return
        self._length[e] += 1
        self._reward[e] = outcome.reward
        cut = outcome.truncated or self._length[e] == self._limit
        terminated = outcome.terminated or (cut and self._limit_terminal)
        flags = self._flags
        flags["valid"][e], flags["won"][e] = True, outcome.won
        flags["terminated"][e], flags["truncated"][e] = terminated, cut and not terminated
        if terminated or cut:
            self._lost_in_a_row[e] = 0
            self._open_masks(e)

    def _lose(self, e: int) -> None:
        """The game broke: the row only resets, and no end is told, so that nobody counts one."""
        self.n_lost += 1
        self._lost_in_a_row[e] += 1
        if self._mishaps is not None:
            step = self._length[e] + 1
            self._mishaps.lose(
                f"{self._name}: environment {e}: the game broke at step {step} of its episode, "
                "which is lost"
            )
        if self._lost_in_a_row[e] > MOST_LOST:
            raise TianJiError(
                f"{self._name}: environment {e} lost {MOST_LOST} episodes in a row to errors of "
                "the game: see its log, and whether the machine has memory left"
            )
        self._begin(e)
        self._flags["first"][e] = True

    def _clear(self, e: int) -> None:
        for array in self._rows[e].values():
            array.fill(0)

    def _open_masks(self, e: int) -> None:
        """After the end a game may allow nothing: then the first option, so that targets exist."""
        if "mask" in self._seen:
            mask = self._rows[e]["mask"]
            mask[:, 0] |= ~mask.any(1)

    def _check_seen(self) -> None:
        flags = self._flags
        if "mask" in self._seen:
            going = ~(flags["terminated"] | flags["truncated"])
            self._choices.check_mask(self._seen["mask"], going)
        check_finite(self._name, {**self._seen, "reward": self._reward}, self._length)


def made(name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns; arguments of the config that do not fit are told as such."""
    from tianji.envs.gym import ARGUMENTS_DO_NOT_FIT

    try:
        return make()
    except TypeError as error:
        if not ARGUMENTS_DO_NOT_FIT.search(str(error)):
            raise
        raise TianJiError(f"{name} does not take the arguments of the config: {error}") from error
