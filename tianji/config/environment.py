"""The keys of the section `environment`."""

# ruff: noqa: RUF009 - `key` makes a dataclasses.field, which is what a default may be

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tianji.config.binder import Names, key
from tianji.config.release import UNRELEASED
from tianji.config.wrappers import CLASSIC, WrapperConfig, Wrapping, wrapping_of

AGENTS_ENVIRONMENTS = (
    "PettingZooEnv",
    "MultiagentParticleEnv",
    "StarCraft2Env",
    "SMAXEnv",
    "LBFEnv",
    "MatrixGameEnv",
)
"""Environments of several agents; their keys are in docs/agents.md."""

ENVIRONMENTS = ("GymEnv", "AtariEnv", "Catch", *AGENTS_ENVIRONMENTS)
"""All that are known by a name; others are `module:Class`."""


@dataclass(frozen=True)
class EnvironmentConfig:
    """The task."""

    type: str = key(
        "GymEnv",
        "kind of environment: GymEnv, AtariEnv, Catch, a class of your own as `module:Class`, or "
        "one of several agents, whose keys are in [agents.md](agents.md): "
        + ", ".join(AGENTS_ENVIRONMENTS),
        names=Names(ENVIRONMENTS, lost=UNRELEASED, own=True, open=AGENTS_ENVIRONMENTS),
    )
    gym_name: str | None = key(
        None,
        "id of a Gymnasium environment; a GymEnv needs one, an AtariEnv takes it instead of `game`",
    )
    game: str | None = key(None, "game of an AtariEnv, such as `Pong` or `ms_pacman`")
    sticky: float | None = key(
        None,
        "AtariEnv: chance of each frame that the last action is kept (Machado: 0.25); default: 0, "
        "or what a `gym_name` stands for",
        at_least=0,
        at_most=1,
    )
    full_actions: bool = key(False, "AtariEnv: all 18 actions, not just those that the game knows")
    max_frames: int = key(
        108_000, "AtariEnv: frames after which a game is cut off (half an hour)", at_least=1
    )
    threads: int | None = key(
        None,
        "AtariEnv: threads that run an actor's games; default: one per core of the actor",
        at_least=1,
    )
    vectorization: Literal["auto", "single", "sync", "vector"] = key(
        "auto",
        "how an actor steps its environments: `single` (just one), `sync` (one after the other), "
        "`vector` (the library's own vector entry point), `auto` (`vector` where there is one)",
    )
    wrappers: tuple[WrapperConfig, ...] | None = key(
        None,
        "of an AtariEnv: `noop`, `skip`, `life`, `fire`, `warp`, `clip`, `stack`, or what the "
        "release calls them, innermost first; default: all of them",
    )
    seed: int | None = key(
        None, "seed of the environments; default: derived from exp.seed", at_least=0
    )
    step_seconds: float = key(
        60.0,
        "seconds in a step after which an actor hangs and is replaced (engines process and mpi), "
        "unless three times the longest step so far is more",
        at_least=1,
    )
    kwargs: Mapping[str, Any] = key(
        {},
        "arguments of the environment's constructor; unknown keys join them, if it is "
        "`module:Class` or one of several agents",
        rest="own",
    )
    render: bool = key(False, "show each actor's first environment in a window")
    scenario_name: Any = key(
        None, "scenario of a MultiagentParticleEnv", no_effect="it belongs to MultiagentParticleEnv"
    )
    map_name: Any = key(None, "map of a StarCraft2Env", no_effect="it belongs to StarCraft2Env")
    difficulty: Any = key(
        None, "opponent of a StarCraft2Env", no_effect="it belongs to StarCraft2Env"
    )

    def check(self) -> str | None:
        """What is wrong, if anything."""
        if self.type == "GymEnv" and not self.gym_name:
            return "a GymEnv needs a gym_name, as in dict(type='GymEnv', gym_name='CartPole-v1')"
        if self.type == "AtariEnv":
            return self._check_atari()
        for name in ("game", "sticky", "full_actions", "max_frames", "threads"):
            if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                return f"{name} belongs to an AtariEnv, and the type is {self.type!r}"
        if any(wrapper.name in CLASSIC for wrapper in self.wrappers or ()):
            return f"such wrappers belong to an AtariEnv, and the type is {self.type!r}"
        return None

    def _check_atari(self) -> str | None:
        if (self.game is None) == (self.gym_name is None):
            found = (
                "" if self.game is None else f", found game={self.game!r} and gym_name beside it"
            )
            return f"an AtariEnv needs one game, as in dict(type='AtariEnv', game='Pong'){found}"
        if self.kwargs:
            return f"an AtariEnv takes no kwargs, found {', '.join(self.kwargs)}"
        try:
            _ = self.wrapping
        except ValueError as error:
            return str(error)
        return None

    @property
    def task(self) -> str:
        """What is played, for people."""
        named = self.gym_name or self.game or self.type
        if ":" in self.type:
            return named
        own = ("name", "scenario_name", "map_name")
        return next((str(self.kwargs[key]) for key in own if self.kwargs.get(key)), named)

    @property
    def wrapping(self) -> Wrapping:
        """What `wrappers` mean together; by default all the classic ones."""
        given = self.wrappers
        return wrapping_of(map(WrapperConfig, CLASSIC) if given is None else given)
