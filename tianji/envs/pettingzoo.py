"""PettingZoo's environments in which all agents act at once (its parallel API)."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from tianji.core.env import EnvSpec, Rendering
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean, load_module
from tianji.core.schema import Arrays, Field
from tianji.envs.agents import (
    AgentsLoop,
    GameOutcome,
    Sharing,
    Teams,
    Wanted,
    agents_spec,
    library,
    made,
    padded,
    teams_of,
)


def make_pettingzoo(
    wanted: Wanted,
    name: str,
    teams: Teams | None = None,
    reward: Sharing = "agent",
    time_limit_terminal: bool = False,
    **kwargs: Any,
) -> AgentsLoop:
    """The environments of module `name`, as in "mpe2.simple_spread_v3", or of "module:function".

    `teams` names the agents of each team, `reward` says whose reward an agent gets ("agent" or
    "team"). All other keys go to the module's `parallel_env`, or to the function.
    """
    library("pettingzoo", name, "mpe")
    make = _maker(name, wanted.folder)
    games = []
    for shown in wanted.shown():
        mode = {} if shown is Rendering.NONE else {"render_mode": shown.value}
        env = made(name, lambda mode=mode: make(**{**kwargs, **mode}))  # type: ignore[misc]
        games.append(ParallelGame(name, env, teams, kwargs.get("max_cycles")))
    return AgentsLoop(
        name,
        games,
        max_step=wanted.max_step,
        time_limit_terminal=time_limit_terminal,
        sharing=reward,
    )


def _maker(name: str, folder: str) -> Any:
    """The function that makes one environment."""
    module_name, colon, function = name.partition(":")
    parent, _, child = module_name.rpartition(".")
    if parent and child not in (inside := _modules_of(load_module(parent, folder))):
        raise TianJiError(f"{parent} has no {child!r}{did_you_mean(child, inside, n=3)}")
    module = load_module(module_name, folder)
    made_by = vars(module).get(function or "parallel_env")
    if callable(made_by):
        return made_by
    known = [key for key, value in vars(module).items() if callable(value) and key[0] != "_"]
    if colon:
        raise TianJiError(f"{module_name} has no {function!r}{did_you_mean(function, known)}")
    raise TianJiError(
        f"{module_name} has no parallel_env(): agents that act in turns are not supported\n"
        "Name a function that returns a parallel environment, as 'module:function'."
    )


def _modules_of(package: ModuleType) -> list[str]:
    return [each.name for each in pkgutil.iter_modules(getattr(package, "__path__", []))]


class ParallelGame:
    """A `Game` over one parallel environment.

    Agents that are done are masked out until the episode's end. `possible_agents` decides about the
    axis A, since `agents` is empty after the last step. Observations of unlike sizes are padded.
    """

    def __init__(self, name: str, env: Any, teams: Teams | None, limit: int | None = None) -> None:
        self._name, self._env = name, env
        self._agents = _agents_of(name, env)  # as the environment calls them: not always strings
        self.metadata = getattr(env, "metadata", {})
        self._seen = [Seen(name, agent, env.observation_space(agent)) for agent in self._agents]
        self._moves = Moves(name, self._agents, [env.action_space(a) for a in self._agents])
        self._live: list[Any] = []
        self._own_state = self._find_state()
        self.spec = self._describe(teams, limit)

    def reset(self, rows: Arrays, seed: int | None = None) -> None:
        """Starts an episode."""
        obs, infos = self._env.reset(seed=seed)
        self._live = self._checked(self._env.agents, self._agents)
        self._show(rows, obs, infos, self._live)
        rows["alive"][...] = [agent in self._live for agent in self._agents]

    def step(self, action: npt.NDArray[Any], rows: Arrays) -> GameOutcome:
        """Applies the actions of those that take part."""
        live = self._live
        actions = {
            agent: self._moves.of(i, action[i])
            for i, agent in enumerate(self._agents)
            if agent in live
        }
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        going = [a for a in live if not (terminated.get(a) or truncated.get(a))]
        self._live = [a for a in self._checked(self._env.agents, live) if a in going]
        over = not self._live
        seen = [a for a in live if a in obs] if over else self._live
        self._show(rows, obs, infos, seen)
        stays = [a for a in live if not terminated.get(a)] if over else self._live
        rows["alive"][...] = [agent in stays for agent in self._agents]
        return GameOutcome(
            [float(rewards.get(agent, 0.0)) if agent in live else 0.0 for agent in self._agents],
            terminated=over and not stays,
            truncated=over and bool(stays),
        )

    def render(self) -> Any:
        """A picture, where it was made with a render mode that gives one."""
        return self._env.render()

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _checked(self, agents: Sequence[Any], before: Sequence[Any]) -> list[Any]:
        """The agents that take part, none of whom was not there `before`."""
        if new := [agent for agent in agents if agent not in before]:
            known = new[0] in self._agents
            raise TianJiError(
                f"{self._name}: agent {new[0]!r} "
                + ("appeared during an episode" if known else "is not in possible_agents")
                + f": there were {list(before)}\n"
                "All agents must be there from the start, and may only leave: begin with all that "
                "can ever be, and let those wait whose turn comes later."
            )
        return list(agents)

    def _show(self, rows: Arrays, obs: Any, infos: Any, agents: Sequence[Any]) -> None:
        """Writes what these agents see and may do; all others may take the first action only."""
        for i, agent in enumerate(self._agents):
            own_mask = None
            if agent in agents:
                if agent not in obs:
                    raise TianJiError(f"{self._name}: no observation for agent {agent!r}")
                own_mask = self._seen[i].put(rows["obs"][i], obs[agent], infos.get(agent) or {})
            if "mask" in rows:
                self._moves.put_mask(rows["mask"][i], i, own_mask, agent in agents)
        rows["state"][...] = self._state(rows)

    def _state(self, rows: Arrays) -> npt.NDArray[Any]:
        if self._own_state:
            state = np.asarray(self._env.state(), np.float32).ravel()
            if state.shape != rows["state"].shape:
                want, got = list(rows["state"].shape), list(state.shape)
                raise TianJiError(f"{self._name}: state(): want shape {want}, got {got}")
            return state
        obs = rows["obs"]
        parts = [obs[i].ravel()[: own.n] for i, own in enumerate(self._seen)]
        state = np.concatenate(parts, dtype=np.float32)
        return state / 255 if obs.dtype == np.uint8 else state

    def _find_state(self) -> int:
        """How many numbers the environment's own `state` has; 0 where it has none."""
        self._env.reset()
        try:
            return int(np.asarray(self._env.state(), np.float32).size)
        except (NotImplementedError, AttributeError):
            return 0

    def _describe(self, teams: Teams | None, limit: int | None) -> EnvSpec:
        sizes = [own.n for own in self._seen]
        shapes = {own.shape for own in self._seen}
        dtypes = {own.dtype for own in self._seen}
        same = len(shapes) == len(dtypes) == 1
        obs = Field("obs", dtypes.pop(), shapes.pop()) if same else None
        names = [str(agent) for agent in self._agents]
        return agents_spec(
            names,
            obs or Field("obs", "float32", (max(sizes),)),
            self._own_state or sum(sizes),
            n_actions=self._moves.n,
            bounds=self._moves.bounds,
            own_inputs=() if same else tuple(sizes),
            own_actions=padded(self._moves.sizes),
            teams=teams_of(self._name, names, teams),
            max_episode_steps=limit,
        )


