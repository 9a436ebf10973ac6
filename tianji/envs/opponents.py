"""Agents that somebody else plays, so that the others learn against them or beside them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tianji.core.env import BoolArray, Env, EnvSpec, MendingEnv, Step
from tianji.core.errors import TianJiError
from tianji.core.imports import did_you_mean, load_module
from tianji.core.mishaps import Mishaps
from tianji.core.schema import Arrays, Field
from tianji.core.state import State, copied, random_state, restore_random, restore_to, state_of
from tianji.envs.agents import Choices
from tianji.envs.shown import Picture, ShownEnv

PER_AGENT = ("obs", "mask", "alive")  # fields of the shape [E, A, ...]

Play = Callable[[Arrays, BoolArray, np.random.Generator], Any]
"""Actions of k agents, [E, k, ...], for what all see [E, A, ...], and where episodes begin."""


class Opponents:
    """An `Env` of the agents that learn: it plays the others, and shows nothing of them.

    The `state` stays whole. Where rewards are those of teams and one is left, that has one reward.
    """

    def __init__(
        self, name: str, env: Env, opponents: Any, kwargs: Mapping[str, Any], folder: str
    ) -> None:
        """`opponents` are named by teams of `kwargs["teams"]`, or agents, `*` for anything.

        Each is "random", a function as "module:function", or the folder of a run.
        """
        full, self._whole, self._name = env.spec, env, name
        whom = _whom(name, full, opponents, kwargs.get("teams"))
        self._played = [(at, who, _player(name, full, who, at, folder)) for who, at in whom]
        self._forgets = not any(_is_run(who) for who, _ in whom)
        hidden = {place for places, *_ in self._played for place in places}
        self._keep = [place for place in range(len(full.agents)) if place not in hidden]
        if not self._keep:
            raise TianJiError(f"{name}: opponents names all agents: leave out those that learn")
        self.spec = of_agents(full, self._keep)
        self._by_team = kwargs.get("reward") == "team"
        if self._by_team and self.spec.n_teams == 1:
            self.spec = replace(self.spec, reward_per_agent=False, rewards_of_teams=False)
        self._choices = Choices(name, self.spec)
        self._random = np.random.default_rng(len(self._keep))  # until a seed is given
        self._seen: Arrays = {}
        self._first = np.ones(full.n_envs, np.bool_)

    def reset(self, seed: int | None = None) -> Arrays:
        """Starts every environment anew and returns what is observed, [E, ...]."""
        if seed is not None:
            self._random = np.random.default_rng((seed, len(self._keep)))
        self._seen, self._first = self._whole.reset(seed), np.ones_like(self._first)
        return _rows(self._seen, self._keep)

    def step(self, action: npt.NDArray[Any]) -> Step:
        """Applies the actions of those that learn, and those of all others."""
        full = self._whole.spec
        joint = np.zeros((full.n_envs, *full.action.shape), full.action.dtype)
        joint[:, self._keep] = self._choices.check(action, None, self._first)
        for places, who, play in self._played:
            own = np.asarray(play(self._seen, self._first, self._random))
            want = joint[:, places]
            if own.shape != want.shape or not np.can_cast(own.dtype, want.dtype, "same_kind"):
                raise TianJiError(
                    f"{self._name}: opponents: {who} gave {own.dtype}{list(own.shape)}: "
                    f"want {want.dtype}{list(want.shape)}"
                )
            joint[:, places] = own
        step = self._whole.step(joint)
        self._seen, self._first = step.obs, step.first.copy()
        reward, score = self._earned(step)
        return replace(step, obs=_rows(step.obs, self._keep), reward=reward, score=score)

    @property
    def fps(self) -> float:
        """Pictures per second at which the first environment runs as it should."""
        return cast(ShownEnv, self._whole).fps

    def picture(self) -> Picture:
        """The first environment as it is now, if it was made to be shown."""
        return cast(ShownEnv, self._whole).picture()

    def mend(self, mishaps: Mishaps) -> None:
        """From now on what a game loses is told, where it can be."""
        if isinstance(self._whole, MendingEnv):
            self._whole.mend(mishaps)

    def close(self) -> None:
        """Closes the environment."""
        self._whole.close()

    def state(self) -> State | None:
        """Where the games stand and what is drawn next; None with runs, which may remember."""
        inner = state_of(self._whole)
        if inner is None or not self._forgets:
            return None
        seen = {"seen": copied(self._seen), "first": self._first}
        return {"env": inner, "random": random_state(self._random), **seen}

    def restore(self, state: State) -> None:
        """Goes on within the same episodes."""
        restore_to(self._whole, state["env"])
        restore_random(self._random, state["random"])
        self._seen, self._first = copied(state["seen"]), np.array(state["first"], np.bool_)

    def _earned(self, step: Step) -> tuple[npt.NDArray[np.float32], Any]:
        """The rewards of those that learn, and of several teams the first one's score."""
        if not self._whole.spec.reward_per_agent:
            return step.reward, step.score
        own = step.reward[:, self._keep]
        if self.spec.n_teams == 1:
            return own[:, 0] if self._by_team else own, None
        first = own[:, np.asarray(self.spec.teams) == 0]
        return own, first[:, 0] if self._by_team else first.sum(1)


def _whom(name: str, spec: EnvSpec, opponents: Any, teams: Any) -> list[tuple[str, list[int]]]:
    """Who plays which places of the axis A."""
    if not isinstance(opponents, Mapping) or not all(
        isinstance(w, str) for w in opponents.values()
    ):
        example = "opponents = dict(prey='random')"
        raise TianJiError(f"{name}: opponents is {opponents!r:.80}: want names, as in {example}")
    named, found, owner = teams if isinstance(teams, Mapping) else {}, [], dict[int, str]()
    for key, who in opponents.items():
        members = named.get(key, key)
        patterns = [members] if isinstance(members, str) else members
        agents = {agent for each in patterns for agent in fnmatch.filter(spec.agents, each)}
        places = [place for place, agent in enumerate(spec.agents) if agent in agents]
        if not places:
            there = did_you_mean(key, [*named, *spec.agents])
            raise TianJiError(
                f"{name}: opponents names {key!r}, no team of environment.teams and no agent"
                + (there or f": its agents are {', '.join(spec.agents)}")
            )
        for place in places:
            if (other := owner.setdefault(place, key)) != key:
                agent = spec.agents[place]
                raise TianJiError(f"{name}: opponents: {agent!r} is in {other!r} and in {key!r}")
        found.append((who, places))
    return found


def _is_run(who: str) -> bool:
    return who != "random" and ":" not in who


def _player(name: str, spec: EnvSpec, who: str, places: list[int], folder: str) -> Play:
    if _is_run(who):
        return _policy_of(name, spec, who, places, folder)
    if who != "random":
        return _function(who, places, folder)
    low, high = (_bound(spec, of, places) for of in (spec.action_low, spec.action_high))

    def at_random(seen: Arrays, first: BoolArray, random: np.random.Generator) -> Any:
        if spec.choices is None:
            return random.uniform(low, high, (len(first), *low.shape)).astype(np.float32)
        mask = seen["mask"][:, places]
        return np.where(mask, random.random(mask.shape), -1.0).argmax(-1)

    return at_random


def _function(who: str, places: list[int], folder: str) -> Play:
    """A function of the observations, the masks (None with numbers), and a random generator."""
    module_name, _, name = who.partition(":")
    module = load_module(module_name, folder)
    function = vars(module).get(name)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value)]
        raise TianJiError(f"opponents: {module_name} has no {name!r}{did_you_mean(name, known)}")

    def play(seen: Arrays, first: BoolArray, random: np.random.Generator) -> Any:
        own = _rows(seen, places)
        return function(own["obs"], own.get("mask"), random)

    return play


def _policy_of(name: str, spec: EnvSpec, run: str, places: list[int], folder: str) -> Play:
    """A run's policy, without exploration; it may play further agents, which are left out."""
    import tianji  # the front door: what loads a run lies above this room

    beside = Path(folder, run)
    trained = tianji.load(beside if beside.exists() else run)
    theirs, wanted = trained.task.env, [spec.agents[place] for place in places]
    rows = [spec.agents.index(agent) for agent in theirs.agents if agent in spec.agents]
    here = of_agents(spec, rows)
    if missing := [agent for agent in wanted if agent not in here.agents]:
        raise TianJiError(
            f"{name}: opponents: {run} does not play {missing[0]!r}: "
            f"it plays {', '.join(theirs.agents) or 'one agent, without a name'}"
        )
    if (found := _form(theirs)) != (want := _form(here)):
        raise TianJiError(f"{name}: opponents: {run} does not fit: want {want}, found {found}")
    own = [theirs.agents.index(agent) for agent in wanted]

    def play(seen: Arrays, first: BoolArray, random: np.random.Generator) -> Any:
        return trained.act(_rows(seen, rows), first)[:, own]

    return play


def _form(spec: EnvSpec) -> str:
    """What a policy of these agents sees, and what it gives."""
    shown = [f"{field.name} {field}" for field in spec.observations]
    bounds = [str(each) for each in (spec.action_low, spec.action_high) if each is not None]
    return ", ".join([*shown, f"action {spec.action}", *map(str, spec.choices or ()), *bounds])


def _rows(seen: Arrays, places: list[int]) -> Arrays:
    """What these agents see; what is of the whole game as it is."""
    return {name: a[:, places] if name in PER_AGENT else a for name, a in seen.items()}


def _bound(spec: EnvSpec, of: tuple[float, ...] | None, places: list[int]) -> npt.NDArray[Any]:
    """The bounds of these agents' numbers [k, n]; nothing where they choose."""
    return np.zeros(0) if of is None else np.reshape(of, spec.action.shape)[places]


def of_agents(spec: EnvSpec, places: list[int]) -> EnvSpec:
    """The spec of some of the agents, their teams counted from 0."""
    teams = sorted({spec.teams[place] for place in places})

    def cut(field: Field) -> Field:
        many = field.name in (*PER_AGENT, "action")
        return Field(field.name, field.dtype, (len(places), *field.shape[1:])) if many else field

    def bound(of: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return of and tuple(_bound(spec, of, places).ravel().tolist())

    return replace(
        spec,
        observations=tuple(map(cut, spec.observations)),
        action=cut(spec.action),
        action_low=bound(spec.action_low),
        action_high=bound(spec.action_high),
        agents=tuple(spec.agents[place] for place in places),
        teams=tuple(teams.index(spec.teams[place]) for place in places),
        own_inputs=spec.own_inputs and tuple(spec.own_inputs[place] for place in places),
        own_actions=spec.own_actions and tuple(spec.own_actions[place] for place in places),
    )