class Seen:
    """What one agent sees, as an array: its `Box` as it is, anything else flattened."""

    def __init__(self, name: str, agent: Any, space: Any) -> None:
        self._name, self._agent = name, agent
        self._masked = isinstance(space, spaces.Dict) and "action_mask" in space.spaces
        self._only = ""  # the one key beside the mask
        if self._masked:
            space = spaces.Dict({k: v for k, v in space.items() if k != "action_mask"})
            if len(space) == 1:
                self._only, space = next(iter(space.items()))
        self._space, self._flat = space, not isinstance(space, spaces.Box)
        try:
            box = spaces.flatten_space(space) if self._flat else space
        except NotImplementedError:
            box = None
        if not isinstance(box, spaces.Box):
            raise TianJiError(
                f"{name}: observation space {space!r:.120} of agent {agent!r} is not supported: "
                "want one that can be flattened, as Box, Discrete, or a Dict of these"
            )
        self.shape = tuple(int(size) for size in box.shape)
        self.dtype = "uint8" if box.dtype == np.uint8 and not self._flat else "float32"
        self.n = int(np.prod(self.shape))

    def put(self, row: npt.NDArray[Any], obs: Any, info: Mapping[str, Any]) -> Any:
        """Writes the observation into a row that may be larger; returns the mask, if one came."""
        mask = info.get("action_mask")
        if self._masked:
            mask = obs["action_mask"]
            rest = {key: value for key, value in obs.items() if key != "action_mask"}
            obs = rest[self._only] if self._only else rest
        array = np.asarray(spaces.flatten(self._space, obs) if self._flat else obs)
        if array.shape != self.shape or array.dtype.kind not in "biuf":
            got = f"{array.dtype.name}{list(array.shape)}"
            raise TianJiError(
                f"{self._name}: agent {self._agent!r}: want an observation of shape "
                f"{list(self.shape)}, got {got}"
            )
        if row.shape == self.shape:
            row[...] = array
        else:
            row[: self.n] = array.ravel()
        if self.dtype != row.dtype:  # an image among others that are unlike it
            row /= 255
        return mask


class Moves:
    """What the agents can do: options, or vectors of numbers, padded to the largest."""

    def __init__(self, name: str, agents: Sequence[Any], found: Sequence[Any]) -> None:
        self._name, self._agents, self._spaces = name, agents, found
        self.sizes, self.bounds = [1], None
        if all(isinstance(space, spaces.Discrete) for space in found):
            self.sizes = [int(space.n) for space in found]
        elif all(isinstance(s, spaces.Box) and s.dtype.kind == "f" for s in found):
            self.sizes = [int(np.prod(space.shape)) for space in found]
            self.bounds = self._bounds()
        else:
            kinds = dict(zip(agents, found, strict=True))
            raise TianJiError(
                f"{name}: action spaces {kinds!r:.200} are not supported: want Discrete for all "
                "agents, or a float Box for all"
            )
        self.n = max(self.sizes)

    def of(self, i: int, action: Any) -> Any:
        """The action of agent `i` as its environment wants it."""
        space = self._spaces[i]
        if self.bounds is None:
            return int(action + space.start)
        own = action[: self.sizes[i]].reshape(space.shape)
        return np.clip(own, space.low, space.high).astype(space.dtype)

    def put_mask(self, row: npt.NDArray[Any], i: int, mask: Any, takes_part: bool) -> None:
        """Writes which options agent `i` has."""
        if not takes_part:
            row[0] = True
            return
        own = np.ones(self.sizes[i], np.bool_) if mask is None else np.asarray(mask, np.bool_)
        if own.shape != (self.sizes[i],):
            raise TianJiError(
                f"{self._name}: the action_mask of agent {self._agents[i]!r} has shape "
                f"{list(own.shape)}: want [{self.sizes[i]}], one for each of its actions"
            )
        row[: self.sizes[i]] = own

    def _bounds(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """[A, n] each; what is padded lies between -1 and 1."""
        low = np.full((len(self._spaces), max(self.sizes)), -1.0, np.float32)
        high = -low
        for i, space in enumerate(self._spaces):
            low[i, : self.sizes[i]], high[i, : self.sizes[i]] = (
                space.low.ravel(),
                space.high.ravel(),
            )
        return low, high


def _agents_of(name: str, env: Any) -> list[Any]:
    agents = getattr(env, "possible_agents", None)
    if not agents:
        raise TianJiError(
            f"{name}: the environment has no possible_agents: set it to the names of all agents "
            "that can ever take part, as in self.possible_agents = ['agent_0', 'agent_1']"
        )
    if not (callable(getattr(env, "observation_space", None)) and hasattr(env, "step")):
        raise TianJiError(f"{name}: {type(env).__name__} is no parallel environment of PettingZoo")
    return list(agents)
